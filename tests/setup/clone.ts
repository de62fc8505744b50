import { spawn, type ChildProcess } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { root } from '../support/repository.ts';

export interface Clone {
  readonly folder: string;
  write(file: string, text: string): void;
}

/** A small repository with the real scripts and little else. */
export function clone(
  files: Readonly<Record<string, string>>,
  { linkModules }: { readonly linkModules: boolean },
): Clone {
  const folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-clone-')));
  after(() => rmSync(folder, { recursive: true, force: true }));
  for (const name of ['scripts', 'bin', 'tsconfig.json'])
    cpSync(path.join(root, name), path.join(folder, name), { recursive: true });
  if (linkModules) symlinkSync(realpathSync(path.join(root, 'node_modules')), path.join(folder, 'node_modules'));
  const write = (file: string, text: string) => {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  };
  for (const [file, text] of Object.entries({
    'package.json': '{ "type": "module" }',
    'package-lock.json': '{ "packages": {} }',
    ...files,
  }))
    write(file, text);
  return { folder, write };
}

export interface Program {
  readonly child: ChildProcess;
  output(): string;
  errors(): string;
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** Resolves when the standard output holds a text. */
  prints(text: string): Promise<void>;
}

const children = new Set<ChildProcess>();
after(() => {
  for (const child of children) child.kill('SIGKILL');
});

export function run(clone: Clone, args: readonly string[], variables: Readonly<Record<string, string>> = {}): Program {
  const { NODE_OPTIONS: _options, ...environment } = process.env;
  const child = spawn(process.execPath, args, {
    cwd: clone.folder,
    env: { ...environment, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let output = '';
  let errors = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) =>
    child.on('close', (code, signal) => resolve({ code, signal })),
  );
  return {
    child,
    output: () => output,
    errors: () => errors,
    ended,
    prints: async (text) => {
      const deadline = Date.now() + 30_000;
      while (!output.includes(text)) {
        if (child.exitCode !== null || Date.now() > deadline)
          throw new Error(`never printed ${text}: ${output} ${errors}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
  };
}

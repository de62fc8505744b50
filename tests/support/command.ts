import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { Writable } from 'node:stream';

import { mainFile } from './built.ts';
import { slowness } from './busy.ts';

/** What a command printed. */
export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const timeoutMs = Math.round(60_000 * slowness);

/** Commands that take signals and standard input for themselves. */
const wantsProcess: ReadonlySet<string> = new Set(['serve', 'chat']);

/**
 * Runs `tokenhouse …` to its end. Without variables of its own that is done inside this process, which spares a start of Node
 * and the reading of the program: thousands of commands are run by the tests. What only a process can show (pipes that close,
 * signals, terminals, variables) is shown by one: `runProcess`.
 */
export async function runCommand(
  folder: string,
  args: readonly string[],
  variables?: Readonly<Record<string, string>>,
): Promise<CommandResult> {
  if (Object.keys(variables ?? {}).length > 0 || wantsProcess.has(args[0] ?? ''))
    return await runProcess(folder, args, variables);
  const { runCommandLine } = await import('../../src/cli/command-line.ts');
  const stdout = new Collected();
  const stderr = new Collected();
  const code = await runCommandLine(args, { directory: folder, stdout, stderr });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** Runs `tokenhouse …` as a process, to its end. */
export async function runProcess(
  folder: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  const child = spawn(process.execPath, [mainFile, ...args], {
    cwd: folder,
    env: { ...process.env, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  assert.notEqual(code, null, `tokenhouse ${args.join(' ')} did not end by itself:\n${stderr}`);
  return { code, stdout, stderr };
}

class Collected extends Writable {
  text = '';

  constructor() {
    super({ decodeStrings: false });
  }

  override _write(chunk: string | Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { CommandResult } from '../support/service.ts';
import { mainFile } from '../support/built.ts';

const timeoutMs = 60_000;

/** A folder to run commands in, without a service. */
export class CommandFolder {
  readonly path = mkdtempSync(join(tmpdir(), 'tokenhouse-cli-'));
  readonly #environment: Readonly<Record<string, string>>;

  constructor(config?: string, environment: Readonly<Record<string, string>> = {}) {
    this.#environment = environment;
    if (config !== undefined) this.write('tokenhouse.yaml', config);
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.path, name), text);
  }

  /** Runs `tokenhouse …` to its end. Fails when it prints a stack trace or does not end. */
  run(...args: string[]): Promise<CommandResult> {
    return runCommand(this.path, args, this.#environment);
  }

  dispose(): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

export async function runCommand(
  folder: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  const child = spawn(process.execPath, [mainFile, ...args], {
    cwd: folder,
    // Not as npm has started the tests: then commands in messages are `npx tokenhouse …`.
    env: { ...process.env, npm_command: undefined, ...environment },
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
  assertNoStack(stdout + stderr);
  return { code, stdout, stderr };
}

/** People are never shown where in our code something happened. */
export function assertNoStack(text: string): void {
  assert.doesNotMatch(text, /^\s+at .*:\d+:\d+|node:internal|\.js:\d+/m);
}

/** Standard output of a command with `--json`, which is one JSON value and nothing else. */
export function jsonOf(result: CommandResult): unknown {
  assert.equal(result.code, 0, result.stderr);
  return JSON.parse(result.stdout) as unknown;
}

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import type { ExecFileOptions } from 'node:child_process';

/** How a program ended, and all that it said, on each output and on both. */
export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly said: string;
}

/** Runs a program to its end, with all that it says. */
export function run(command: string, args: readonly string[], options: ExecFileOptions = {}): Promise<Ran> {
  return new Promise((resolve) =>
    execFile(command, args, { maxBuffer: 64 * 1024 * 1024, ...options, encoding: 'utf8' }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), stdout, stderr, said: stdout + stderr }),
    ),
  );
}

/** What a program said that has to end well. */
export async function assertRuns(command: string, args: readonly string[], options?: ExecFileOptions): Promise<string> {
  const { code, said } = await run(command, args, options);
  assert.equal(code, 0, `${command} ${args.join(' ')}\n${said.slice(-4000)}`);
  return said;
}

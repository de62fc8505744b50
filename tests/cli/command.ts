import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { runCommand as run } from '../support/command.ts';
import type { CommandResult } from '../support/command.ts';

/** A folder to run commands in, without a service. */
export class CommandFolder {
  readonly path = mkdtempSync(join(tmpdir(), 'tokenhouse-cli-'));
  readonly #variables: Readonly<Record<string, string>> | undefined;

  /** With variables of its own a command is a process of its own. */
  constructor(config?: string, variables?: Readonly<Record<string, string>>) {
    this.#variables = variables;
    if (config !== undefined) this.write('tokenhouse.yaml', config);
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.path, name), text);
  }

  /** Runs `tokenhouse …` to its end. Fails when it prints a stack trace or does not end. */
  run(...args: string[]): Promise<CommandResult> {
    return runCommand(this.path, args, this.#variables);
  }

  dispose(): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

export async function runCommand(
  folder: string,
  args: readonly string[],
  variables?: Readonly<Record<string, string>>,
): Promise<CommandResult> {
  const result = await run(folder, args, variables);
  assertNoStack(result.stdout + result.stderr);
  return result;
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

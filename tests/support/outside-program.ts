import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import type { Step } from '../store/outside-program.ts';
import { built } from './built.ts';
import { inRepository } from './repository.ts';

/** A process of its own with SQLite: a reader, a data browser, a backup tool. Its locks are not those of the test. */
export class OutsideProgram {
  readonly #child = spawn(process.execPath, [built('tests/store/outside-program.ts')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  readonly #lines = createInterface({ input: this.#child.stdout });

  constructor(t: TestContext) {
    t.after(() => this.#child.kill('SIGKILL'));
  }

  /** Resolves with what SQLite said against the step; null: it was done. One step at a time. */
  async do(step: Step): Promise<string | null> {
    const answer = once(this.#lines, 'line');
    this.#child.stdin.write(`${JSON.stringify(step)}\n`);
    const [line] = (await answer) as [string];
    return JSON.parse(line) as string | null;
  }

  /** Opens the file, reads of it, and closes it. */
  async read(file: string): Promise<void> {
    for (const step of [{ open: file }, { run: 'select count(*) from sqlite_schema' }, { close: true as const }])
      assert.equal(await this.do(step), null, JSON.stringify(step));
  }
}

/**
 * Which process's lock keeps others from having a database for themselves; 0: nobody's. From 3.51 on SQLite does without this lock
 * before it deletes a log, by another one; programs with an earlier one do not, so the lock itself is asked for, from a child process.
 */
export function lockHolder(t: TestContext): (file: string) => number {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-lock-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const program = join(folder, 'lock-holder');
  const made = spawnSync('cc', ['-o', program, inRepository('tests/support/lock-holder.c')], { encoding: 'utf8' });
  assert.equal(made.status, 0, `needs a C compiler (apt-get install -y gcc): ${made.error?.message ?? made.stderr}`);
  return (file) => {
    const { status, stdout, stderr } = spawnSync(program, [file], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    return Number(stdout);
  };
}

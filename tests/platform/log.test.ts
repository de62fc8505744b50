import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createLog } from '../../src/platform/log.ts';

/** What a pipe is that somebody reads, or does not. */
class Pipe {
  readonly written: string[] = [];
  isFull = false;
  #drained: (() => void) | undefined;

  write(text: string): boolean {
    this.written.push(text);
    return !this.isFull;
  }

  once(_event: 'drain', listener: () => void): void {
    this.#drained = listener;
  }

  drain(): void {
    this.isFull = false;
    this.#drained?.();
  }

  get lines(): readonly Readonly<Record<string, unknown>>[] {
    return this.written
      .join('')
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Record<string, unknown>]));
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('while nobody reads, lines wait up to a bound; those beyond it are counted, and the count is logged (reliability S11)', async () => {
  const pipe = new Pipe();
  const log = createLog(pipe);
  pipe.isFull = true;
  log.service({ level: 'info', event: 'first' });
  await turn();
  assert.equal(pipe.lines.length, 1);

  const total = 10_000;
  for (let i = 0; i < total; i++)
    log.service({ level: 'info', event: 'more', detail: { i, padding: 'x'.repeat(1_000) } });
  await turn();
  assert.equal(pipe.lines.length, 1, 'nothing more is pushed into a pipe that is full');

  pipe.drain();
  const { lines } = pipe;
  const kept = lines.filter(({ event }) => event === 'more');
  const reported = lines.filter(({ event }) => event === 'log_lines_dropped');
  assert.deepEqual(
    reported.map(({ level, count }) => [level, count]),
    [['warn', total - kept.length]],
  );
  assert.deepEqual(
    kept.map(({ i }) => i),
    kept.map((_, index) => index),
    'the oldest are kept, in order',
  );
  const characters = pipe.written.join('').length;
  assert.ok(characters > 4_000_000 && characters < 4_500_000, `${characters} characters waited`);

  log.service({ level: 'info', event: 'last' });
  await turn();
  assert.equal(pipe.lines.at(-1)?.['event'], 'last');
});

test('lines that cannot be written are lost and counted, and the log goes on when there is room (reliability S3)', async () => {
  const pipe = new Pipe();
  let isDiskFull = true;
  const log = createLog({
    write: (text) => {
      if (isDiskFull) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
      return pipe.write(text);
    },
    once: (event, listener) => pipe.once(event, listener),
  });
  log.service({ level: 'info', event: 'lost' });
  log.service({ level: 'info', event: 'lost too' });
  await log.flush();
  assert.equal(log.linesDropped, 2);
  isDiskFull = false;
  log.service({ level: 'info', event: 'kept' });
  await turn();
  await turn();
  assert.deepEqual(
    pipe.lines.map(({ event, count }) => [event, count]),
    [
      ['kept', undefined],
      ['log_lines_dropped', 2],
    ],
  );
});

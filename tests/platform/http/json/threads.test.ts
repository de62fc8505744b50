import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { structureOf } from '../../../../src/platform/http/json/scan.ts';
import { JsonThreads } from '../../../../src/platform/http/json/threads.ts';
import type { JsonThreadsOptions } from '../../../../src/platform/http/json/threads.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { until } from '../../../support/service.ts';

const waitMs = 60_000;
const never = new AbortController().signal;

function threads(t: TestContext, options: Partial<JsonThreadsOptions> = {}): JsonThreads {
  // A shared machine may take seconds for what takes milliseconds.
  const pool = new JsonThreads({ timeLimitMs: waitMs, ...options });
  t.after(() => pool.close());
  return pool;
}

/** In blocks of this many bytes, each alone in its memory. */
const blocksOf = (text: string | Uint8Array, size = 1 << 20): Uint8Array<ArrayBuffer>[] => {
  const whole = Buffer.from(text as Uint8Array);
  return Array.from(
    { length: Math.ceil(whole.length / size) },
    (_, index) => new Uint8Array(whole.subarray(index * size, (index + 1) * size)),
  );
};

const refusal =
  (code: string, message?: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.code, code);
    if (message !== undefined) assert.match(error.message, message);
    return true;
  };

test('a value arrives as it was parsed, whatever is in it and wherever the blocks end', async (t) => {
  const pool = threads(t);
  const text =
    '{"a":1,"a":2,"__proto__":{"x":1},"constructor":[],"0":1,"4294967295":2,"n":[1e999,-0,9007199254740993,5e-324],' +
    '"s":"\\ud800é中🌀\\u0000","deep":' +
    '['.repeat(200) +
    ']'.repeat(200) +
    '}';
  for (const size of [1, 7, 1 << 20]) {
    const { value, structuralCharacters } = await pool.parse(blocksOf(text, size), never);
    assert.equal(structuralCharacters, structureOf(Buffer.from(text)));
    assert.deepStrictEqual(value, JSON.parse(text));
    assert.deepEqual(Object.keys(value as object), Object.keys(JSON.parse(text) as object));
    assert.equal(Object.getPrototypeOf(value), Object.prototype);
  }
});

test('the bytes are handed over, not copied', async (t) => {
  const blocks = blocksOf('[1,2,3]');
  const parsed = threads(t).parse(blocks, never);
  assert.deepEqual(
    blocks.map((block) => block.byteLength),
    [0],
  );
  assert.deepEqual((await parsed).value, [1, 2, 3]);
});

test('what is refused is refused in the words of the parser', async (t) => {
  const pool = threads(t);
  for (const [text, message] of [
    ['{} {}', /not valid JSON/],
    ['{},'.repeat(1_000_000), /500000 structural characters/],
    ['['.repeat(1_000_000), /256 levels/],
    [Buffer.from([0x22, 0xff, 0x22]), /UTF-8/],
    ['\ufeff{}', /not valid JSON/],
    [`{${Array.from({ length: 50_001 }, (_, index) => `"${index}k":1`).join()}}`, /50000 different names/],
  ] as const) {
    await assert.rejects(pool.parse(blocksOf(text), never), refusal('invalid_json_request', message));
  }
  assert.deepEqual((await pool.parse(blocksOf('{}'), never)).value, {});
  // Names that are used again, and array indexes, are not counted.
  const messages = `[${'{"role":"user","content":"x"},'.repeat(60_000)}1]`;
  assert.equal(((await pool.parse(blocksOf(messages), never)).value as unknown[]).length, 60_001);
  const indexes = `{${Array.from({ length: 60_000 }, (_, index) => `"${index}":1`).join()}}`;
  assert.equal(Object.keys((await pool.parse(blocksOf(indexes), never)).value as object).length, 60_000);
});

test('no more threads than are allowed, a bounded queue, and no thread when there is nothing to do', async (t) => {
  const pool = threads(t, { threadsMax: 2, waitingMax: 3, idleMs: 50 });
  assert.equal(pool.count, 0);
  const parsed = Array.from({ length: 5 }, () => pool.parse(blocksOf(`"${'x'.repeat(4_000_000)}"`), never));
  assert.equal(pool.count, 2);
  await assert.rejects(pool.parse(blocksOf('{}'), never), refusal('backend_at_capacity'));
  for (const { value } of await Promise.all(parsed)) assert.equal((value as string).length, 4_000_000);
  await until(() => pool.count === 0, waitMs);
  assert.deepEqual((await pool.parse(blocksOf('{}'), never)).value, {}, 'the next one gets a new thread');
});

test('a request that is over waits no longer', async (t) => {
  const pool = threads(t, { threadsMax: 1, waitingMax: 1 });
  const first = pool.parse(blocksOf(`"${'x'.repeat(4_000_000)}"`), never);
  const leaving = new AbortController();
  const waiting = pool.parse(blocksOf('{}'), leaving.signal);
  leaving.abort('client-left');
  await assert.rejects(waiting, (error: unknown) => error === 'client-left');
  const running = new AbortController();
  const next = pool.parse(blocksOf('{}'), running.signal);
  await first;
  running.abort('client-left');
  await next.catch((error: unknown) => assert.equal(error, 'client-left'));
  await assert.rejects(pool.parse(blocksOf('{}'), leaving.signal), (error: unknown) => error === 'client-left');
  assert.deepEqual((await pool.parse(blocksOf('[1]'), never)).value, [1], 'its thread goes on');
});

test('a body that takes too long is given up, and takes no other with it', async (t) => {
  const pool = threads(t, { threadsMax: 1, timeLimitMs: 1 });
  await assert.rejects(pool.parse(blocksOf(`"${'x'.repeat(8_000_000)}"`), never), refusal('backend_at_capacity'));
  await until(() => pool.count === 0, waitMs);
  const patient = threads(t, { threadsMax: 1 });
  assert.deepEqual((await patient.parse(blocksOf('[1]'), never)).value, [1]);
});

test('a thread that dies takes only its body with it', async (t) => {
  const pool = threads(t, { threadsMax: 1 });
  // No bytes, which nothing but a fault of our own could send.
  const fatal = pool.parse([{ buffer: new ArrayBuffer(1) } as unknown as Uint8Array<ArrayBuffer>], never);
  const waiting = pool.parse(blocksOf('[1]'), never);
  await assert.rejects(fatal, refusal('backend_at_capacity'));
  assert.deepEqual((await waiting).value, [1]);
});

test('the bodies that need the most memory for their size find enough (reliability S2)', async (t) => {
  // A thread that runs out of memory inside of JSON.parse ends the process: its limit must be out of reach.
  const pool = threads(t, { threadsMax: 1 });
  const wide = blocksOf(`["${'x'.repeat(52_000_000)}中"]`);
  assert.equal(((await pool.parse(wide, never)).value as string[])[0]?.length, 52_000_001);
  const many = blocksOf(`["中",${`{"a":["${'x'.repeat(700)}",1.5]},`.repeat(70_000)}1]`);
  assert.equal(((await pool.parse(many, never)).value as unknown[]).length, 70_002);
});

test('closing refuses what waits and ends the threads', async (t) => {
  const pool = threads(t, { threadsMax: 1 });
  const parsed = [pool.parse(blocksOf(`"${'x'.repeat(8_000_000)}"`), never), pool.parse(blocksOf('{}'), never)];
  const settled = Promise.allSettled(parsed);
  await pool.close();
  assert.deepEqual(
    (await settled).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  await assert.rejects(pool.parse(blocksOf('{}'), never), refusal('backend_at_capacity'));
  assert.equal(pool.count, 0);
});

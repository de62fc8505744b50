import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';
import { after, test } from 'node:test';
import type { Constraint } from '../../../src/generation/request.ts';
import { Constraints } from '../../../src/inference/pipeline/constraints.ts';
import type { ConstraintsOptions } from '../../../src/inference/pipeline/constraints.ts';

const opened: Constraints[] = [];
const open = (options: ConstraintsOptions = {}): Constraints => {
  const constraints = new Constraints({ timeLimitMs: 120_000, ...options });
  opened.push(constraints);
  return constraints;
};
after(() => Promise.all(opened.map((constraints) => constraints.close())));

const { signal } = new AbortController();
setMaxListeners(0, signal);
const kept = { accountId: 'a', retain: true, signal };
const zdr = { ...kept, retain: false };
const regex = (pattern: string): Constraint => ({ type: 'regex', pattern });

test('a constraint is compiled once for an account, for all its requests that send it', async () => {
  const constraints = open();
  const sources: readonly Constraint[] = [
    { type: 'json-object' },
    { type: 'json-schema', schema: { type: 'object', properties: { a: { type: 'string' } } }, name: 'a' },
    regex('[a-z]+'),
  ];
  for (const source of sources) {
    const [first, second] = await Promise.all([
      constraints.compile(source, 'regex', kept),
      constraints.compile(source, 'regex', kept),
    ]);
    assert.match(first.gbnf ?? '', /^root ::= /);
    assert.equal(first.gbnf, second.gbnf);
    assert.equal(first.source, source);
    assert.deepEqual(await constraints.compile(source, 'regex', kept), first);
  }
  assert.equal(constraints.count, sources.length);
});

test('what is refused is refused each time, with its code and place, and compiled once', async () => {
  const constraints = open();
  for (const call of [kept, kept, zdr, zdr]) {
    await assert.rejects(constraints.compile(regex('(a'), 'regex', call), {
      code: 'unsupported_value',
      status: 400,
      param: 'regex',
    });
  }
  assert.equal(constraints.count, 0);
  assert.equal(constraints.places.begun, 3, 'of zero data retention nothing is remembered');
  assert.match((await constraints.compile(regex('a'), 'regex', kept)).gbnf ?? '', /^root/);
});

test('§4.2.6 under zero data retention nothing is remembered', async () => {
  const constraints = open();
  assert.match((await constraints.compile(regex('secret'), 'regex', zdr)).gbnf ?? '', /^root ::= /);
  assert.equal(constraints.count, 0);
});

test('what one account has sent says nothing to another: its own constraint is compiled again', async () => {
  const constraints = open();
  const other = { ...kept, accountId: 'b' };
  for (const pattern of ['a+', '(a']) {
    const refused = { code: 'unsupported_value' };
    for (const call of [kept, kept, other, other]) {
      const compiling = constraints.compile(regex(pattern), 'regex', call);
      if (pattern === '(a') await assert.rejects(compiling, refused);
      else await compiling;
    }
  }
  assert.equal(constraints.places.begun, 4);
});

test('an account with many constraints waits behind itself', async () => {
  const constraints = open();
  const ended: string[] = [];
  const compile = async (accountId: string, pattern: string): Promise<void> => {
    await constraints.compile(regex(pattern), 'regex', { ...kept, accountId });
    ended.push(accountId);
  };
  // A thread for each.
  await Promise.all([compile('a', 'warm'), compile('b', 'warm')]);
  ended.length = 0;
  const greedy = Array.from({ length: 60 }, (_, index) => compile('a', `[a-z]{${index + 1}}`));
  await compile('b', 'b');
  assert.ok(ended.indexOf('b') < 30, `after ${ended.indexOf('b')} of the other`);
  await Promise.all(greedy);
});

test('the oldest go when there are too many, or too many bytes', async () => {
  const few = open({ grammarsMax: 3 });
  for (const pattern of ['a', 'b', 'c', 'a', 'd']) await few.compile(regex(pattern), 'regex', kept);
  assert.equal(few.count, 3);
  const small = open({ bytesMax: 600 });
  for (const pattern of ['a'.repeat(60), 'b'.repeat(60), 'c'.repeat(200)]) {
    await small.compile(regex(pattern), 'regex', kept);
    assert.ok(small.count <= 1);
  }
});

test('a thread that is too slow ends with its constraint only; the next gets another', async () => {
  const constraints = open({ timeLimitMs: 1 });
  await assert.rejects(constraints.compile(regex('a'), 'regex', kept), { code: 'backend_at_capacity', status: 429 });
  await constraints.close();
});

test('what a thread says after its time is not taken for the grammar of the next constraint', async () => {
  const constraints = open({ timeLimitMs: 500 });
  const warm = (): Promise<boolean> =>
    constraints.compile(regex('warm'), 'regex', zdr).then(
      () => true,
      () => false,
    );
  while (!(await warm()));
  // From here the timers are looked at first, and then what threads have said.
  await new Promise((resolve) => setImmediate(resolve));
  const patterns = ['first', 'second'];
  const asked = patterns.map((pattern) => constraints.compile(regex(pattern), 'regex', kept));
  // Meanwhile the thread answers, and its time is over: both are seen in the same turn.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
  for (const [index, outcome] of (await Promise.allSettled(asked)).entries()) {
    if (outcome.status === 'fulfilled') assert.equal(outcome.value.gbnf?.trim(), `root ::= "${patterns[index]}"`);
    else assert.equal((outcome.reason as { code?: unknown }).code, 'backend_at_capacity');
  }
});

test('what cannot wait is refused', async () => {
  const constraints = open({ waitingMax: 1 });
  const asked = ['a', 'b', 'c'].map((pattern) => constraints.compile(regex(pattern), 'regex', kept));
  const outcomes = await Promise.allSettled(asked);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected'],
  );
});

/** `Idempotency-Key` in one process, over a real store (docs/decisions/008-idempotency.md); whole services are in `tests/suites/families/`. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { after, before, test, type TestContext } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { ActiveRequests } from '../../../src/inference/pipeline/active-requests.ts';
import { Idempotency, idempotencyKeyOf, underWayCharactersMax } from '../../../src/inference/pipeline/idempotency.ts';
import type { Generate, IdempotencyOptions, KeyedRequest } from '../../../src/inference/pipeline/idempotency.ts';
import type { Order } from '../../../src/inference/pipeline/order.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import type { SqliteStore } from '../../../src/store/sqlite/store.ts';
import { customer, openStore, temporaryFolder, usage, uuid } from '../../store/fixture.ts';
import { slowness } from '../../support/busy.ts';
import { until } from '../../support/service.ts';
import { chatRoute } from './models.ts';

const keptMs = 86_400_000;
const answerCharactersMax = 8_388_608;
const accountBytesMax = 134_217_728;
const bytesMax = 4_294_967_296;
const twinsMax = 256;

type Store = IdempotencyOptions['repositories'];

interface Asked {
  readonly body?: string;
  readonly key?: string;
  readonly account?: string;
  readonly zdr?: boolean;
  readonly api?: string;
  readonly version?: string;
  /** Texts of the answer, the last of which follows the charge. */
  readonly says?: readonly string[];
  /** How it ends; `failed` is not charged. */
  readonly ending?: 'finished' | 'credit' | 'client_left' | 'failed';
  readonly signal?: AbortSignal;
  /** It goes on when that resolves. */
  readonly gate?: Promise<void>;
}

const ends: (() => unknown)[] = [];
const allTests = { after: (end: () => unknown) => void ends.push(end) } as Pick<TestContext, 'after'>;
after(async () => {
  for (const end of ends) await end();
});
let store: SqliteStore;
let scenes = 0;
before(async () => {
  store = await openStore(allTests, `${temporaryFolder(allTests)}/x.db`);
  for (const account of ['acct_a', 'acct_b']) await customer(store, account, 1_000_000n);
});

/** Has keys of its own. */
function open(
  between: (store: Store) => Store = (store) => store,
  { graceMs }: { readonly graceMs?: number } = { graceMs: 60_000 },
) {
  const scene = ++scenes;
  const seen = { counted: [] as string[], failed: [] as string[], generated: 0 };
  const running = new ActiveRequests();
  let at = Date.now();
  const owner = uuid();
  const idempotency = new Idempotency({
    repositories: between({
      claimRequest: (claim) => store.repositories.claimRequest(claim),
      keepAnswer: (answer) => store.repositories.keepAnswer(answer),
      leaveRequest: (request) => store.repositories.leaveRequest(request),
      tidyRequests: (request) => store.repositories.tidyRequests(request),
    }),
    secret: createSecretKey(Buffer.alloc(32, 1)),
    owner: () => owner,
    running,
    now: () => at,
    counted: (outcome) => seen.counted.push(outcome),
    failed: (what, code) => seen.failed.push(`${what} ${code}`),
    ...(graceMs === undefined ? {} : { graceMs }),
  });
  const read = ({ body = 'body', key = 'k', account = 'acct_a', zdr = false, api, version }: Asked) =>
    idempotency.read(`${scene} ${key}`, account, {
      route: api === undefined ? chatRoute : { ...chatRoute, api: api as typeof chatRoute.api },
      zdr,
      headers: version === undefined ? {} : { 'anthropic-version': version },
      blocks: body.split('|').map((block) => Buffer.from(block)),
    });
  /** Enters, generates if it is the first, and reads, as `http` does. */
  const entered = (request: KeyedRequest, asked: Asked) => {
    const { account = 'acct_a', zdr = false, says = ['one ', 'two'], ending = 'finished', gate } = asked;
    const id = uuid();
    const order = {
      id,
      publicId: `req_${seen.generated}`,
      account: { id: account },
      key: { id: 'key_000000000000' },
      model: { id: 'demo' },
      request: { retain: !zdr },
    } as unknown as Order;
    const generate: Generate = async ({ recording, keep }) => {
      seen.generated++;
      const last = says.at(-1)!;
      for (const text of says.slice(0, -1)) await recording.write(text);
      await gate;
      if (ending === 'finished' || ending === 'credit') await keep(last);
      await store.ledger.settle(
        usage(account, 7n, {
          requestId: id,
          ending,
          modelId: 'served',
          ...(ending === 'failed' ? { costMicrocents: 0n } : {}),
        }),
      );
      if (ending === 'failed' || ending === 'client_left') throw new ApiError('backend_http_error', 'broken');
      return last;
    };
    const { answer, isFirst } = idempotency.enter(order, request);
    let text = '';
    const reading = answer.recording
      .follow(asked.signal ?? new AbortController().signal, (more) => {
        text += more;
        return true;
      })
      .then((last) => text + last);
    const producing = isFirst ? idempotency.produce(answer, order, request, order.publicId, generate) : undefined;
    return { answer, isFirst, reading, producing, publicId: order.publicId };
  };
  const ask = async (asked: Asked = {}) => {
    const { answer, reading, producing } = entered(await read(asked), asked);
    await Promise.allSettled([reading, producing]);
    return { text: await reading, origin: answer.origin, servedBy: answer.servedBy };
  };
  return { idempotency, running, seen, read, entered, ask, later: (ms: number) => void (at += ms) };
}

const codeOf =
  (code: string, more: Partial<ApiError> = {}) =>
  (error: unknown) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual({ ...error }, { ...error, code, ...more });
    return true;
  };

test('a key has 1 to 255 visible ASCII characters', () => {
  for (const key of ['a', '!~', 'x'.repeat(255)]) assert.equal(idempotencyKeyOf({ 'idempotency-key': key }), key);
  assert.equal(idempotencyKeyOf({}), undefined);
  for (const key of ['', ' ', 'a b', 'é', '\x7f', 'x'.repeat(256), ['a', 'b'] as unknown as string])
    assert.throws(() => idempotencyKeyOf({ 'idempotency-key': key }), codeOf('schema_validation_failed'));
});

/** What a later request with the key of an earlier one gets. */
const later: readonly (readonly [
  string,
  Asked,
  Asked,
  'replayed' | 'generated' | 'schema_validation_failed' | 'http_409',
])[] = [
  ['the same', {}, {}, 'replayed'],
  ['of an answer that ended with the credit', { ending: 'credit' }, {}, 'replayed'],
  ['in other pieces', { body: 'bo|dy' }, { body: 'b|ody' }, 'replayed'],
  ['another body', {}, { body: 'other' }, 'schema_validation_failed'],
  ['another endpoint', {}, { api: 'messages' }, 'schema_validation_failed'],
  ['another version', {}, { version: '2023-06-01' }, 'schema_validation_failed'],
  ['under zero data retention', {}, { zdr: true }, 'schema_validation_failed'],
  ['both under zero data retention', { zdr: true }, { zdr: true }, 'http_409'],
  ['the longest answer that is kept', { says: ['x'.repeat(answerCharactersMax - 1), 'y'] }, {}, 'replayed'],
  ['one that is longer', { says: ['x'.repeat(answerCharactersMax - 1), 'yz'] }, {}, 'http_409'],
  ['of another account', {}, { account: 'acct_b' }, 'generated'],
  ['another key', {}, { key: 'other' }, 'generated'],
  ['of one that failed', { ending: 'failed' }, {}, 'generated'],
  ['of one that its client left', { ending: 'client_left' }, {}, 'generated'],
];

test('a later request with a key: its answer again, an error, or its own answer', async (t) => {
  for (const [name, first, second, outcome] of later)
    await t.test(`${name}: ${outcome}`, async () => {
      const { ask, seen, running } = open();
      const fails = first.ending === 'failed' || first.ending === 'client_left';
      const whole = (first.says ?? ['one ', 'two']).join('');
      if (fails) await assert.rejects(ask(first), codeOf('backend_http_error'));
      else
        assert.deepEqual(await ask(first), {
          text: whole,
          origin: { publicId: 'req_0', isEarlier: false },
          servedBy: undefined,
        });
      if (outcome === 'replayed')
        assert.deepEqual(await ask(second), {
          text: whole,
          origin: { publicId: 'req_0', isEarlier: true },
          servedBy: 'served',
        });
      else if (outcome === 'generated')
        assert.deepEqual((await ask(second)).origin, { publicId: 'req_1', isEarlier: false });
      else {
        const more =
          outcome === 'http_409'
            ? { extra: { first_request_id: 'req_0' }, headers: { 'x-should-retry': 'false' } }
            : {};
        await assert.rejects(ask(second), codeOf(outcome, { param: 'Idempotency-Key', ...more }));
      }
      const isOwn = outcome === 'generated';
      assert.deepEqual(seen.counted, ['generated', isOwn || outcome === 'replayed' ? outcome : 'refused']);
      assert.deepEqual([seen.generated, seen.failed, running.count], [isOwn ? 2 : 1, [], 0]);
      // Nothing is left that a stop would wait for.
      await running.drain(0, 0);
    });
});

test('a key is free after 24 hours, and not before', async () => {
  const { ask, later, seen } = open();
  await ask();
  later(keptMs - 1);
  await ask({ body: 'body' });
  later(1);
  await ask({ body: 'another' });
  assert.deepEqual(seen.counted, ['generated', 'replayed', 'generated']);
});

test('twins in flight read one generation, as many as there may be', async () => {
  const { read, entered, seen } = open();
  const { promise: gate, resolve } = withResolvers();
  const request = await read({});
  const first = entered(request, { gate });
  await until(() => seen.generated === 1);
  const twins = Array.from({ length: twinsMax - 1 }, () => entered(request, {}));
  assert.throws(() => entered(request, {}), codeOf('backend_at_capacity', { retryAfterSeconds: 1 }));
  const other = await read({ body: 'other' });
  assert.throws(() => entered(other, {}), codeOf('schema_validation_failed'));
  assert.deepEqual(new Set(twins.map(({ isFirst }) => isFirst)), new Set([false]));
  resolve();
  for (const { reading } of [first, ...twins]) assert.equal(await reading, 'one two');
  assert.equal(seen.generated, 1);
  assert.equal(seen.counted.filter((outcome) => outcome === 'joined').length, twinsMax - 1);
  assert.equal(seen.counted.filter((outcome) => outcome === 'refused').length, 2);
});

test('when its last client is gone, a generation ends: soon, if the connection was lost and nobody comes back, else at once', async () => {
  for (const [reason, graceMs, returns, cancelled] of [
    ['client-left', 1, false, 'client-left'],
    ['reader-stalled', 1, false, 'client-left'],
    ['revoked', 60_000, false, 'revoked'],
    ['drain', 60_000, false, 'drain'],
    ['client-left', 60_000, false, undefined],
    ['client-left', 60_000, true, undefined],
    ['client-left', 100, true, undefined],
  ] as const) {
    const { read, entered, seen } = open(undefined, { graceMs });
    const { promise: gate, resolve } = withResolvers();
    const leaving = new AbortController();
    const request = await read({});
    const first = entered(request, { gate, signal: leaving.signal });
    await until(() => seen.generated === 1);
    leaving.abort(reason);
    await assert.rejects(first.reading);
    const back = returns ? entered(request, {}) : undefined;
    if (cancelled !== undefined) await until(() => first.answer.generation.cancelled !== undefined);
    else if (graceMs < 60_000) await new Promise((after) => setTimeout(after, 2 * graceMs));
    assert.equal(first.answer.generation.cancelled, cancelled, reason);
    resolve();
    await first.producing;
    if (back !== undefined) assert.equal(await back.reading, 'one two');
  }
});

test('a store that fails: nothing is generated without a claim; an answer that is not kept is given once', async () => {
  const broken = () => Promise.reject(new StoreError('busy', 'x'));
  const unclaimed = open((store) => ({ ...store, claimRequest: broken }));
  await assert.rejects(unclaimed.ask(), codeOf('internal_error', { retryAfterSeconds: 1 }));
  assert.equal(unclaimed.seen.generated, 0);

  const unkept = open((store) => ({ ...store, keepAnswer: broken }));
  assert.equal((await unkept.ask()).text, 'one two');
  await assert.rejects(unkept.ask(), codeOf('http_409'));
  assert.deepEqual(unkept.seen.failed, ['keep busy']);

  const taken = open((store) => ({ ...store, keepAnswer: () => Promise.resolve(false) }));
  await assert.rejects(taken.ask(), codeOf('internal_error', { retryAfterSeconds: 1 }));
  assert.deepEqual(taken.seen.failed, []);

  const unleft = open((store) => ({ ...store, leaveRequest: broken }));
  await assert.rejects(unleft.ask({ ending: 'failed' }));
  await until(() => unleft.seen.failed.length > 0);
  assert.deepEqual(unleft.seen.failed, ['leave busy']);
  // The ledger says that it was not charged.
  assert.equal((await unleft.ask()).text, 'one two');

  const odd = open((store) => ({ ...store, keepAnswer: () => Promise.reject(new Error('x')) }));
  await odd.ask();
  assert.deepEqual(odd.seen.failed, ['keep unexpected']);
});

test('a request that another process runs is waited for, and its answer is read, or its end', async () => {
  for (const ends of ['free', 'cancelled'] as const) {
    let looks = 0;
    const { ask, seen, read, entered } = open((store) => ({
      ...store,
      claimRequest: async (claim) =>
        looks++ > 1 && ends === 'free'
          ? await store.claimRequest(claim)
          : { outcome: 'running', publicId: 'req_there' },
    }));
    if (ends === 'cancelled') {
      const { answer, reading, producing } = entered(await read({}), {});
      await until(() => answer.origin !== undefined);
      assert.deepEqual(answer.origin, { publicId: 'req_there', isEarlier: true });
      answer.generation.cancel('deadline');
      await producing;
      await assert.rejects(reading, codeOf('backend_timeout'));
    } else {
      assert.deepEqual((await ask()).origin, { publicId: 'req_0', isEarlier: false });
      assert.equal(looks, 3);
    }
    assert.equal(seen.generated, ends === 'free' ? 1 : 0);
  }
});

/** Waits without a timer: the store answers from a thread of its own. */
async function turnsUntil(condition: () => boolean): Promise<void> {
  const begun = performance.now();
  while (!condition()) {
    assert.ok(performance.now() - begun < 10_000 * slowness, condition.toString());
    await nextTurn();
  }
}

/** The timers are the test's. */
function onTimers(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  // The imports by name of `node:timers/promises`, too.
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.timers.reset();
    syncBuiltinESMExports();
  });
  return async (ms: number): Promise<void> => {
    t.mock.timers.tick(ms);
    for (let turns = 0; turns < 10; turns++) await nextTurn();
  };
}

const never = (): Promise<never> => new Promise(() => {});

test('another process is asked after 50 ms, then after twice as long each time, up to half a second', async (t) => {
  const passes = onTimers(t);
  let looks = 0;
  const { read, entered, seen } = open((store) => ({
    ...store,
    claimRequest: () => {
      looks++;
      return Promise.resolve({ outcome: 'running', publicId: 'req_there' });
    },
  }));
  const { answer, reading, producing } = entered(await read({}), {});
  await passes(0);
  assert.equal(looks, 1);
  for (const waitMs of [50, 100, 200, 400, 500, 500]) {
    const before: number = looks;
    await passes(waitMs - 1);
    assert.equal(looks, before, `before ${waitMs}`);
    await passes(1);
    assert.equal(looks, before + 1, `after ${waitMs}`);
  }
  answer.generation.cancel('deadline');
  await producing;
  await assert.rejects(reading, codeOf('backend_timeout'));
  assert.deepEqual(seen.counted, []);
});

test('a store that does not answer has five seconds for a claim, and two for an answer', async (t) => {
  const passes = onTimers(t);
  const unclaimed = open((store) => ({ ...store, claimRequest: never }));
  const claiming = unclaimed.entered(await unclaimed.read({}), {});
  const refusals: unknown[] = [];
  claiming.reading.catch((error: unknown) => refusals.push(error));
  await passes(4_999);
  assert.deepEqual(refusals, []);
  await passes(1);
  const [refused] = refusals as readonly Error[];
  codeOf('internal_error', { retryAfterSeconds: 1 })(refused);
  assert.match(String(refused?.cause), /no answer within 5000 ms/);
  assert.equal(unclaimed.seen.generated, 0);

  let isKeeping = false;
  const unkept = open((store) => ({
    ...store,
    keepAnswer: () => {
      isKeeping = true;
      return never();
    },
  }));
  const keeping = unkept.ask();
  await turnsUntil(() => isKeeping);
  await passes(1_999);
  assert.deepEqual(unkept.seen.failed, []);
  await passes(1);
  assert.deepEqual(unkept.seen.failed, ['keep failed']);
  assert.equal((await keeping).text, 'one two');
});

test('a lost connection has ten seconds to come back', async (t) => {
  const passes = onTimers(t);
  for (const afterMs of [9_999, 10_000]) {
    const { read, entered, seen } = open(undefined, {});
    const { promise: gate, resolve } = withResolvers();
    const leaving = new AbortController();
    const first = entered(await read({}), { gate, signal: leaving.signal });
    await turnsUntil(() => seen.generated === 1);
    leaving.abort('client-left');
    await assert.rejects(first.reading);
    await passes(afterMs);
    assert.equal(first.answer.generation.cancelled, afterMs < 10_000 ? undefined : 'client-left');
    resolve();
    await first.producing;
  }
});

test('answers in progress take at most an eighth of the heap', () => {
  const most = 134_217_728;
  assert.deepEqual([8 * most + 80, 8 * most, 8 * most - 1, 80, 0].map(underWayCharactersMax), [
    most,
    most,
    most - 1,
    10,
    0,
  ]);
});

test('what is kept is bounded: an account that has grown is tidied at once, and a failure of that is made good', async () => {
  const tidied: Parameters<Store['tidyRequests']>[0][] = [];
  let isBroken = true;
  const { ask, idempotency, seen, later } = open((store) => ({
    ...store,
    keepAnswer: () => Promise.resolve(true),
    tidyRequests: (request) => {
      tidied.push(request);
      return isBroken ? Promise.reject(new StoreError('busy', 'x')) : Promise.resolve(0);
    },
  }));
  const long = 'x'.repeat(answerCharactersMax - 1);
  const grow = (key: string) => ask({ key, says: [long, 'y'] });
  // Half of what an account may keep is eight answers, and what each row takes.
  for (let count = 1; count < 8; count++) await grow(`k${count}`);
  assert.equal(tidied.length, 0);
  const before = Date.now();
  await grow('k8');
  assert.equal(tidied.length, 1);
  assert.deepEqual(tidied[0]!.accountIds, ['acct_a']);
  assert.deepEqual([tidied[0]!.accountBytesMax, tidied[0]!.bytesMax], [accountBytesMax, bytesMax]);
  assert.ok(Math.abs(tidied[0]!.expiredAt + keptMs - before) < 60_000);
  assert.deepEqual(seen.failed, ['tidy busy']);
  isBroken = false;
  // What it has grown by is still known.
  await grow('k9');
  assert.equal(tidied.length, 2);
  await grow('k10');
  assert.equal(tidied.length, 2);
  later(1);
  const [one, two] = [idempotency.tidy(), idempotency.tidy()];
  assert.equal(one, two);
  await one;
  assert.deepEqual(
    tidied.map(({ accountIds }) => accountIds),
    [['acct_a'], ['acct_a'], ['acct_a']],
  );
  await idempotency.tidy();
  assert.deepEqual(tidied.at(-1)!.accountIds, []);
});

test('what an account grows by while a tidying fails is added to what it had grown by', async () => {
  const { promise: gate, resolve: fail } = withResolvers();
  let tidied = 0;
  const { ask, seen } = open((store) => ({
    ...store,
    keepAnswer: () => Promise.resolve(true),
    tidyRequests: async () => {
      tidied++;
      await gate;
      throw new StoreError('busy', 'x');
    },
  }));
  const grow = (key: string) => ask({ key, says: ['x'.repeat(answerCharactersMax - 1), 'y'] });
  for (let count = 1; count <= 10; count++) await grow(`k${count}`);
  assert.equal(tidied, 1);
  fail();
  await until(() => seen.failed.length > 0);
  await grow('k11');
  await until(() => tidied === 2);
});

function withResolvers(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve };
}

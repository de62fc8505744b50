import fc from 'fast-check';
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { describe, test, type TestContext } from 'node:test';
import { Worker, type ResourceLimits } from 'node:worker_threads';

import { ApiError } from '../../../src/platform/errors.ts';
import { RpcError, type RpcErrorCode } from '../../../src/platform/rpc/failure.ts';
import { Rpc, type RpcOptions } from '../../../src/platform/rpc/rpc.ts';
import { ProcessTransport, threadTransport } from '../../../src/platform/rpc/transport.ts';
import { StoreError, storeErrors } from '../../../src/store/store-error.ts';
import { built } from '../../support/built.ts';
import { until } from '../../support/service.ts';
import type { Answering, Asking } from './answering.ts';

const program = built('tests/platform/rpc/answering.ts');
const waitMs = 60_000;

type Remote = Answering & { readonly note: (value: unknown) => void };
interface Opened {
  readonly rpc: Rpc<Remote, Asking>;
  readonly broken: string[];
  /** Ends it now. */
  end(): Promise<unknown>;
}
type Options = Partial<RpcOptions<Asking>> & { readonly resourceLimits?: ResourceLimits };

/** A thread, whose owner closes the connection when it is gone. */
function inThread(t: TestContext, { resourceLimits, ...options }: Options = {}): Opened {
  const worker = new Worker(program, resourceLimits === undefined ? {} : { resourceLimits });
  const broken: string[] = [];
  const rpc = new Rpc<Remote, Asking>(threadTransport(worker), {
    onBroken: (reason) => void broken.push(reason),
    ...options,
  });
  worker.on('error', (error) => rpc.close('the thread has died', error));
  worker.on('exit', () => rpc.close('the thread has ended'));
  t.after(() => worker.terminate());
  return { rpc, broken, end: () => worker.terminate() };
}

function inProcess(t: TestContext, { resourceLimits: _, ...options }: Options = {}): Opened {
  const child = fork(program, { serialization: 'advanced', stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
  const broken: string[] = [];
  const rpc = new Rpc<Remote, Asking>(new ProcessTransport(child), {
    onBroken: (reason) => void broken.push(reason),
    ...options,
  });
  child.on('exit', () => rpc.close('the process has ended'));
  const end = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  t.after(end);
  return { rpc, broken, end };
}

const failsAs =
  (code: RpcErrorCode, message?: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof RpcError, String(error));
    assert.equal(error.code, code);
    if (message !== undefined) assert.match(error.message, message);
    return true;
  };

for (const [kind, open] of [
  ['a thread', inThread],
  ['a process', inProcess],
] as const) {
  describe(`a connection to ${kind}`, () => {
    test('values arrive as they were sent, and each answer at its call', async (t) => {
      const { rpc } = open(t);
      const value = fc.anything({
        withBigInt: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withTypedArray: true,
        withSparseArray: false,
        withObjectString: false,
        withNullPrototype: false,
      });
      await fc.assert(
        fc.asyncProperty(fc.array(value, { maxLength: 20 }), async (values) => {
          const answers = await Promise.all(values.map((one) => rpc.call('echo', one)));
          assert.deepStrictEqual(answers, structuredClone(values));
        }),
        { numRuns: 50 },
      );
      assert.equal(rpc.pending, 0);
    });

    test('an answer does not wait for those of earlier calls, and notes stay in the order of the calls', async (t) => {
      const { rpc } = open(t);
      const order: unknown[] = [];
      const take = (value: unknown): void => void order.push(value);
      const slow = rpc.call('later', { ms: 200, value: 'slow' }).then(take);
      await rpc.call('later', { ms: 0, value: 'quick' }).then(take);
      await slow;
      assert.deepEqual(order, ['quick', 'slow']);
      rpc.note('note', 1);
      rpc.note('note', 2);
      assert.deepEqual(await rpc.call('heard', null), [1, 2]);
      assert.ok(performance.now() - rpc.heardMs < waitMs);
    });

    test('both sides call each other', async (t) => {
      const { rpc } = open(t, { handlers: { next: (value) => value + 1 } });
      assert.deepEqual(await rpc.call('callBack', 3), [1, 2, 3]);
    });

    test('an error arrives with its code, its fields and its causes', async (t) => {
      const { rpc } = open(t);
      const failed = async (failure: Parameters<Answering['fail']>[0]): Promise<Error & Record<string, unknown>> =>
        await rpc.call('fail', failure).then(
          () => assert.fail('it did not fail'),
          (error: unknown) => error as Error & Record<string, unknown>,
        );
      const plain = await failed('plain');
      assert.equal(plain.message, 'plain');
      assert.equal((plain.cause as Error).message, 'deep');
      assert.equal(((plain.cause as Error).cause as Error).message, 'a word');
      const system = await failed('system');
      assert.deepEqual({ ...system }, { code: 'EADDRINUSE', port: 80, address: '::' });
      const api = await failed('api');
      assert.ok(api instanceof ApiError);
      assert.deepEqual([api.code, api.status, api.param, api.extra], ['unsupported_value', 400, 'a.b', { most: 3 }]);
      assert.equal((await failed('word')).message, 'only a word');
      assert.equal((await failed('circle')).message, 'round');
      await assert.rejects(rpc.call('neverHeardOf' as 'echo', 1), /nothing here answers 'neverHeardOf'/);
    });

    test('its owner decides what callers get, for errors of the other side and of the connection', async (t) => {
      const { rpc, end } = open(t, { errors: storeErrors, callsMax: 1 });
      const refused = (code: string) => (error: unknown) => error instanceof StoreError && error.code === code;
      await assert.rejects(rpc.call('fail', 'store'), (error: unknown) => {
        assert.ok(refused('full')(error));
        assert.equal(((error as Error).cause as Error).message, 'disk');
        return true;
      });
      await assert.rejects(rpc.call('fail', 'plain'), refused('failed'));
      const silent = assert.rejects(rpc.call('silence', null), refused('failed'));
      await assert.rejects(rpc.call('echo', 1), refused('busy'));
      await end();
      await silent;
    });

    test('a call that is not answered in time rejects, and its late answer is nobody else’s', async (t) => {
      const { rpc, broken } = open(t);
      assert.equal(await rpc.call('echo', 'awake', { timeoutMs: waitMs }), 'awake');
      const late = rpc.call('later', { ms: 300, value: 'late' }, { timeoutMs: 20 });
      await assert.rejects(late, failsAs('timeout', /later was not answered within 20 ms/));
      assert.equal(rpc.pending, 0);
      assert.equal(await rpc.call('later', { ms: 600, value: 'next' }), 'next');
      assert.deepEqual(broken, []);
    });

    test('an abort ends the wait with its reason, before or after it is sent', async (t) => {
      const { rpc } = open(t);
      const reason = new Error('left');
      const gone = AbortSignal.abort(reason);
      await assert.rejects(rpc.call('echo', 1, { signal: gone }), reason);
      const leaving = new AbortController();
      const waiting = rpc.call('silence', null, { signal: leaving.signal, timeoutMs: waitMs });
      leaving.abort(reason);
      await assert.rejects(waiting, reason);
      assert.equal(rpc.pending, 0);
      assert.equal(await rpc.call('count', null), 0, 'a call that was aborted before is not sent');
    });

    test('calls beyond the bound are refused, and room comes back with each outcome', async (t) => {
      const { rpc } = open(t, { callsMax: 2 });
      const first = rpc.call('later', { ms: 50, value: 1 });
      const second = rpc.call('fail', 'plain');
      await assert.rejects(rpc.call('echo', 3), failsAs('busy'));
      await assert.rejects(second, /plain/);
      assert.equal(await rpc.call('echo', 4), 4);
      assert.equal(await first, 1);
    });

    test('what cannot be cloned fails its own call, in either direction, and no other', async (t) => {
      const { rpc } = open(t);
      const outcomes = await Promise.allSettled([
        rpc.call('echo', 1),
        rpc.call('echo', () => {}),
        rpc.call('unsendable', null),
        rpc.call('echo', Symbol('a')),
        rpc.call('echo', 2),
      ]);
      assert.deepEqual(
        outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : 'rejected')),
        [1, 'rejected', 'rejected', 'rejected', 2],
      );
      await rpc.flush();
      assert.equal(rpc.pending, 0);
    });

    test('a large value arrives whole', async (t) => {
      const { rpc } = open(t);
      const large = new Uint8Array(64 * 1024 * 1024).fill(1);
      assert.equal(await rpc.call('lengthOf', large), large.length);
      assert.equal(large.length, 64 * 1024 * 1024, 'it was copied');
    });

    for (const death of ['exit', 'kill', 'throwOutside'] as const) {
      // A thread is of this process, which it must not kill.
      if (death === 'kill' && open === inThread) continue;
      test(`when it dies in the middle of a call (${death}), everything that waits for it rejects at once`, async (t) => {
        const { rpc } = open(t);
        await rpc.call('echo', 1);
        const waiting = [rpc.call('silence', null, { timeoutMs: waitMs }), rpc.call(death, null)];
        for (const call of waiting) await assert.rejects(call, failsAs('closed'));
        await assert.rejects(rpc.call('echo', 1), failsAs('closed'));
        rpc.note('note', 'to nobody');
        await rpc.flush();
        assert.equal(rpc.pending, 0);
      });
    }

    test('closing it rejects what waits, with the reason and its cause, and delivers nothing more', async (t) => {
      const notes: unknown[] = [];
      const { rpc } = open(t, { handlers: { noted: (value) => void notes.push(value) } });
      await rpc.call('echo', 1);
      const waiting = rpc.call('later', { ms: 10, value: 1 });
      const cause = new Error('why');
      rpc.close('closed for the test', cause);
      await assert.rejects(waiting, (error: unknown) => {
        assert.ok(error instanceof RpcError);
        assert.deepEqual([error.code, error.message, error.cause], ['closed', 'closed for the test', cause]);
        return true;
      });
      rpc.close('again');
      await assert.rejects(rpc.call('echo', 1), failsAs('closed', /closed for the test/));
    });

    for (const [name, message] of [
      ['no list', { a: 1 }],
      ['an unknown kind', ['gift', 1, 2]],
      ['a call without a number', ['call', 'one', 'echo', 1]],
      ['an answer to a call that was never made', ['answer', 99, 1]],
      ['a failure that is none', ['failure', 1, null]],
      ['a note that its handler refuses', ['note', 'next', 1]],
    ] as const) {
      test(`a message that breaks the rules (${name}) ends the connection, and is reported once`, async (t) => {
        const { rpc, broken } = open(t, {
          handlers: {
            next: () => {
              throw new Error('not this');
            },
          },
        });
        await rpc.call('echo', 1);
        const raw = open === inThread || name === 'no list' ? message : [message, message];
        const asked = rpc.call('babble', raw);
        await asked.catch(() => {});
        await until(() => broken.length > 0, waitMs);
        assert.equal(broken.length, 1);
        await assert.rejects(rpc.call('echo', 1), failsAs('closed'));
      });
    }

    test('with restarts in a storm, every call has exactly one outcome', async (t) => {
      let answered = 0;
      let lost = 0;
      for (let life = 0; life < 8; life++) {
        const { rpc, end } = open(t);
        const calls = Array.from({ length: 200 }, (_, index) =>
          rpc.call('echo', index).then(
            (value) => {
              assert.equal(value, index);
              answered++;
            },
            (error: unknown) => {
              assert.ok(failsAs('closed')(error));
              lost++;
            },
          ),
        );
        if (life % 2 === 0) await calls[20];
        const dying = life % 3 === 0 ? rpc.call('exit', null).catch(() => {}) : undefined;
        await Promise.all([end(), dying]);
        await Promise.all(calls);
        assert.equal(rpc.pending, 0);
      }
      assert.equal(answered + lost, 8 * 200);
      assert.ok(answered >= 4 * 21);
    });
  });
}

test('memory that is handed over to a thread, or by it, is not copied, and is counted', async (t) => {
  const { rpc } = inThread(t);
  const bytes = new Uint8Array(1000);
  assert.equal(await rpc.call('lengthOf', bytes, { transfer: [bytes.buffer] }), 1000);
  assert.equal(bytes.byteLength, 0);
  assert.deepEqual(rpc.sent, { messages: 1, transferredBytes: 1000 });
  assert.deepEqual(await rpc.call('handOver', 3), new Uint8Array([7, 7, 7]));
});

test('a thread that runs out of memory takes its calls with it, not the process', async (t) => {
  const { rpc } = inThread(t, { resourceLimits: { maxOldGenerationSizeMb: 16 } });
  await assert.rejects(rpc.call('fillMemory', null), (error: unknown) => {
    assert.equal(((error as Error).cause as { code?: unknown }).code, 'ERR_WORKER_OUT_OF_MEMORY');
    return failsAs('closed')(error);
  });
});

test('messages of one turn are written to a process together, and flush waits for the write', async (t) => {
  const { rpc } = inProcess(t);
  await rpc.call('echo', 'awake');
  const before = rpc.sent.messages;
  for (let index = 0; index < 100; index++) rpc.note('note', index);
  await rpc.flush();
  assert.equal(rpc.sent.messages, before + 1);
  assert.deepEqual(
    await rpc.call('heard', null),
    Array.from({ length: 100 }, (_, index) => index),
  );
});

test('a process that does not read is given up before what waits for it fills the memory', async (t) => {
  const { rpc, broken } = inProcess(t);
  await rpc.call('echo', 'awake');
  const blocked = rpc.call('block', 20_000).catch((error: unknown) => error);
  await rpc.flush();
  // The first write fills the pipe, so that all others wait.
  rpc.note('note', new Uint8Array(4 * 1024 * 1024));
  await new Promise((resolve) => setImmediate(resolve));
  for (let index = 0; index <= 400_000; index++) rpc.note('note', index);
  assert.deepEqual(broken, ['it does not read']);
  assert.ok(failsAs('closed')(await blocked));
});

/** What a body takes of the memory, and that it comes back whatever becomes of it (reliability §5, "memory"). */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import type { TestContext } from 'node:test';

import fc from 'fast-check';

import { ApiError } from '../../../src/platform/errors.ts';
import {
  BodyBudget,
  copiesWhileHeld,
  copiesWhileParsed,
  largestBody,
  memoryForBodies,
} from '../../../src/inference/http/body-budget.ts';
import { largeBodyBytes, readBody } from '../../../src/inference/http/body.ts';
import type { Body } from '../../../src/inference/http/body.ts';
import { until } from '../../support/service.ts';
import { RawConnection, bodyChunk } from './raw.ts';

const bytesMax = 3_000_000;
const waitMs = 60_000;

interface Reading {
  readonly budget: BodyBudget;
  /** What `readBody` came to, of each request in turn. */
  readonly outcomes: (Body | { readonly error: unknown })[];
  readonly aborts: AbortController[];
  readonly connection: RawConnection;
}

/** A real server that does nothing but read bodies, and a connection to it. */
async function reading(
  t: TestContext,
  { budgetBytes = 60_000_000, admitLarge = (): void | Promise<void> => {} } = {},
): Promise<Reading> {
  const budget = new BodyBudget(budgetBytes);
  const outcomes: Reading['outcomes'] = [];
  const aborts: AbortController[] = [];
  const server = createServer((request, response) => {
    const abort = new AbortController();
    aborts.push(abort);
    const share = budget.share('a');
    readBody(request, bytesMax, share, abort.signal, admitLarge)
      .then(
        (body) => outcomes.push(body),
        (error: unknown) => {
          share.end();
          outcomes.push({ error });
        },
      )
      .finally(() => response.end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const connection = await RawConnection.open(`http://127.0.0.1:${port}`);
  t.after(() => {
    connection.close();
    server.close();
    server.closeAllConnections();
  });
  return { budget, outcomes, aborts, connection };
}

const declared = (length: number): string => `POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${length}\r\n\r\n`;
const chunked = 'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n';

async function outcomeOf({ outcomes }: Reading): Promise<Reading['outcomes'][number]> {
  await until(() => outcomes.length > 0, waitMs);
  return outcomes[0]!;
}

describe('a body that is not read to its end', () => {
  const failures: readonly (readonly [string, string, (reading: Reading) => unknown])[] = [
    [
      'too large, declared small and chunked',
      'request_body_too_large',
      ({ connection }) => {
        connection.write(chunked);
        for (let i = 0; i < 40; i++) connection.write(bodyChunk(Buffer.alloc(100_000)));
      },
    ],
    [
      'its client leaves',
      'http_408',
      async ({ connection, budget }) => {
        connection.write(declared(2_000_000));
        connection.write(Buffer.alloc(1_500_000));
        await until(() => budget.bytes >= 1_500_000 * copiesWhileParsed, waitMs);
        connection.close();
      },
    ],
    [
      'its client resets the connection',
      'http_408',
      async ({ connection, budget }) => {
        connection.write(declared(2_000_000));
        connection.write(Buffer.alloc(500_000));
        await until(() => budget.bytes >= 500_000 * copiesWhileParsed, waitMs);
        connection.socket.resetAndDestroy();
      },
    ],
    [
      'a broken chunk',
      'http_408',
      async ({ connection, budget }) => {
        connection.write(chunked);
        connection.write(bodyChunk(Buffer.alloc(10_000)));
        await until(() => budget.bytes >= 10_000 * copiesWhileParsed, waitMs);
        connection.write('zz\r\n');
      },
    ],
    [
      'it is cancelled',
      'revoked',
      async ({ connection, budget, aborts }) => {
        connection.write(declared(2_000_000));
        connection.write(Buffer.alloc(500_000));
        await until(() => budget.bytes >= 500_000 * copiesWhileParsed, waitMs);
        aborts[0]?.abort('revoked');
      },
    ],
  ];
  for (const [what, expected, act] of failures) {
    test(what, async (t) => {
      const it = await reading(t);
      await act(it);
      const outcome = await outcomeOf(it);
      assert.ok('error' in outcome);
      assert.equal(outcome.error instanceof ApiError ? outcome.error.code : outcome.error, expected);
      assert.equal(it.budget.bytes, 0);
    });
  }

  test('there is no room for it', async (t) => {
    const it = await reading(t, { budgetBytes: 4_200_000 });
    it.connection.write(declared(2_000_000));
    it.connection.write(Buffer.alloc(2_000_000));
    const outcome = await outcomeOf(it);
    assert.ok('error' in outcome && outcome.error instanceof ApiError);
    assert.equal(outcome.error.code, 'backend_at_capacity');
    assert.equal(it.budget.bytes, 0);
  });

  test('it turns out to be large when large ones are refused', async (t) => {
    const refusal = new ApiError('backend_at_capacity', 'No large ones.');
    const it = await reading(t, {
      admitLarge: () => {
        throw refusal;
      },
    });
    it.connection.write(chunked);
    for (let i = 0; i < 20; i++) it.connection.write(bodyChunk(Buffer.alloc(100_000)));
    const outcome = await outcomeOf(it);
    assert.equal('error' in outcome && outcome.error, refusal);
    assert.equal(it.budget.bytes, 0);
  });
});

test('a body that was read holds its memory until it is released, and a small one is never called large', async (t) => {
  const it = await reading(t, {
    admitLarge: () => {
      throw new Error('asked');
    },
  });
  const sent = Buffer.from(Array.from({ length: largeBodyBytes }, (_, index) => index % 251));
  it.connection.write(declared(sent.length));
  it.connection.write(sent);
  const body = await outcomeOf(it);
  assert.ok('blocks' in body);
  assert.equal(it.budget.bytes, sent.length * copiesWhileParsed);
  assert.ok(Buffer.concat(body.blocks).equals(sent));
});

test('a body that turns out to be large waits until it is known whether it may go on', async (t) => {
  let admit = (): void => {};
  const it = await reading(t, { admitLarge: () => new Promise<void>((resolve) => (admit = resolve)) });
  it.connection.write(chunked);
  for (let i = 0; i < 20; i++) it.connection.write(bodyChunk(Buffer.alloc(100_000)));
  it.connection.write('0\r\n\r\n');
  await until(() => it.budget.bytes > largeBodyBytes * copiesWhileParsed, waitMs);
  const taken = it.budget.bytes;
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(it.budget.bytes, taken);
  admit();
  const body = await outcomeOf(it);
  assert.equal('blocks' in body && body.length, 2_000_000);
});

test('what is expected is taken once, and what comes beyond it as it comes', () => {
  const budget = new BodyBudget(1_000_000);
  const share = budget.share('a');
  share.expect(1_000);
  assert.equal(budget.bytes, 1_000 * copiesWhileParsed);
  share.arrive(600);
  share.arrive(400);
  assert.equal(budget.bytes, 1_000 * copiesWhileParsed);
  share.arrive(10);
  assert.equal(budget.bytes, 1_010 * copiesWhileParsed);
  share.parsed(0);
  share.take(5);
  assert.equal(budget.bytes, 1_010 * copiesWhileHeld + 5);
  share.end();
  assert.equal(budget.bytes, 0);
});

test('whatever accounts take and give back, room is left to an account that has none', () => {
  const accounts = 3;
  const bytesMax = 1_000_000;
  const step = fc.record({
    account: fc.integer({ min: 0, max: accounts - 1 }),
    bytes: fc.integer({ min: 1, max: bytesMax }),
    gives: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const budget = new BodyBudget(bytesMax);
      const taken = new Map<string, number[]>();
      for (const { account, bytes, gives } of steps) {
        const name = String(account);
        const own = taken.get(name) ?? [];
        taken.set(name, own);
        if (gives) {
          const last = own.pop();
          if (last !== undefined) budget.give(last, name);
          continue;
        }
        try {
          budget.take(bytes, name);
          own.push(bytes);
        } catch (error) {
          assert.ok(error instanceof ApiError && error.code === 'backend_at_capacity');
        }
      }
      const sums = [...taken.values()].map((own) => own.reduce((sum, one) => sum + one, 0));
      assert.equal(
        budget.bytes,
        sums.reduce((sum, one) => sum + one, 0),
      );
      // Each leaves an eighth of what those before it left, whatever the order.
      assert.ok(bytesMax - budget.bytes >= Math.floor(bytesMax / 8 ** accounts), `${budget.bytes}`);
    }),
  );
});

test('the largest body is the one for which there is room in what was made for it', () => {
  for (const bytes of [1_024, 52_428_800, 268_435_456, 12_345_677]) {
    const memory = memoryForBodies(bytes);
    assert.ok(largestBody(memory) >= bytes && largestBody(memory) <= bytes + 1);
    const budget = new BodyBudget(memory);
    budget.take(Math.floor(memory / 16), 'b');
    const share = budget.share('a');
    share.expect(bytes);
    share.parsed(2);
    assert.throws(() => new BodyBudget(memory).share('a').expect(bytes * 1.1));
  }
});

test('a body in pieces of one byte costs what its bytes cost', async (t) => {
  const it = await reading(t);
  const sent = Buffer.from(Array.from({ length: 200_000 }, (_, index) => index % 251));
  it.connection.write(chunked);
  const pieces = Buffer.concat([...sent].map((byte) => bodyChunk(Uint8Array.of(byte))));
  for (let at = 0; at < pieces.length; at += 65_536) {
    it.connection.write(pieces.subarray(at, at + 65_536));
    await it.connection.drained();
  }
  it.connection.write('0\r\n\r\n');
  const body = await outcomeOf(it);
  assert.ok('blocks' in body);
  assert.ok(Buffer.concat(body.blocks).equals(sent));
  assert.ok(body.blocks.length <= 3, `${body.blocks.length} blocks`);
  assert.ok(body.blocks.reduce((sum, block) => sum + block.buffer.byteLength, 0) <= 2 * sent.length + 65_536);
});

test('the blocks of a large body are alone in their memory, so that they can be handed over', async (t) => {
  const it = await reading(t);
  const sent = Buffer.from(Array.from({ length: 2_500_000 }, (_, index) => index % 251));
  it.connection.write(declared(sent.length));
  it.connection.write(sent);
  const body = await outcomeOf(it);
  assert.ok('blocks' in body);
  assert.ok(Buffer.concat(body.blocks).equals(sent));
  const copies = structuredClone(body.blocks, { transfer: body.blocks.map((block) => block.buffer) });
  assert.ok(Buffer.concat(copies).equals(sent));
  assert.ok(body.blocks.every((block) => block.length === 0));
});

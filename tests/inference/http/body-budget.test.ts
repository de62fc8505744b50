/** Whatever becomes of a body, what it took of the budget comes back (reliability §5, "memory"). */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import type { TestContext } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { BodyBudget, largeBodyBytes, readBody } from '../../../src/inference/http/body.ts';
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
async function reading(t: TestContext, { budgetBytes = 10_000_000, admitLarge = () => {} } = {}): Promise<Reading> {
  const budget = new BodyBudget(budgetBytes);
  const outcomes: Reading['outcomes'] = [];
  const aborts: AbortController[] = [];
  const server = createServer((request, response) => {
    const abort = new AbortController();
    aborts.push(abort);
    readBody(request, bytesMax, budget, abort.signal, admitLarge)
      .then(
        (body) => outcomes.push(body),
        (error: unknown) => outcomes.push({ error }),
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
        await until(() => budget.bytes >= 1_500_000, waitMs);
        connection.close();
      },
    ],
    [
      'its client resets the connection',
      'http_408',
      async ({ connection, budget }) => {
        connection.write(declared(2_000_000));
        connection.write(Buffer.alloc(500_000));
        await until(() => budget.bytes >= 500_000, waitMs);
        connection.socket.resetAndDestroy();
      },
    ],
    [
      'a broken chunk',
      'http_408',
      async ({ connection, budget }) => {
        connection.write(chunked);
        connection.write(bodyChunk(Buffer.alloc(10_000)));
        await until(() => budget.bytes >= 10_000, waitMs);
        connection.write('zz\r\n');
      },
    ],
    [
      'it is cancelled',
      'revoked',
      async ({ connection, budget, aborts }) => {
        connection.write(declared(2_000_000));
        connection.write(Buffer.alloc(500_000));
        await until(() => budget.bytes >= 500_000, waitMs);
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
    const it = await reading(t, { budgetBytes: 700_000 });
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

test('a body that was read holds its bytes until they are released, and a small one is never called large', async (t) => {
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
  assert.equal(it.budget.bytes, sent.length);
  assert.ok(Buffer.concat(body.blocks).equals(sent));
  it.budget.give(body.length);
  assert.equal(it.budget.bytes, 0);
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

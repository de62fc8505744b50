/** The ledger against thirty lines of plain TypeScript: any mix of batches and restarts ends with the same balances. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Ending } from '../../src/store/ledger.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { closeConnection, openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { nameOf, type LedgerOperation } from '../../src/store/sqlite/ledger-batch.ts';
import { LedgerWriter } from '../../src/store/sqlite/ledger-writer.ts';
import { owner } from '../../src/store/sqlite/lease-table.ts';
import { usageValues } from '../../src/store/reports/usage-columns.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { chargeback, grant, openRequest, temporaryFolder, usage, uuid } from './fixture.ts';

const customers = ['acct_a', 'acct_b', 'acct_c'];
const chargedEndings: readonly Ending[] = ['finished', 'credit', 'client_left', 'reader_stalled', 'revoked'];
const freeEndings: readonly Ending[] = ['failed', 'deadline', 'drained', 'lost'];

/** The process that owns the file, and two that lease from it. */
const replicaIds = [uuid(), uuid()] as const;
const clients = [owner, ...replicaIds.map(nameOf)];

class Model {
  readonly balance = new Map(customers.map((id) => [id, 0n]));
  readonly settled = new Map<number, 'ended' | 'crashed'>();
  readonly open = new Map<number, bigint>();
  readonly keys = new Map<string, string>();
  /** What each process may still spend of an account that it has asked for, by the names of both. */
  readonly leased = new Map<string, bigint>();

  leasedBy = (client: string, accountId: string): bigint => this.leased.get(`${client} ${accountId}`) ?? 0n;

  leasedOf = (accountId: string): bigint => clients.reduce((sum, client) => sum + this.leasedBy(client, accountId), 0n);

  free = (accountId: string): bigint => this.balance.get(accountId)! - this.leasedOf(accountId);

  settle(client: string, request: number, accountId: string, cost: bigint): 'billed' | 'lost' | 'failed' {
    const earlier = this.settled.get(request);
    const isHeld = client === owner || cost === 0n || this.leasedBy(client, accountId) >= cost;
    if (!isHeld) return earlier === 'ended' ? 'billed' : 'lost';
    if (earlier === undefined) {
      const balance = this.balance.get(accountId);
      if (balance === undefined || balance < cost) return 'failed';
      this.balance.set(accountId, balance - cost);
      this.#add(client, accountId, -cost);
      this.settled.set(request, 'ended');
    }
    this.open.delete(request);
    return 'billed';
  }

  transfer(key: string, accountId: string, amount: bigint): boolean | undefined {
    if (this.keys.has(key)) return this.keys.get(key) === `${accountId} ${amount}` ? false : undefined;
    const balance = this.balance.get(accountId)!;
    if (amount < 0n && this.free(accountId) + amount < 0n) return undefined;
    if (balance + amount < 0n) return undefined;
    this.balance.set(accountId, balance + amount);
    this.keys.set(key, `${accountId} ${amount}`);
    return true;
  }

  lease(client: string, accountId: string, missing: bigint): bigint {
    const free = this.free(accountId);
    const leased = client === owner ? free : free > 0n && free >= missing ? missing : 0n;
    const name = `${client} ${accountId}`;
    if (client === owner || leased > 0n) this.leased.set(name, (this.leased.get(name) ?? 0n) + leased);
    return leased;
  }

  /** False: it has not leased as much. */
  returned(client: string, accountId: string, microcents: bigint): boolean {
    if (client !== owner && this.leasedBy(client, accountId) < microcents) return false;
    this.#add(client, accountId, -microcents);
    if (this.leasedBy(client, accountId) === 0n) this.leased.delete(`${client} ${accountId}`);
    return true;
  }

  end(client: string): void {
    for (const accountId of customers) this.leased.delete(`${client} ${accountId}`);
  }

  restart(): void {
    for (const request of this.open.keys()) this.settled.set(request, 'crashed');
    this.open.clear();
    this.leased.clear();
  }

  /** What the owner of the file has not leased comes out of the balance alone. */
  #add(client: string, accountId: string, microcents: bigint): void {
    const name = `${client} ${accountId}`;
    const leased = this.leased.get(name);
    if (leased !== undefined) this.leased.set(name, leased + microcents);
  }
}

const account = fc.constantFrom(...customers);
const client = fc.constantFrom(...clients);
const request = fc.integer({ min: 0, max: 30 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      client,
      request,
      accountId: fc.oneof({ weight: 9, arbitrary: account }, { weight: 1, arbitrary: fc.constant('acct_none') }),
      tokens: fc.tuple(fc.nat(400), fc.nat(400), fc.nat(400)),
      hold: fc.nat(3000),
      ending: fc.constantFrom(...chargedEndings, ...freeEndings),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('open' as const), request, accountId: account, hold: fc.nat(99) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('transfer' as const),
      key: fc.constantFrom(...'abcdefghijklmnop'),
      accountId: account,
      amount: fc.oneof(
        fc.bigInt({ min: 1n, max: 5000n }),
        fc.bigInt({ min: -2000n, max: -1n }),
        fc.bigInt({ min: 2n ** 53n, max: 2n ** 58n }),
      ),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('lease' as const),
      client,
      accountId: account,
      amount: fc.bigInt({ min: 1n, max: 3000n }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('return' as const),
      client,
      accountId: account,
      amount: fc.bigInt({ min: 0n, max: 500n }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('end' as const), replica: fc.nat(1) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;
const plan = fc.array(
  fc.oneof({ weight: 8, arbitrary: fc.array(step, { minLength: 1, maxLength: 25 }) }, fc.constant('restart' as const)),
  {
    minLength: 1,
    maxLength: 10,
  },
);

test('the ledger agrees with the model after every batch and every restart', async (t) => {
  const folder = temporaryFolder(t);
  const empty = await emptyDatabase(join(folder, 'empty.db'));
  let run = 0;
  await fc.assert(
    fc.asyncProperty(plan, async (batches) => {
      const file = join(folder, `${run++}.db`);
      copyFileSync(empty, file);
      await compare(file, batches);
    }),
    { numRuns: 150, includeErrorInReport: true },
  );
});

async function compare(file: string, batches: readonly (readonly Step[] | 'restart')[]): Promise<void> {
  const ids = Array.from({ length: 31 }, () => uuid());
  const model = new Model();
  let connection = openConnection(file);
  let writer = new LedgerWriter(connection);
  for (const batch of batches) {
    if (batch === 'restart') {
      connection.close(); // what is committed is in the file; nothing else is written on the way down
      connection = openConnection(file);
      writer = new LedgerWriter(connection);
      assert.equal(writer.recover(Date.now()), model.open.size);
      model.restart();
    } else {
      write(writer, model, batch, ids);
    }
    const db = kyselyOn(connection);
    assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
    const rows = await db.selectFrom('account').select(['id', 'available']).where('kind', '=', 0n).execute();
    assert.deepEqual(new Map(rows.map((row) => [row.id, row.available])), model.balance);
    const opens = await db.selectFrom('open_request').select('request_id').execute();
    assert.equal(opens.length, model.open.size);
    const used = await db.selectFrom('usage').select('request_id').execute();
    assert.equal(used.length, model.settled.size);
  }
  connection.close();
}

/** Writes the steps as one batch, in the order in which a batch is worked off, and compares each outcome. */
function write(writer: LedgerWriter, model: Model, steps: readonly Step[], ids: readonly Uint8Array[]): void {
  const opens = steps.filter((one) => one.do === 'open');
  const settlements = steps.filter((one) => one.do === 'settle');
  const operations = steps.filter((one) => one.do !== 'open' && one.do !== 'settle');

  for (const { request, hold } of opens) {
    if (!model.settled.has(request) && !model.open.has(request)) model.open.set(request, BigInt(hold));
  }
  const rows = settlements.map(({ request, accountId, tokens, hold, ending }) => {
    const [cached, fresh, completion] = tokens;
    const list =
      (BigInt(fresh) * 1_500_000n + BigInt(cached) * 100_001n + BigInt(completion) * 2_999_999n + 999_999n) /
      1_000_000n;
    const covered = list < BigInt(hold) ? list : BigInt(hold);
    const costMicrocents = chargedEndings.includes(ending) ? covered : 0n;
    return usage(accountId, costMicrocents, {
      requestId: ids[request]!,
      promptTokens: cached + fresh,
      cachedTokens: cached,
      completionTokens: completion,
      unchargedMicrocents: list - costMicrocents,
      holdMicrocents: BigInt(hold),
      ending,
      inputPrice: 1_500_000n,
      outputPrice: 2_999_999n,
      cacheReadPrice: 100_001n,
    });
  });
  // Whether the batch is written whole or row by row must not show: the model knows only one row after the other.
  const outcomes = settlements.map((one, index) =>
    model.settle(one.client, one.request, one.accountId, rows[index]!.costMicrocents),
  );

  const expected: unknown[] = [];
  const sent = operations.map((one): LedgerOperation => {
    switch (one.do) {
      case 'lease': {
        const { client, accountId, amount } = one;
        const leased = model.lease(client, accountId, amount);
        const isElsewhere = model.leasedOf(accountId) > model.leasedBy(client, accountId);
        expected.push({ leased, isElsewhere, isThere: true });
        const request = { balanceId: accountId, missing: amount, want: amount, step: 1n, isFirst: true };
        return { kind: 'grant', client, request };
      }
      case 'return': {
        const { client, accountId, amount } = one;
        expected.push(model.returned(client, accountId, amount) ? undefined : 'failed');
        return { kind: 'return', client, balanceId: accountId, microcents: amount };
      }
      case 'end': {
        const replicaId = replicaIds[one.replica]!;
        model.end(nameOf(replicaId));
        expected.push(0);
        return { kind: 'replica_ended', replicaId, at: Date.now() };
      }
      case 'transfer': {
        const { accountId, amount, key } = one;
        expected.push(model.transfer(key, accountId, amount) ?? 'failed');
        const transfer = amount > 0n ? grant(accountId, amount, key) : chargeback(accountId, -amount, key);
        return { kind: 'transfer', transfer };
      }
    }
  });

  const reply = writer.write({
    ids: Buffer.concat(rows.map((row) => row.requestId)),
    rows: rows.map(usageValues),
    clients: settlements.map((one) => one.client),
    opens: opens.map((one) => ({
      ...openRequest(one.accountId, BigInt(one.hold), ids[one.request]!),
      replicaId: null,
    })),
    operations: sent,
  });
  assert.equal(reply.refused, undefined);
  const failed = new Set(reply.failures.map(([index]) => index));
  const lost = new Set(reply.lost);
  assert.deepEqual(
    outcomes,
    outcomes.map((_, index) => (failed.has(index) ? 'failed' : lost.has(index) ? 'lost' : 'billed')),
  );
  assert.deepEqual(
    reply.results.map((result) => ('value' in result ? result.value : 'failed')),
    expected,
  );
}

async function emptyDatabase(file: string): Promise<string> {
  const connection = openConnection(file);
  const db = kyselyOn(connection);
  await migrate(db, 'sqlite');
  const writer = new LedgerWriter(connection);
  const accounts = customers.map((id): LedgerOperation => ({
    kind: 'create_account',
    account: { id, name: id, creditLimitMicrocents: 0n, at: 0, changeId: uuid() },
  }));
  writer.write({ ids: new Uint8Array(0), rows: [], clients: [], opens: [], operations: accounts });
  const systemRows = await db.selectFrom('account').select('id').where('kind', '<>', 0n).execute();
  assert.deepEqual(systemRows.map((system) => system.id).sort(), Object.values(systemAccounts).sort());
  closeConnection(connection);
  return file;
}

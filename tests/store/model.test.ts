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
import type { LedgerOperation } from '../../src/store/sqlite/ledger-batch.ts';
import { LedgerWriter } from '../../src/store/sqlite/ledger-writer.ts';
import { usageValues } from '../../src/store/reports/usage-columns.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { chargeback, grant, openRequest, temporaryFolder, usage, uuid } from './fixture.ts';

const customers = ['acct_a', 'acct_b', 'acct_c'];
const chargedEndings: readonly Ending[] = ['finished', 'credit', 'client_left', 'reader_stalled', 'revoked'];
const freeEndings: readonly Ending[] = ['failed', 'deadline', 'drained', 'lost'];

class Model {
  readonly balance = new Map(customers.map((id) => [id, 0n]));
  readonly settled = new Map<number, 'ended' | 'crashed'>();
  readonly open = new Map<number, bigint>();
  readonly keys = new Map<string, string>();
  /** What may still be spent of an account that was asked for. */
  readonly leased = new Map<string, bigint>();

  free = (accountId: string): bigint => this.balance.get(accountId)! - (this.leased.get(accountId) ?? 0n);

  settle(request: number, accountId: string, cost: bigint): 'billed' | 'failed' {
    if (!this.settled.has(request)) {
      const balance = this.balance.get(accountId);
      if (balance === undefined || balance < cost) return 'failed';
      this.balance.set(accountId, balance - cost);
      this.#add(accountId, -cost);
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

  lease(accountId: string): bigint {
    const free = this.free(accountId);
    this.leased.set(accountId, this.balance.get(accountId)!);
    return free;
  }

  returned(accountId: string, microcents: bigint): void {
    this.#add(accountId, -microcents);
    if (this.leased.get(accountId) === 0n) this.leased.delete(accountId);
  }

  restart(): void {
    for (const request of this.open.keys()) this.settled.set(request, 'crashed');
    this.open.clear();
    this.leased.clear();
  }

  /** What was not leased comes out of the balance alone. */
  #add(accountId: string, microcents: bigint): void {
    const leased = this.leased.get(accountId);
    if (leased !== undefined) this.leased.set(accountId, leased + microcents);
  }
}

const account = fc.constantFrom(...customers);
const request = fc.integer({ min: 0, max: 30 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
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
      accountId: account,
      amount: fc.bigInt({ min: 1n, max: 3000n }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('return' as const),
      accountId: account,
      amount: fc.bigInt({ min: 0n, max: 500n }),
    }),
  },
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
    model.settle(one.request, one.accountId, rows[index]!.costMicrocents),
  );

  const expected: unknown[] = [];
  const sent = operations.map((one): LedgerOperation => {
    switch (one.do) {
      case 'lease': {
        const { accountId, amount } = one;
        expected.push({ leased: model.lease(accountId), isElsewhere: false, isThere: true });
        const request = { balanceId: accountId, missing: amount, want: amount, step: 1n, isFirst: true };
        return { kind: 'grant', request };
      }
      case 'return': {
        const { accountId, amount } = one;
        model.returned(accountId, amount);
        expected.push(undefined);
        return { kind: 'return', balanceId: accountId, microcents: amount };
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
    opens: opens.map((one) => openRequest(one.accountId, BigInt(one.hold), ids[one.request]!)),
    operations: sent,
  });
  assert.equal(reply.refused, undefined);
  const failed = new Set(reply.failures.map(([index]) => index));
  assert.deepEqual(
    outcomes,
    outcomes.map((_, index) => (failed.has(index) ? 'failed' : 'billed')),
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
  writer.write({ ids: new Uint8Array(0), rows: [], opens: [], operations: accounts });
  const systemRows = await db.selectFrom('account').select('id').where('kind', '<>', 0n).execute();
  assert.deepEqual(systemRows.map((system) => system.id).sort(), Object.values(systemAccounts).sort());
  closeConnection(connection);
  return file;
}

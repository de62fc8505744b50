/** The database as the lease server of each of its replicas. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import type { Bill } from '../../../src/billing/bill.ts';
import { Billing, freeBalancesOf } from '../../../src/billing/billing.ts';
import { balanceAt, type Budget } from '../../../src/store/budget.ts';
import type { AccountLedger, UsageRow } from '../../../src/store/ledger.ts';
import { Leases, type LeaseRequest, type LeaseServer } from '../../../src/store/leases.ts';
import { Session } from '../../../src/store/postgres/connection.ts';
import { postgresLeaseServer } from '../../../src/store/postgres/lease-server.ts';
import { Settlements } from '../../../src/store/postgres/settlements.ts';
import { register, returnLeases } from '../../../src/store/postgres/statements.ts';
import { bill, costOf, receipt } from '../../billing/bills.ts';
import { chargeback, grant, usage, uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

interface LeaseScene {
  /** Of a process that leases nothing itself. */
  readonly ledger: AccountLedger;
  /** A process begins to work on the ledger. */
  join(): Promise<LeaseClient>;
  /** Nothing is wrong in the database. */
  check(): Promise<void>;
}

interface LeaseClient {
  readonly leaseServer: LeaseServer;
  settle(row: UsageRow): Promise<'billed' | 'lost'>;
  /** Its process is gone. */
  end(): Promise<void>;
}

async function open(t: TestContext): Promise<LeaseScene> {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  return {
    ledger: store.ledger,
    check: () => assertRight(url),
    join: async (): Promise<LeaseClient> => {
      const replicaId = uuid();
      const session = new Session({ address: { url } });
      t.after(() => session.close());
      const hour = `heartbeat_at = heartbeat_at + 3600000`; // it lives as long as the test
      await session.query(register, [replicaId], 10_000);
      await session.query({ text: `update replica set ${hour} where id = $1` }, [replicaId], 10_000);
      const settlements = new Settlements({ session, replica: () => replicaId, onBatch: undefined });
      return {
        leaseServer: postgresLeaseServer(session, () => replicaId),
        settle: (row) => settlements.settle(row),
        end: async () => {
          await session.query({ text: 'delete from replica where id = $1' }, [replicaId], 10_000);
          await session.query(returnLeases, [], 10_000);
        },
      };
    },
  };
}

const accountId = 'acct_a';
const dayMs = 86_400_000;
const refused = (error: unknown): boolean => (error as { readonly code?: unknown }).code === 'insufficient';

/** Microcents leased: exactly `missing`, unless the request asks for more. */
async function lease(
  { leaseServer }: LeaseClient,
  balanceId: string,
  missing: bigint,
  more: Partial<LeaseRequest> = {},
): Promise<bigint> {
  const request = { balanceId, missing, want: missing, step: 1n, isFirst: true, ...more };
  return (await leaseServer.grant(request)).leased;
}

async function begin(t: TestContext, microcents: bigint) {
  const scene = await open(t);
  const { ledger } = scene;
  await ledger.createAccount({
    id: accountId,
    name: 'x',
    creditLimitMicrocents: 0n,
    at: Date.now(),
    changeId: uuid(),
  });
  if (microcents > 0n) await ledger.transfer(grant(accountId, microcents));
  const setBudget = (budget: Budget | null, at = Date.now()): Promise<void> =>
    ledger.setBudget({
      kind: 'account_budget',
      subject: accountId,
      budget,
      spentBeforeMicrocents: 0n,
      at,
      changeId: uuid(),
    });
  return { ...scene, setBudget, one: await scene.join(), two: await scene.join() };
}

test(`nothing is leased twice, and there is at least what is missing, or nothing`, async (t) => {
  const { one, two, check } = await begin(t, 100n);
  assert.equal(await lease(one, accountId, 60n), 60n);
  assert.equal(await lease(two, accountId, 41n), 0n);
  assert.equal(await lease(two, accountId, 40n), 40n);
  assert.equal(await lease(one, accountId, 1n), 0n);
  assert.equal(await lease(one, accountId, 0n, { want: 1n }), 0n);
  assert.equal(await lease(one, 'acct_none', 1n), 0n);
  await check();
});

test(`of many who ask at once, as many get theirs as there is money for`, async (t) => {
  const { one, two, check } = await begin(t, 100n);
  const leases = await Promise.all(
    Array.from({ length: 40 }, (_, index) => lease(index % 2 ? one : two, accountId, 7n)),
  );
  assert.deepEqual([leases.filter((leased) => leased === 7n).length, leases.filter(Boolean).length], [14, 14]);
  await check();
});

test(`ahead of need it leases a sixteenth of what there is, in whole steps, and never above what is wanted`, async (t) => {
  const { one, two } = await begin(t, 1_616n);
  assert.equal(await lease(one, accountId, 1n, { want: 90n }), 90n);
  assert.equal(await lease(two, accountId, 1n, { want: 1_000n }), 95n); // of 1,526
  assert.equal(await lease(two, accountId, 0n, { want: 1_000n, step: 50n }), 50n); // of 1,431
  assert.equal(await lease(one, accountId, 800n, { want: 1_000n }), 800n);
});

test(`what is returned can be leased by others, and once only`, async (t) => {
  const { one, two, check } = await begin(t, 100n);
  assert.equal(await lease(one, accountId, 100n), 100n);
  await one.leaseServer.returnUnused(accountId, 30n);
  assert.equal(await lease(two, accountId, 31n), 0n);
  assert.equal(await lease(two, accountId, 30n), 30n);
  await one.leaseServer.returnUnused(accountId, 71n).then(
    () => {},
    () => {},
  );
  assert.equal(await lease(two, accountId, 71n), 0n, 'more than it has comes back from nobody');
  await check();
});

test(`a charge comes out of the lease of its process, and is lost without one`, async (t) => {
  const { one, two, check } = await begin(t, 100n);
  await lease(one, accountId, 60n);
  const row = usage(accountId, 50n);
  assert.equal(await one.settle(row), 'billed');
  assert.equal(await one.settle(row), 'billed', 'M3: again is once');
  assert.equal(await two.settle(usage(accountId, 1n)), 'lost', 'M6');
  assert.equal(await two.settle(usage(accountId, 0n, { ending: 'failed', finish: null })), 'billed');
  await one.leaseServer.returnUnused(accountId, 10n);
  assert.equal(await lease(two, accountId, 51n), 0n);
  assert.equal(await lease(two, accountId, 50n), 50n);
  await check();
});

test(`a process that is gone frees its leases, and can charge nothing to them`, async (t) => {
  const { one, two, setBudget, check } = await begin(t, 100n);
  await setBudget({ amountMicrocents: 100n, per: 'total' });
  const balanceId = balanceAt(accountId, 'total', 0).id;
  for (const id of [accountId, balanceId]) assert.equal(await lease(one, id, 100n), 100n);
  assert.equal(await one.settle(usage(accountId, 40n, { accountBudget: 'total' })), 'billed');
  await one.end();
  for (const id of [accountId, balanceId]) assert.equal(await lease(two, id, 61n), 0n);
  for (const id of [accountId, balanceId]) assert.equal(await lease(two, id, 60n), 60n);
  await check();
});

test(`a debit takes what nobody has leased, and a lower credit limit takes no more`, async (t) => {
  const { one, ledger, check } = await begin(t, 100n);
  await ledger.setCreditLimit(accountId, 50n, Date.now(), uuid());
  assert.equal(await lease(one, accountId, 120n), 120n);
  await assert.rejects(ledger.transfer(chargeback(accountId, 31n)), refused);
  await assert.rejects(ledger.setCreditLimit(accountId, 19n, Date.now(), uuid()), refused);
  await ledger.setCreditLimit(accountId, 20n, Date.now(), uuid());
  await assert.rejects(ledger.transfer(chargeback(accountId, 1n)), refused);
  await one.leaseServer.returnUnused(accountId, 70n);
  assert.equal(await ledger.transfer(chargeback(accountId, 70n)), true);
  assert.equal(await one.settle(usage(accountId, 50n)), 'billed');
  assert.equal(await lease(one, accountId, 1n), 0n);
  await check();
});

test(`a suspended account leases nothing, and what is leased of it is charged`, async (t) => {
  const { one, ledger, check } = await begin(t, 100n);
  assert.equal(await lease(one, accountId, 60n), 60n);
  await ledger.setAccountStatus(accountId, 'suspended', Date.now(), uuid());
  assert.equal(await lease(one, accountId, 1n), 0n);
  assert.equal(await one.settle(usage(accountId, 60n)), 'billed');
  await ledger.setAccountStatus(accountId, 'active', Date.now(), uuid());
  assert.equal(await lease(one, accountId, 40n), 40n);
  await check();
});

test(`a budget leases what it has for each period, whichever is over; lowered below what is leased, it leases nothing`, async (t) => {
  const { one, two, setBudget, check } = await begin(t, 1_000n);
  const at = Date.now();
  const [yesterday, today] = [balanceAt(accountId, 'day', at - dayMs).id, balanceAt(accountId, 'day', at).id];
  assert.equal(await lease(one, today, 1n), 0n, 'there is no such budget');
  await setBudget({ amountMicrocents: 100n, per: 'day' }, at);
  assert.equal(await lease(one, today, 80n), 80n);
  assert.equal(await lease(one, yesterday, 100n), 100n);
  assert.equal(await lease(two, yesterday, 1n), 0n);
  await setBudget({ amountMicrocents: 50n, per: 'day' }, at);
  assert.equal(await lease(two, today, 1n), 0n);
  await one.leaseServer.returnUnused(today, 30n);
  assert.equal(await lease(two, today, 1n), 0n, 'what comes back fills what is owed');
  await setBudget({ amountMicrocents: 70n, per: 'day' }, at);
  assert.equal(await lease(two, today, 21n), 0n);
  assert.equal(await lease(two, today, 20n), 20n);
  await setBudget(null, at);
  const started = { startedAt: at, endedAt: at, accountBudget: 'day' } as const;
  await Promise.all([lease(one, accountId, 50n), lease(two, accountId, 20n)]);
  assert.equal(await one.settle(usage(accountId, 50n, started)), 'billed', 'what runs is charged');
  assert.equal(await two.settle(usage(accountId, 20n, started)), 'billed');
  await check();
});

for (const isIdle of [false, true]) {
  const lease = isIdle ? 'a lease that went back as idle' : 'a lease';
  test(`what holds leave over of a budget that was lowered below them admits nobody, in ${lease}`, async (t) => {
    const { one, ledger, setBudget, check } = await begin(t, costOf(100, 10) * 100n);
    const { billing, leases } = billingOf(one, ledger);
    const made = (amountMicrocents: bigint): Bill =>
      bill(accountId, 100, 10, { account: { id: accountId, budget: { amountMicrocents, per: 'total' } } });
    const of = balanceAt(accountId, 'total', Date.now()).id;
    const [plenty, little] = [costOf(100, 10) * 20n, costOf(100, 10)];
    await setBudget({ amountMicrocents: plenty, per: 'total' });
    const bills = Array.from({ length: 3 }, () => made(plenty));
    const [first, second, third] = await Promise.all(bills.map((one) => billing.hold(one)));
    const failed = (index: number) => ({
      ...receipt(bills[index]!, 100, 10, 'failed'),
      accountBudget: 'total' as const,
    });
    if (isIdle) leases.release(of);
    await setBudget({ amountMicrocents: little, per: 'total' });
    leases.budgetChanged(accountId);
    await first!.close(failed(0));
    assert.equal(billing.freeMicrocents(of) ?? 0n, 0n);
    await assert.rejects(billing.hold(made(little)), { code: 'insufficient_credits' });
    await second!.close(failed(1));
    await assert.rejects(billing.hold(made(little)), { code: 'insufficient_credits' }, 'the third holds all of it');
    await third!.close(failed(2));
    await until(async () => (await billing.hold(made(little)).catch(() => undefined)) !== undefined, 10_000);
    assert.equal(billing.freeMicrocents(of) ?? 0n, 0n);
    await check();
  });
}

/** A process of the service: billing over its leases. */
function billingOf(client: LeaseClient, ledger: AccountLedger): { readonly billing: Billing; readonly leases: Leases } {
  const leases = new Leases({ leaseServer: client.leaseServer, free: freeBalancesOf(() => billing) });
  const billing: Billing = new Billing({
    ledger: {
      leases,
      settle: (row) => client.settle(row),
      open: () => {},
      backlog: 0,
      silentMs: 0,
      readBack: (requestId) => ledger.readBack(requestId),
      probe: () => ledger.probe(),
      transfer: (transfer) => ledger.transfer(transfer),
      close: () => leases.close(),
    },
    newId: uuid,
    topupUrl: () => 'http://test/topup',
    log: () => {},
  });
  return { billing, leases };
}

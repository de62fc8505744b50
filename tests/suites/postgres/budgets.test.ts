/** Budgets on several replicas: never passed, nothing of them stranded, in force everywhere (money.md, "Budgets"). */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { issueKey } from '../../../src/accounts/key.ts';
import { openSecret } from '../../../src/accounts/secret.ts';
import { Billing } from '../../../src/billing/billing.ts';
import { holdStepTokens } from '../../../src/billing/bill.ts';
import type { Hold } from '../../../src/billing/hold.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import {
  balanceAt,
  chargedPeriods,
  memberSubject,
  modelSubject,
  type Budget,
  type BudgetOwner,
} from '../../../src/store/budget.ts';
import { openPostgresStore, type PostgresStore } from '../../../src/store/postgres/store.ts';
import { bill, costOf, receipt, used } from '../../billing/bills.ts';
import { uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, customer, differencesOf } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const accountId = 'acct_a';
const userId = 'a'.repeat(32);
const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const price = costOf(100, 10);
const longMs = 60_000;

/** A replica as the service has it: billing over the ledger. */
interface Replica {
  readonly store: PostgresStore;
  readonly billing: Billing;
}

async function openReplica(t: TestContext, url: string): Promise<Replica> {
  const store = await openPostgresStore({
    address: { url },
    shown: 'the test',
    free: {
      credit: (balanceId, microcents) => billing.credit(balanceId, microcents),
      reserve: (balanceId, microcents) => billing.reserve(balanceId, microcents),
      freeMicrocents: (balanceId) => billing.freeMicrocents(balanceId) ?? 0n,
      drop: (balanceId) => billing.drop(balanceId),
      forget: () => billing.forget(),
    },
  });
  const billing: Billing = new Billing({
    ledger: store.ledger,
    newId: uuid,
    topupUrl: () => 'http://test/topup',
    log: () => {},
  });
  t.after(() => store.close());
  return { store, billing };
}

interface Scene {
  readonly url: string;
  readonly replicas: readonly [Replica, Replica, Replica];
  readonly keyId: string;
}

async function newKey({ store }: Replica, owner: string | null = null): Promise<string> {
  const { row } = issueKey({ accountId, name: 'x', secret, now: 0 });
  await store.repositories.createKey({ key: { ...row, userId: owner }, changeId: uuid() });
  return row.id;
}

async function newMember({ store }: Replica): Promise<string> {
  const { repositories } = store;
  const invited = { email: 'm@example.com', tokenHash: new Uint8Array(32).fill(7) };
  const terms = { role: 'developer', invitedBy: '', createdAt: 0, expiresAt: 1e15 } as const;
  await repositories.createInvitation({ ...invited, ...terms, id: `inv_${'0'.repeat(32)}`, accountId });
  const person = { userId, credentialId: 'b'.repeat(32), name: 'M', passwordHash: 'x', at: Date.now() };
  assert.ok(await repositories.joinAnew({ ...invited, ...person }));
  return memberSubject(accountId, userId);
}

async function setScene(t: TestContext, credit = price * 10_000n): Promise<Scene> {
  const url = await server.databaseWithTables();
  const replicas = await Promise.all([openReplica(t, url), openReplica(t, url), openReplica(t, url)]);
  await customer(replicas[0].store, accountId, credit);
  return { url, replicas, keyId: await newKey(replicas[0]) };
}

async function setBudget(
  { store }: Replica,
  of: BudgetOwner,
  subject: string,
  budget: Budget,
  at: number,
): Promise<Budget> {
  const spent = await store.repositories.spentBesideBudget({ of, subject, per: budget.per, at });
  await store.ledger.setBudget({
    kind: `${of}_budget`,
    subject,
    budget,
    spentBeforeMicrocents: spent!,
    at,
    changeId: uuid(),
  });
  return budget;
}

interface Held {
  readonly hold: Hold;
  settle(): Promise<void>;
  /** Uncharged. */
  fail(): Promise<void>;
}

/** `undefined`: a 402. */
async function hold(
  { billing }: Replica,
  keyId: string,
  budgets: { readonly [of in BudgetOwner | 'model']?: Budget },
  startedAt = Date.now(),
): Promise<Held | undefined> {
  const member = memberSubject(accountId, userId);
  const made = bill(accountId, 100, 10, {
    key: {
      id: keyId,
      budget: budgets.key,
      modelBudgets: budgets.model === undefined ? undefined : new Map([['model', budgets.model]]),
      ...(budgets.member === undefined ? {} : { member: { id: member, budget: budgets.member } }),
    },
    account: { id: accountId, budget: budgets.account },
    startedAt,
  });
  const row = (ending: 'finished' | 'failed') => ({
    ...receipt(made, 100, 10, ending),
    keyId,
    startedAt,
    endedAt: startedAt,
    keyBudget: chargedPeriods(budgets.key?.per, budgets.model?.per),
    accountBudget: budgets.account?.per ?? null,
    memberBudget: budgets.member === undefined ? null : balanceAt(member, budgets.member.per, startedAt).id,
  });
  try {
    const held = await billing.hold(made);
    return { hold: held, settle: () => held.settle(row('finished')), fail: () => held.close(row('failed')) };
  } catch (error) {
    assert.ok(error instanceof ApiError && error.code === 'insufficient_credits', String(error));
    assert.equal(error.extra['budget_of'] !== undefined, true);
    return undefined;
  }
}

/** What is there may take others a moment to return, and who was refused is refused for a quarter of a second more. */
async function soon(ask: () => Promise<Held | undefined>): Promise<Held> {
  let held: Held | undefined;
  await until(async () => (held = await ask()) !== undefined, longMs);
  return held!;
}

/** By the rows. */
async function chargedTo(
  { url }: Scene,
  column: 'key_id' | 'account_id' | 'member_budget',
  id: string,
): Promise<bigint> {
  const [row] = await server.sql(
    url,
    `select coalesce(sum(cost), 0)::text as cost from usage where ${column} = '${id}'`,
  );
  return BigInt(row!['cost'] as string);
}

for (const of of ['key', 'account', 'model'] as const) {
  const owner = of === 'account' ? 'account' : 'key';
  const whose = { key: 'a key', account: 'an account', model: 'a key for one model' }[of];
  test(`a budget of ${whose} for 20 requests, 600 offered to three replicas at once: never more, and all of it can be had`, async (t) => {
    const scene = await setScene(t);
    const { replicas, keyId, url } = scene;
    const subject = owner === 'key' ? keyId : accountId;
    const budget = await setBudget(
      replicas[0],
      owner,
      of === 'model' ? modelSubject(keyId, 'model') : subject,
      { amountMicrocents: price * 20n, per: 'total' },
      Date.now(),
    );
    const ask = (replica: Replica) => hold(replica, keyId, { [of]: budget });
    const outcomes = await Promise.all(
      Array.from({ length: 600 }, async (_, index) => {
        const held = await ask(replicas[index % 3]!);
        await held?.settle();
        return held !== undefined;
      }),
    );
    const served = outcomes.filter(Boolean).length;
    t.diagnostic(`${served} in the crowd`);
    assert.ok(served > 0 && served <= 20, String(served));
    // Of two who need the last of it at the same moment, both may be refused; who comes again is served.
    for (let count = served; count < 20; count++) await (await soon(() => ask(replicas[count % 3]!))).settle();
    for (const replica of replicas) assert.equal(await ask(replica), undefined, 'not one more');
    assert.equal(await chargedTo(scene, owner === 'key' ? 'key_id' : 'account_id', subject), price * 20n);
    await assertRight(url);
  });
}

test('what is left at the last refusal is less than one hold, wherever it lies', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const amountMicrocents = price * 7n + price / 2n;
  const budget = await setBudget(replicas[1], 'key', keyId, { amountMicrocents, per: 'total' }, Date.now());
  const running = await Promise.all(replicas.map((replica) => soon(() => hold(replica, keyId, { key: budget }))));
  // What comes free on each of them is brought together for one who needs it.
  for (const one of running) await one.fail();
  for (let count = 0; count < 7; count++) await (await soon(() => hold(replicas[2], keyId, { key: budget }))).settle();
  assert.equal(await hold(replicas[0], keyId, { key: budget }), undefined);
  const left = amountMicrocents - (await chargedTo(scene, 'key_id', keyId));
  assert.ok(left < price, String(left));
  await assertRight(url);
});

test('a hold takes from both budgets and from the credit, and so does its extension, all or none', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const at = Date.now();
  const step = costOf(0, holdStepTokens);
  const key = await setBudget(
    replicas[0],
    'key',
    keyId,
    { amountMicrocents: price * 3n + step * 2n, per: 'month' },
    at,
  );
  const amountMicrocents = price * 2n + costOf(0, 1) + step;
  const account = await setBudget(replicas[0], 'account', accountId, { amountMicrocents, per: 'week' }, at);
  const first = await soon(() => hold(replicas[0], keyId, { key, account }, at));
  const written = (completionTokens: number) => used(100, completionTokens);
  await until(async () => await first.hold.cover(written(11)), longMs);
  assert.equal(first.hold.heldMicrocents, costOf(100, 11 + holdStepTokens));
  assert.equal(await first.hold.cover(written(12 + holdStepTokens)), false, 'the key has more, the account has not');
  const second = await soon(() => hold(replicas[1], keyId, { key, account }, at));
  assert.equal(await hold(replicas[2], keyId, { key, account }, at), undefined);
  await second.settle();
  await first.settle();
  const spent = await replicas[2].store.repositories.budgetsOf({ subjects: [keyId, accountId], at });
  assert.deepEqual(
    spent.map(({ spentMicrocents }) => spentMicrocents),
    [price * 2n, price * 2n],
  );
  await assertRight(url);
});

test('a budget that is lowered lets nobody in on any replica who has heard of it, and one that is raised lets in again', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const at = Date.now();
  const budget = await setBudget(replicas[0], 'key', keyId, { amountMicrocents: price * 400n, per: 'total' }, at);
  const running: Held[] = [];
  for (const replica of replicas)
    for (let count = 0; count < 5; count++) running.push(await soon(() => hold(replica, keyId, { key: budget }, at)));
  const lowered = await setBudget(replicas[0], 'key', keyId, { amountMicrocents: price * 10n, per: 'total' }, at);
  for (const { store } of replicas) store.ledger.leases.budgetChanged(keyId);
  const free = (): bigint[] =>
    replicas.map(({ billing }) => billing.freeMicrocents(balanceAt(keyId, 'total', at).id) ?? 0n);
  await until(() => free().every((one) => one === 0n), longMs);
  for (const replica of replicas) assert.equal(await hold(replica, keyId, { key: lowered }, at), undefined);
  for (const one of running) await one.settle();
  for (const replica of replicas) assert.equal(await hold(replica, keyId, { key: lowered }, at), undefined);
  const raised = await setBudget(replicas[1], 'key', keyId, { amountMicrocents: price * 16n, per: 'total' }, at);
  await (await soon(() => hold(replicas[2], keyId, { key: raised }, at))).settle();
  assert.equal(await hold(replicas[0], keyId, { key: raised }, at), undefined);
  assert.equal(await chargedTo(scene, 'key_id', keyId), price * 16n);
  await assertRight(url);
});

test('a replica that has not heard of another period is refused, and served when the budget is of its period again', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const at = Date.UTC(2028, 1, 29);
  const amountMicrocents = price * 5n;
  await setBudget(replicas[0], 'key', keyId, { amountMicrocents, per: 'month' }, at);
  const key = { amountMicrocents, per: 'day' } as const;
  assert.equal(await hold(replicas[1], keyId, { key }, at), undefined);
  // By a clock that stands a day earlier, so that the balance is not made by it.
  await setBudget(replicas[0], 'key', keyId, key, at - 1);
  await (await soon(() => hold(replicas[1], keyId, { key }, at))).settle();
  await assertRight(url);
});

test('replicas whose clocks stand on both sides of midnight each charge the period of their own requests', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const evening = Date.UTC(2028, 1, 29, 23, 59, 59, 999);
  const key = await setBudget(replicas[0], 'key', keyId, { amountMicrocents: price * 2n, per: 'day' }, evening);
  const late = await Promise.all([0, 1].map((index) => soon(() => hold(replicas[index]!, keyId, { key }, evening))));
  const early = await Promise.all(
    [1, 2].map((index) => soon(() => hold(replicas[index]!, keyId, { key }, evening + 1))),
  );
  for (const replica of replicas)
    for (const at of [evening, evening + 1]) assert.equal(await hold(replica, keyId, { key }, at), undefined);
  for (const one of [...late, ...early]) await one.settle();
  for (const at of [evening, evening + 1]) {
    const [status] = await replicas[1].store.repositories.budgetsOf({ subjects: [keyId], at });
    assert.equal(status?.spentMicrocents, price * 2n);
  }
  await assertRight(url);
});

test('what is idle on a replica comes to one who lacks it at once, and goes back by itself when nobody asks', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const at = Date.now();
  const key = await setBudget(replicas[0], 'key', keyId, { amountMicrocents: price * 4n, per: 'total' }, at);
  for (let count = 0; count < 3; count++) await (await soon(() => hold(replicas[0], keyId, { key }, at))).settle();
  const last = await soon(() => hold(replicas[0], keyId, { key }, at));
  assert.equal(await hold(replicas[1], keyId, { key }, at), undefined, 'it is held');
  await last.fail();
  const begun = performance.now();
  const mine = await soon(() => hold(replicas[1], keyId, { key }, at));
  t.diagnostic(`after ${(performance.now() - begun).toFixed(0)} ms`);
  await mine.fail();
  const leased = async () => await server.sql(url, 'select 1 from budget_lease where remaining > 0');
  assert.equal((await leased()).length, 1);
  await until(async () => (await leased()).length === 0, longMs);
  await assertRight(url);
});

test('what a dead replica had of a budget comes back, and what it held is charged to nobody', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const at = Date.now();
  const key = await setBudget(replicas[0], 'key', keyId, { amountMicrocents: price * 3n, per: 'total' }, at);
  await (await soon(() => hold(replicas[0], keyId, { key }, at))).settle();
  const lost = await soon(() => hold(replicas[0], keyId, { key }, at));
  // As a reaper does it, between two heartbeats.
  const gone = replicas[0].store.ledger.replicaId;
  await server.sql(url, `delete from replica where id = '\\x${Buffer.from(gone).toString('hex')}'`);
  await until(() => replicas[0].store.ledger.replicaId !== gone, longMs);
  await until(
    async () =>
      (await server.sql(url, 'select 1 from budget_lease where replica_id not in (select id from replica)')).length ===
      0,
    longMs,
  );
  await assert.rejects(lost.settle(), (error: unknown) => error instanceof ApiError && error.code === 'internal_error');
  await lost.fail();
  for (let count = 0; count < 2; count++) await (await soon(() => hold(replicas[1], keyId, { key }, at))).settle();
  for (const replica of replicas) assert.equal(await hold(replica, keyId, { key }, at), undefined);
  assert.equal(await chargedTo(scene, 'key_id', keyId), price * 3n);
  await assertRight(url);
});

test('a budget that is changed while its next period is begun: the balance has what the budget says', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const now = Date.UTC(2028, 1, 29);
  for (let round = 0; round < 20; round++) {
    const at = now + round * 86_400_000;
    const amountMicrocents = price * BigInt(1 + (round % 5));
    const old = { amountMicrocents: price, per: 'day' } as const;
    const [, ...begun] = await Promise.all([
      setBudget(replicas[0], 'key', keyId, { amountMicrocents, per: 'day' }, at),
      ...[1, 2].map((index) => hold(replicas[index]!, keyId, { key: old }, at)),
    ]);
    for (const one of begun) await one?.settle();
    const rows = await server.sql(
      url,
      `select amount::text from budget_balance where id = '${balanceAt(keyId, 'day', at).id}'`,
    );
    assert.deepEqual(rows, [{ amount: String(amountMicrocents) }]);
    await assertRight(url);
  }
});

test('a budget of a member, held by two keys on three replicas: never more, and a key of nobody goes on', async (t) => {
  const scene = await setScene(t);
  const { replicas, keyId, url } = scene;
  const subject = await newMember(replicas[0]);
  const keys = [await newKey(replicas[0], userId), await newKey(replicas[1], userId)] as const;
  const at = Date.now();
  // Before there is a budget: it counts as spent.
  await (await soon(() => hold(replicas[2], keys[0], {}, at))).settle();
  const member = await setBudget(replicas[0], 'member', subject, { amountMicrocents: price * 21n, per: 'month' }, at);
  const loaded = await replicas[1].store.repositories.loadKeys({ member: { accountId, userId } });
  assert.deepEqual(
    loaded.map(({ id, memberBudget }) => ({ id, memberBudget })),
    keys.toSorted().map((id) => ({ id, memberBudget: member })),
  );
  const [ofNobody] = await replicas[1].store.repositories.loadKeys({ ids: [keyId] });
  assert.equal(ofNobody?.memberBudget, null);
  const ask = (index: number) => hold(replicas[index % 3]!, keys[index % 2]!, { member }, at);
  const outcomes = await Promise.all(
    Array.from({ length: 300 }, async (_, index) => {
      const held = await ask(index);
      await held?.settle();
      return held !== undefined;
    }),
  );
  const served = outcomes.filter(Boolean).length;
  assert.ok(served > 0 && served <= 20, String(served));
  for (let count = served; count < 20; count++) await (await soon(() => ask(count))).settle();
  for (let index = 0; index < 6; index++) assert.equal(await ask(index), undefined, 'not one more');
  const [status] = await replicas[2].store.repositories.budgetsOf({ subjects: [subject], at });
  assert.deepEqual([status?.spentMicrocents, status?.heldMicrocents], [price * 21n, 0n]);
  await (await soon(() => hold(replicas[0], keyId, {}, at))).settle();
  const { id } = balanceAt(subject, 'month', at);
  assert.equal(await chargedTo(scene, 'member_budget', id), price * 20n);
  await assertRight(url);

  await server.sql(url, `update budget_balance set available = available + 7 where id = '${id}'`);
  const found = await differencesOf(url);
  assert.deepEqual(
    found.map(({ what }) => what),
    [`budget ${id}: left`],
  );
});

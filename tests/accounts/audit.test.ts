/** The audit log of operations: nothing happens that is not in it, and nothing goes out of it (docs/operator.md, "Audit"). */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { OperationError, type OperationServices } from '../../src/accounts/operation.ts';
import { operate, operations, type Operation } from '../../src/accounts/operations.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { uuidMaker } from '../../src/platform/ids/uuid.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { openStore, temporaryFolder, usage, uuid } from '../store/fixture.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const actor = { kind: 'user', id: 'usr_1', name: 'ada@example.com', requestId: 'req_1', address: '192.0.2.1' } as const;

interface OpenLedger {
  readonly store: SqliteStore;
  readonly file: string;
  readonly services: OperationServices;
}

async function openLedger(t: TestContext): Promise<OpenLedger> {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  const { ledger, repositories } = store;
  const services = { ledger, repositories, secret, newId: uuid, now: Date.now, actor };
  return { store, file, services };
}

/** Somebody who has joined the account. */
async function member({ repositories }: SqliteStore, accountId: string): Promise<string> {
  const invited = { email: 'm@example.com', tokenHash: new Uint8Array(32).fill(7) };
  const terms = { role: 'developer', invitedBy: '', createdAt: 0, expiresAt: 1e15 } as const;
  await repositories.createInvitation({ ...invited, ...terms, id: `inv_${'0'.repeat(32)}`, accountId });
  const userId = 'a'.repeat(32);
  const person = { userId, credentialId: 'b'.repeat(32), name: 'M', passwordHash: 'x', at: 1 };
  assert.ok(await repositories.joinAnew({ ...invited, ...person }));
  return userId;
}

test('every kind of operation is entered with who, what was asked, before and after, and without a secret', async (t) => {
  const opened = await openLedger(t);
  const { store } = opened;
  const { accountId } = await operate({ kind: 'create_account', name: 'one' }, opened.services);
  const made = await operate({ kind: 'create_key', accountId, name: 'a key', expiresAt: undefined }, opened.services);
  const { keyId } = made;
  const rotated = await operate({ kind: 'rotate_key', keyId, overlapMs: 1000 }, opened.services);
  const move = { kind: 'move_credit', movement: 'grant', accountId, reference: 'present' } as const;
  await operate({ ...move, microcents: '100', idempotencyKey: 'x' }, opened.services);
  const row = usage(accountId, 7n);
  await store.ledger.settle(row);
  const userId = await member(store, accountId);
  const budget = { microcents: '1000', per: 'day' } as const;
  const price = { model: 'demo', input: '1', output: '1', cacheRead: undefined } as const;
  const others: readonly Operation[] = [
    { kind: 'edit_account', accountId, name: 'two' },
    { kind: 'allow_account', accountId, models: ['demo'] },
    { kind: 'plan_account', accountId, plan: 'pro' },
    { kind: 'limit_account', accountId, limits: { concurrencyMax: 3 } },
    { kind: 'zdr_account', accountId, required: true },
    { kind: 'alias_account', accountId, aliases: [{ name: 'mine', model: 'demo', listed: true, answers: 'model' }] },
    { kind: 'tier_account', accountId, tier: 'flex', tiers: ['flex'] },
    { kind: 'budget_account', accountId, budget },
    { kind: 'budget_member', accountId, userId, budget },
    { kind: 'limit_credit', accountId, microcents: '5' },
    { kind: 'suspend_account', accountId, reason: 'because' },
    { kind: 'revive_account', accountId },
    { kind: 'allow_key', keyId, models: ['demo'] },
    { kind: 'limit_key', keyId, limits: { zdrOnly: true } },
    { kind: 'edit_key', keyId, name: 'the key', disabled: true },
    { kind: 'budget_key', keyId, budget },
    { kind: 'set_price', accountId, ...price, validFrom: undefined, validTo: undefined },
    { kind: 'remove_price', accountId, model: 'demo' },
    { kind: 'refund_request', accountId, requestId: row.publicId, microcents: undefined, reference: undefined },
    { kind: 'revoke_key', keyId },
  ];
  for (const operation of others) await operate(operation, opened.services);
  const server = { model: 'demo', source: 'added', url: 'http://gpu-1:8000/v1' };
  await operate({ kind: 'add_backend', ...server, rank: null, weight: null }, opened.services);
  await operate({ kind: 'remove_backend', ...server }, opened.services);
  // An account that is older than all that is kept, and whose statements are issued.
  const old = Date.now() - 90 * 86_400_000;
  await store.ledger.settle(usage(accountId, 0n, { requestId: uuidMaker(() => old)(), startedAt: old, endedAt: old }));
  const closed = { accountId, closedUntil: null, until: Date.now(), year: 2026, prefix: '', at: 0, invoices: [] };
  await store.repositories.closePeriod(closed);
  await store.repositories.recomputeUsageHours({ now: Date.now() + 3 * 3_600_000 });
  await operate({ kind: 'prune_usage', before: old + 86_400_000 }, opened.services);
  await operate({ kind: 'rotate_signing_key' }, opened.services);

  const entries = (await store.repositories.listAudit({ limit: 100 })).toReversed();
  const used = new Set(entries.map(({ action }) => action));
  const tested = Object.values(operations)
    .map(({ audit }) => audit.action)
    .filter((action) => !/^(?:account\.delete|owner\..+|person\..+)$/.test(action));
  assert.deepEqual(
    [...used].sort(),
    [...tested].sort(),
    'all kinds are tried here but those of people and the end of an account',
  );
  for (const entry of entries) {
    const { action, before, after, input } = entry;
    // Servers, how long details are kept, and which key signs them, belong to no account.
    const isOfAccount = !/^(?:backend|usage|signing_key)\./.test(action);
    assert.deepEqual([entry.accountId, entry.outcome], [isOfAccount ? accountId : null, 'done'], action);
    assert.deepEqual(entry.actor, { kind: 'user', id: 'usr_1', name: 'ada@example.com' });
    assert.deepEqual([entry.requestId, entry.address], ['req_1', '192.0.2.1']);
    assert.ok(entry.target !== null && input !== undefined && input !== null, action);
    assert.equal(after === null, action === 'backend.remove', action);
    const isNew = action.endsWith('.create') || action === 'backend.add';
    assert.equal(before === null, isNew, action);
    if (!isNew) assert.notEqual(before, after, `${action} changed something`);
  }
  const everything = JSON.stringify(entries, (_name, value: unknown) =>
    value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : value,
  );
  for (const text of [made.key, rotated.key]) assert.ok(!everything.includes(text.slice(4, 30)));
});

test('the link and the making of the owner are entered, without the token and the hash of the password', async (t) => {
  const opened = await openLedger(t);
  await operate({ kind: 'create_account', name: 'one' }, opened.services);
  const link = await operate({ kind: 'owner_link' }, opened.services);
  const passwordHash = 'a-hash-of-a-password';
  const owner = { email: 'ada@example.com', name: 'Ada', passwordHash };
  const { userId } = await operate({ kind: 'create_owner', ...owner }, opened.services);
  await operate({ kind: 'release_person', email: owner.email }, opened.services);
  const [released, made, linked] = await opened.store.repositories.listAudit({ limit: 3 });
  assert.ok(released && made && linked);
  assert.deepEqual([released.action, released.outcome, released.target], ['person.release', 'done', userId]);
  assert.deepEqual([linked.action, linked.outcome], ['owner.link', 'done']);
  assert.deepEqual([made.action, made.outcome, made.target], ['owner.create', 'done', userId]);
  assert.deepEqual(JSON.parse(made.after!), { user_id: userId });
  for (const text of [link.token, passwordHash])
    assert.ok(![made, linked].some((entry) => `${entry.input}${entry.before}${entry.after}`.includes(text)));
});

test('a change whose process ends before it is confirmed is in the log as begun; a refused and a failed one as such', async (t) => {
  const opened = await openLedger(t);
  const { store } = opened;
  const { accountId } = await operate({ kind: 'create_account', name: 'one' }, opened.services);
  const newest = async () => (await store.repositories.listAudit({ accountId, limit: 1 }))[0]!;

  const rename = { kind: 'edit_account', accountId, name: 'two' } as const;
  let reached = (): void => {};
  const durable = new Promise<void>((resolve) => (reached = resolve));
  // The change is durable, and its caller never hears.
  void operate(rename, { ...opened.services, followed: () => (reached(), new Promise(() => {})) });
  await durable;
  assert.equal((await store.repositories.getAccount({ accountId }))!.name, 'two');
  const begun = await newest();
  assert.deepEqual([begun.action, begun.outcome, begun.after], ['account.edit', 'begun', null]);
  assert.equal((JSON.parse(begun.before!) as { name: string }).name, 'one');
  assert.deepEqual(JSON.parse(begun.input!), { kind: 'edit_account', accountId, name: 'two' });

  await assert.rejects(operate({ ...rename, name: '' }, opened.services), OperationError);
  assert.equal((await newest()).outcome, 'refused');
  await assert.rejects(
    operate(rename, { ...opened.services, followed: () => Promise.reject(new Error('the database is gone')) }),
  );
  assert.equal((await newest()).outcome, 'failed');
});

test('nothing is done that cannot be written down before', async (t) => {
  const opened = await openLedger(t);
  const { accountId } = await operate({ kind: 'create_account', name: 'one' }, opened.services);
  // A log that takes no row: the file as a full disk leaves it.
  const connection = openConnection(opened.file);
  connection.exec("create trigger full_disk before insert on audit_log begin select raise(abort, 'disk is full'); end");
  connection.close();
  await assert.rejects(operate({ kind: 'edit_account', accountId, name: 'two' }, opened.services), /disk is full/);
  assert.equal((await opened.store.repositories.getAccount({ accountId }))!.name, 'one');
});

test('entries are never changed or deleted; only the names of people can be taken out', async (t) => {
  const opened = await openLedger(t);
  await operate({ kind: 'create_account', name: 'one' }, opened.services);
  const connection = openConnection(opened.file);
  t.after(() => connection.close());
  for (const statement of [
    'delete from audit_log',
    'insert or replace into audit_log select * from audit_log',
    "update audit_log set action = 'nothing'",
    "update audit_log set actor_name = 'eve'",
    'update audit_log set actor_name = null, address = null, input = null, before = null',
    "update audit_log set actor_name = null, address = null, input = null, before = null, after = '{}'",
    "update audit_log set actor_name = null, address = null, input = null, before = null, after = null, outcome = 'done'",
  ])
    assert.throws(() => connection.exec(statement), /append-only|UNIQUE/, statement);
  connection.exec('update audit_log set actor_name = null, address = null, input = null, before = null, after = null');
  const [entry] = await opened.store.repositories.listAudit({ limit: 1 });
  assert.deepEqual([entry!.actor, entry!.action], [{ kind: 'user', id: 'usr_1', name: null }, 'account.create']);
});

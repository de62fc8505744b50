/** The log of changes, exports and deletions on PostgreSQL: the same as on SQLite (docs/operator.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { exportAccount } from '../../../src/accounts/export-account.ts';
import { issueKey } from '../../../src/accounts/key.ts';
import type { OperationServices } from '../../../src/accounts/operation.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { openSecret } from '../../../src/accounts/secret.ts';
import type { StoreError } from '../../../src/store/store-error.ts';
import { liveKeysMax } from '../../../src/store/repositories/keys.ts';
import { usage, uuid } from '../../store/fixture.ts';
import { assertRight, customer, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
let server: PostgresServer;
before(async () => void (server = await PostgresServer.start()));
after(() => server.dispose());

test('entries are never changed, deleted or truncated; only what names people can be taken out', async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  const { ledger, repositories } = store;
  const actor = { kind: 'user', id: 'usr_1', name: 'ada', requestId: 'req_1', address: '192.0.2.1' } as const;
  const services: OperationServices = {
    ledger,
    repositories,
    secret,
    newId: uuid,
    now: () => store.now(),
    actor,
  };
  const { accountId } = await operate({ kind: 'create_account', name: 'one' }, services);
  const seen = await repositories.listAudit({ accountId, limit: 5 });
  assert.deepEqual(
    seen.map(({ action, outcome }) => [action, outcome]),
    [['account.create', 'done']],
  );
  assert.deepEqual(await repositories.listAudit({ accountId, before: seen[0]!.id, limit: 5 }), []);
  const narrowed = { accountId, since: seen[0]!.id, actorId: 'usr_1', target: accountId, limit: 5 };
  for (const of of [narrowed, { ...narrowed, accountId: undefined }])
    assert.equal((await repositories.listAudit({ ...of, actions: ['account', 'key.create'] })).length, 1);
  assert.deepEqual(await repositories.listAudit({ ...narrowed, actions: ['acc%', 'accoun_'] }), []);
  assert.deepEqual(await repositories.listAudit({ ...narrowed, actorId: 'usr_2' }), []);
  for (const statement of [
    'delete from audit_log',
    'truncate audit_log',
    "update audit_log set action = 'nothing'",
    "update audit_log set actor_name = 'eve'",
    "update audit_log set actor_name = null, address = null, input = null, before = null, after = null, outcome = 'x'",
  ])
    await assert.rejects(server.sql(url, statement), /append-only/, statement);
  await server.sql(
    url,
    'update audit_log set actor_name = null, address = null, input = null, before = null, after = null',
  );
  const [entry] = await repositories.listAudit({ limit: 1 });
  assert.deepEqual(
    [entry!.actor, entry!.action, entry!.outcome],
    [{ kind: 'user', id: 'usr_1', name: null }, 'account.create', 'done'],
  );
});

test('an account whose credit replicas have leased is exported and deleted, and the ledger is consistent', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 1_000_000n);
  for (const replica of [one, two]) assert.ok(await hold(replica, 'acct_a', 1000n));
  await two.store.ledger.settle(usage('acct_a', 400n));
  const { ledger, repositories } = one.store;
  const services = { ledger, repositories, secret, newId: uuid, now: () => one.store.now() };
  await operate({ kind: 'create_key', accountId: 'acct_a', name: 'of ada', expiresAt: undefined }, services);
  const read = async () => {
    let text = '';
    for await (const piece of exportAccount('acct_a', repositories)) text += piece;
    return JSON.parse(text) as Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>>;
  };
  const whole = await read();
  assert.deepEqual([whole['keys']!.length, whole['usage']!.length, whole['ledger']!.length], [1, 1, 1]);
  // What both still hold is given up, as cut requests do.
  for (const replica of [one, two]) replica.free.credit('acct_a', replica === two ? 600n : 1000n);
  const answer = await operate({ kind: 'delete_account', accountId: 'acct_a', forfeitCredit: true }, services);
  assert.equal(answer.forfeitedMicrocents, '999600');
  const left = await read();
  assert.deepEqual([left['keys']![0]!['name'], left['usage']!.length, left['ledger']!.length], ['deleted', 1, 2]);
  await assertRight(url);
});

test('keys that are made at the same time on several replicas are never more than an account may have', async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  const other = await openReplica(t, url);
  await customer(store, 'acct_a', 0n);
  await server.sql(
    url,
    `insert into api_key (id, account_id, name, display, hash, pepper_id, status, created_at)
     select 'key_' || n, 'acct_a', 'x', 'x', sha256(n::text::bytea), '${secret.id}', 'active', 0
     from generate_series(1, ${liveKeysMax - 3}) n`,
  );
  const made = await Promise.allSettled(
    Array.from({ length: 8 }, (_none, index) => {
      const { row } = issueKey({ accountId: 'acct_a', name: 'x', secret, now: store.now() });
      return (index % 2 === 0 ? store : other.store).repositories.createKey({ key: row, changeId: uuid() });
    }),
  );
  const refused = made.filter((one) => one.status === 'rejected').map(({ reason }) => reason as StoreError);
  assert.equal(made.length - refused.length, 3);
  for (const { code } of refused) assert.equal(code, 'conflict');
});

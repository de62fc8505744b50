/** People on a real PostgreSQL, changed by several replicas at once; the rest in tests/accounts/users. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { after, before, describe, test, type TestContext } from 'node:test';

import pg from 'pg';

import { newAccountId } from '../../../src/accounts/base62.ts';
import { hashLinkToken } from '../../../src/accounts/link-token.ts';
import { createOwner, firstOwnerLink, newPersonId } from '../../../src/accounts/owner.ts';
import type { Secret } from '../../../src/accounts/secret.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import { Attempts } from '../../../src/accounts/users/attempts.ts';
import { endingClaims } from '../../accounts/users/ending-claims.ts';
import { attemptClaims, secret } from '../../accounts/users/attempt-claims.ts';
import { memberSubject } from '../../../src/store/budget.ts';
import { clientConfig } from '../../../src/store/postgres/connection.ts';
import { uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { customer, openReplica, type Replica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const rounds = 20;
const dayMs = 86_400_000;
const isConflict = (error: unknown): boolean => error instanceof StoreError && error.code === 'conflict';

interface Scene {
  readonly url: string;
  readonly replicas: readonly [Replica, Replica];
  readonly both: readonly [Repositories, Repositories];
}

async function open(t: TestContext): Promise<Scene> {
  const url = await server.databaseWithTables();
  const replicas = [await openReplica(t, url), await openReplica(t, url)] as const;
  await customer(replicas[0].store, 'acct_a', 0n);
  return { url, replicas, both: [replicas[0].store.repositories, replicas[1].store.repositories] };
}

describe('two replicas count attempts to sign in as one:', () =>
  attemptClaims(async (t, now) => {
    const { both } = await open(t);
    return both.map((repositories) => new Attempts({ repositories, secret, now }));
  }));

describe('what ends what, on two replicas of which one serves:', () =>
  endingClaims(async (t) => (await open(t)).replicas[0].store));

const userRow = (id: string, email: string) => ({
  id,
  name: email,
  email,
  emailVerified: 1,
  image: null,
  createdAt: 1_700_000_000_123,
  updatedAt: 1_700_000_000_123,
});

async function person({ both }: Scene, name: string): Promise<string> {
  const id = newPersonId();
  await both[0].authStore({ act: 'create', table: 'auth_user', row: userRow(id, `${name}@example.org`) });
  return id;
}

const invitation = (email: string, token: string, role: 'viewer' | 'developer' = 'viewer') => ({
  id: `invite_${Buffer.from(uuid()).toString('hex')}`,
  accountId: 'acct_a',
  email,
  role,
  tokenHash: hashLinkToken(token),
  invitedBy: 'test',
  createdAt: Date.now(),
  expiresAt: Date.now() + dayMs,
});

test('the store of sign-in: rows come back as they were given, and of several that use one up one does', async (t) => {
  const scene = await open(t);
  const { both } = scene;
  const id = await person(scene, 'ada');
  const byId = [{ column: 'id', operator: 'eq', value: id, connector: 'AND' }] as const;
  const find = { act: 'find', table: 'auth_user', where: byId, limit: 1 } as const;
  const { rows } = await both[1].authStore(find);
  assert.deepEqual({ ...rows[0], twoFactorEnabled: 0 }, { ...userRow(id, 'ada@example.org'), twoFactorEnabled: 0 });
  const again = { act: 'create', table: 'auth_user', row: userRow(newPersonId(), 'ada@example.org') } as const;
  await assert.rejects(both[1].authStore(again), isConflict, 'an address is one person');

  for (let round = 0; round < rounds; round++) {
    const row = {
      id: newPersonId(),
      identifier: `reset:${round}`,
      value: id,
      expiresAt: Date.now() + dayMs,
      createdAt: Date.now(),
      updatedAt: Date.now(),
    };
    await both[0].authStore({ act: 'create', table: 'auth_verification', row });
    const where = [{ column: 'identifier', operator: 'eq', value: row.identifier, connector: 'AND' }] as const;
    const gone = await Promise.all(
      [0, 1, 0, 1].map((index) =>
        both[index]!.authStore({ act: 'delete', table: 'auth_verification', where, one: true }),
      ),
    );
    assert.equal(gone.filter(({ count }) => count === 1).length, 1, 'a token is good once');
  }

  const factor = { id: newPersonId(), secret: 's', backupCodes: '', userId: id, verified: 1 };
  await both[0].authStore({
    act: 'create',
    table: 'auth_two_factor',
    row: { ...factor, failedVerificationCount: 0, lockedUntil: null },
  });
  const ofUser = [{ column: 'userId', operator: 'eq', value: id, connector: 'AND' }] as const;
  await Promise.all(
    Array.from({ length: rounds }, (_, index) =>
      both[index % 2]!.authStore({
        act: 'update',
        table: 'auth_two_factor',
        where: ofUser,
        set: {},
        add: { failedVerificationCount: 1 },
        many: false,
      }),
    ),
  );
  const counted = await both[0].authStore({ act: 'find', table: 'auth_two_factor', where: ofUser, limit: 1 });
  assert.equal(counted.rows[0]!['failedVerificationCount'], rounds, 'no wrong code goes uncounted');
});

test('the link of the owner makes one, whichever replicas it is opened at', async (t) => {
  const { url, replicas, both } = await open(t);
  const serverSecret = { signIn: createSecretKey(Buffer.alloc(32, 7)) } as Secret;
  const services = replicas.map(({ store }) => ({
    repositories: store.repositories,
    now: () => store.now(),
    secret: serverSecret,
  }));
  const [link, ...others] = await Promise.all(
    [0, 1, 0, 1].map((index) => replicas[index]!.store.alone(() => firstOwnerLink(services[index]!))),
  );
  assert.ok(link !== undefined && others.every((one) => one?.token === link.token), 'all print one link');
  const made = await Promise.all(
    [0, 1, 0, 1].map((index) =>
      createOwner(
        { email: `owner${index}@example.org`, name: 'Olga', passwordHash: 'x' },
        services[index]! as never,
        link.token,
      ),
    ),
  );
  const winners = made.filter((one) => one !== undefined);
  assert.equal(winners.length, 1);
  assert.equal((await server.sql(url, 'select 1 from server_operator')).length, 1);
  assert.equal((await server.sql(url, 'select 1 from auth_user')).length, 1);
  assert.equal((await both[1].getMember({ accountId: 'acct_a', userId: winners[0]!.userId }))!.role, 'owner');
  assert.equal(await firstOwnerLink(services[1]!), undefined);
});

test('who signs in for the first time at two replicas at once gets one account', async (t) => {
  const scene = await open(t);
  for (let round = 0; round < rounds; round++) {
    const userId = await person(scene, `newcomer ${round}`);
    const outcomes = await Promise.allSettled(
      [0, 1, 0, 1].map(async (index) => {
        const { ledger } = scene.replicas[index]!.store;
        const id = newAccountId();
        await ledger.createAccount({
          id,
          name: 'own',
          creditLimitMicrocents: 0n,
          at: Date.now(),
          changeId: uuid(),
          recording: [
            { name: 'person_awaited', values: [userId] },
            { name: 'first_member', values: [id, Date.now(), userId] },
          ],
        });
        return id;
      }),
    );
    const made = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    assert.equal(made.length, 1, `round ${round}`);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') assert.ok(isConflict(outcome.reason), String(outcome.reason));
    const memberships = await scene.both[1].listMemberships({ userId });
    assert.deepEqual(
      memberships.map(({ accountId, role }) => [accountId, role]),
      [[made[0], 'owner']],
    );
    assert.equal((await server.sql(scene.url, `select 1 from account where kind = 0`)).length, 2 + round);
  }
});

test('owners who demote or remove each other at once leave one', async (t) => {
  const scene = await open(t);
  const { both } = scene;
  const [ada, ben] = [await person(scene, 'ada'), await person(scene, 'ben')];
  for (const userId of [ada, ben]) await both[0].addMember({ accountId: 'acct_a', userId, role: 'owner', at: 1 });
  for (let round = 0; round < rounds; round++) {
    const role = round % 2 === 0 ? 'admin' : null;
    const outcomes = await Promise.allSettled([
      both[0].setMemberRole({ accountId: 'acct_a', userId: ada, role }),
      both[1].setMemberRole({ accountId: 'acct_a', userId: ben, role }),
    ]);
    const refused = outcomes.filter(({ status }) => status === 'rejected') as readonly PromiseRejectedResult[];
    assert.equal(refused.length, 1, `round ${round}`);
    assert.ok(isConflict(refused[0]!.reason), String(refused[0]!.reason));
    const members = await both[1].listMembers({ accountId: 'acct_a', limit: 10 });
    assert.equal(members.filter((one) => one.role === 'owner').length, 1);
    for (const userId of [ada, ben]) {
      await both[0].addMember({ accountId: 'acct_a', userId, role: 'owner', at: 1 });
      await both[0].setMemberRole({ accountId: 'acct_a', userId, role: 'owner' });
    }
  }
});

const removals: Readonly<Record<string, (repositories: Repositories, userId: string) => Promise<unknown>>> = {
  'leaves an account': (repositories, userId) =>
    repositories.setMemberRole({ accountId: 'acct_a', userId, role: null }),
  'is deleted': (repositories, userId) =>
    repositories.erasePerson({ userId, at: Date.now(), requestId: 'req_1', entryIds: [uuid(), uuid()] }),
  'goes with their account': (repositories) =>
    repositories.eraseAccount({ accountId: 'acct_a', at: Date.now(), changeId: uuid() }),
};

for (const [what, remove] of Object.entries(removals))
  for (const first of ['the budget', 'the removal'] as const)
    test(`a member ${what} while they are given a budget, ${first} first: no budget is left`, async (t) => {
      const scene = await open(t);
      const { url, replicas, both } = scene;
      const [owner, userId] = [await person(scene, 'owner'), await person(scene, 'member')];
      await both[0].addMember({ accountId: 'acct_a', userId: owner, role: 'owner', at: 1 });
      await both[0].addMember({ accountId: 'acct_a', userId, role: 'viewer', at: 1 });
      await replicas[0].store.ledger.setAccountStatus('acct_a', 'suspended', Date.now(), uuid());
      const subject = memberSubject('acct_a', userId);
      const setBudget = (amountMicrocents: bigint): Promise<void> =>
        replicas[0].store.ledger.setBudget({
          kind: 'member_budget',
          subject,
          budget: { amountMicrocents, per: 'month' },
          spentBeforeMicrocents: 0n,
          at: Date.now(),
          changeId: uuid(),
        });
      // Somebody else has the row of the budget: whoever comes first stops there, in the middle of their transaction.
      const other = new pg.Client(clientConfig({ url }));
      await other.connect();
      t.after(() => other.end());
      if (first === 'the removal') await setBudget(1n);
      await other.query('begin');
      await other.query(
        first === 'the removal'
          ? `select 1 from budget where subject = '${subject}' for update`
          : `insert into budget (subject, amount, per, set_at) values ('${subject}', 1, 'month', 1)`,
      );
      const waiting = async (): Promise<number> =>
        (await server.sql(url, `select 1 from pg_stat_activity where wait_event_type = 'Lock'`)).length;
      const acts = [() => setBudget(2n), () => remove(both[1], userId)];
      if (first === 'the removal') acts.reverse();
      const begun: Promise<unknown>[] = [acts[0]!().then(noted, noted)];
      await until(async () => (await waiting()) === 1, 60_000);
      let isOver = false;
      begun.push(
        acts[1]!()
          .then(noted, noted)
          .finally(() => (isOver = true)),
      );
      await until(async () => isOver || (await waiting()) === 2, 60_000);
      await other.query('rollback');
      const [one, two] = await Promise.all(begun);
      const [set, removed] = first === 'the budget' ? [one, two] : [two, one];
      assert.ok(!(removed instanceof Error), String(removed));
      if (first === 'the budget') assert.equal(set, undefined);
      else assert.ok(set instanceof StoreError && set.code === 'not_found', String(set));
      assert.deepEqual(await server.sql(url, `select user_id from member where user_id = '${userId}'`), []);
      assert.deepEqual(await server.sql(url, `select subject from budget where subject = '${subject}'`), []);
    });

const noted = (outcome: unknown): unknown => outcome;

test('an invitation is accepted once, and of several to one address the last one counts', async (t) => {
  const scene = await open(t);
  const { url, both } = scene;
  const guest = await person(scene, 'guest');
  for (let round = 0; round < rounds; round++) {
    await both[0].createInvitation(invitation('guest@example.org', `known ${round}`));
    const tokenHash = hashLinkToken(`known ${round}`);
    const request = { tokenHash, userId: guest, email: 'guest@example.org', at: Date.now() };
    const joined = await Promise.all([0, 1, 0, 1].map((index) => both[index]!.acceptInvitation(request)));
    assert.equal(joined.filter((one) => one !== undefined).length, 1);
    await both[0].setMemberRole({ accountId: 'acct_a', userId: guest, role: null });

    const email = `new${round}@example.org`;
    await both[1].createInvitation(invitation(email, email));
    const anew = await Promise.allSettled(
      [0, 1, 0, 1].map((index) =>
        both[index]!.joinAnew({
          tokenHash: hashLinkToken(email),
          userId: newPersonId(),
          credentialId: newPersonId(),
          email,
          name: 'New',
          passwordHash: 'x',
          at: Date.now(),
        }),
      ),
    );
    const made = anew.filter((one) => one.status === 'fulfilled' && one.value !== undefined);
    assert.equal(made.length, 1, JSON.stringify(anew));
    assert.equal((await server.sql(url, `select 1 from auth_user where email = '${email}'`)).length, 1);

    const twice = `twice${round}@example.org`;
    await Promise.all(
      [0, 1, 0, 1].map((index, each) =>
        both[index]!.createInvitation(invitation(twice, `${twice} ${each}`, each % 2 === 0 ? 'viewer' : 'developer')),
      ),
    );
    const left = await server.sql(url, `select 1 from invitation where email = '${twice}'`);
    assert.equal(left.length, 1, 'none of the earlier ones is left open');
  }
});

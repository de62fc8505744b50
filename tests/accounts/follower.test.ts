import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import fc from 'fast-check';

import { Directory, isEntitled, type Cut } from '../../src/accounts/directory.ts';
import { Follower } from '../../src/accounts/follower.ts';
import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { pricesAt } from '../../src/billing/account-prices.ts';
import { memberSubject, type Budget } from '../../src/store/budget.ts';
import type { Change } from '../../src/store/feed.ts';
import { followAlone } from '../../src/store/sqlite/feed.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { capableModel } from '../inference/pipeline/models.ts';
import { customer, openStore, temporaryFolder, uuid } from '../store/fixture.ts';

const secretOf = (text: string) =>
  openSecret({ fromEnvironment: text.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const secret = secretOf('s');

function memory() {
  const directory = new Directory(secret);
  const warnings: string[] = [];
  const cuts: Cut[] = [];
  directory.listen((cut) => cuts.push(cut));
  const follower = new Follower({ directory, now: Date.now, warn: (message) => warnings.push(message) });
  return { directory, follower, warnings, cuts };
}

async function newKey(store: SqliteStore, accountId: string, madeWith = secret) {
  const { text, row } = issueKey({ accountId, name: 'mine', secret: madeWith, now: 0 });
  await store.repositories.createKey({ key: row, changeId: uuid() });
  return { text, id: row.id };
}

test('what is read again is what is loaded: changes may come late, twice, in any order, or only be found by loading', async (t) => {
  const accountIds = ['acct_a', 'acct_b'];
  const steps = fc.array(fc.record({ kind: fc.nat(9), pick: fc.nat(1000), isFollowed: fc.boolean() }), {
    maxLength: 25,
  });
  await fc.assert(
    fc.asyncProperty(steps, fc.nat(), async (list, order) => {
      const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
      for (const id of accountIds) await customer(store, id, 0n);
      const followed = memory();
      await followed.follower.loadAll(store.repositories);
      const keys: { readonly text: string; readonly id: string }[] = [];
      let changes: Change[] = [];
      let at = Date.now();
      for (const { kind, pick, isFollowed } of list) {
        at += 1;
        const accountId = accountIds[pick % 2]!;
        const key = keys[pick % Math.max(keys.length, 1)];
        const facts = { at, changeId: uuid() };
        const models = pick % 3 === 0 ? null : ['one', 'two'].slice(0, pick % 3);
        if (kind === 0 || key === undefined) {
          const made = await newKey(store, accountId);
          keys.push(made);
          changes.push({ kind: 'key_created', ref: made.id });
        } else if (kind === 1) {
          await store.repositories.revokeKey({ keyId: key.id, ...facts });
          changes.push({ kind: 'key_revoked', ref: key.id });
        } else if (kind === 2) {
          await store.repositories.allowKey({ keyId: key.id, models, ...facts });
          changes.push({ kind: 'key_models', ref: key.id });
        } else if (kind === 3) {
          await store.repositories.allowAccount({ accountId, models, ...facts });
          changes.push({ kind: 'account_models', ref: accountId });
        } else if (kind <= 5) {
          const status = kind === 4 ? 'suspended' : 'active';
          await store.ledger.setAccountStatus(accountId, status, at, facts.changeId);
          changes.push({ kind: 'account_status', ref: accountId });
        } else if (kind === 6) {
          const rates = { input: BigInt(pick), output: 1n, cacheRead: 0n };
          const price = { accountId, modelId: 'one', validFrom: at, validTo: null, ...rates };
          await store.repositories.addAccountPrice({ price, ...facts });
          changes.push({ kind: 'account_price', ref: accountId });
        } else if (kind === 7) {
          await store.repositories.endAccountPrices({ accountId, modelId: 'one', ...facts });
          changes.push({ kind: 'account_price', ref: accountId });
        } else {
          const change = kind === 8 ? 'key_budget' : 'account_budget';
          const subject = kind === 8 ? key.id : accountId;
          const budget = pick % 3 === 0 ? null : ({ amountMicrocents: BigInt(pick), per: 'day' } as const);
          const isGone = await store.ledger
            .setBudget({ kind: change, subject, budget, spentBeforeMicrocents: 0n, ...facts })
            .then(
              () => false,
              () => true, // the key was revoked
            );
          if (!isGone) changes.push({ kind: change, ref: subject });
        }
        if (!isFollowed) continue;
        const mixed = [...changes, ...changes].toSorted((a, b) => weight(a, order) - weight(b, order));
        await followed.follower.follow([...mixed, { kind: 'novelty', ref: 'x' }], store.repositories);
        changes = [];
      }
      // What is left was missed.
      if (changes.length > 0) await followed.follower.loadAll(store.repositories);
      const loaded = memory();
      await loaded.follower.loadAll(store.repositories);
      const model = { ...capableModel, id: 'one' };
      for (const { text } of keys) {
        const [is, should] = [followed, loaded].map(({ directory }) => {
          const caller = directory.find(text);
          return typeof caller !== 'object'
            ? caller
            : {
                id: caller.key.id,
                entitled: ['one', 'two'].map((id) => isEntitled(caller, id)),
                budgets: [caller.key.budget, caller.account.budget],
                prices: pricesAt(model, caller.account.rates, at + 1),
              };
        });
        assert.deepEqual(is, should);
      }
      assert.equal(followed.directory.size, loaded.directory.size);
      await store.close();
    }),
    { numRuns: 10 },
  );
});

const weight = ({ ref }: Change, order: number): number =>
  [...ref].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0) + order) % 1009, 7);

test('running requests hear of what was revoked or suspended elsewhere, each once, also when it was missed', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  for (const id of ['acct_a', 'acct_b']) await customer(store, id, 0n);
  const [one, two, other] = [
    await newKey(store, 'acct_a'),
    await newKey(store, 'acct_a'),
    await newKey(store, 'acct_b'),
  ];
  const { directory, follower, cuts } = memory();
  await follower.loadAll(store.repositories);
  await store.repositories.revokeKey({ keyId: one.id, at: 1, changeId: uuid() });
  const change = { kind: 'key_revoked', ref: one.id };
  await follower.follow([change, change], store.repositories);
  await follower.follow([change], store.repositories);
  assert.deepEqual(cuts.splice(0), [{ kind: 'key_revoked', keyId: one.id }]);
  await store.repositories.revokeKey({ keyId: two.id, at: 1, changeId: uuid() });
  await store.ledger.setAccountStatus('acct_b', 'suspended', 1, uuid());
  await follower.loadAll(store.repositories);
  assert.deepEqual(
    cuts
      .splice(0)
      .map(({ kind }) => kind)
      .toSorted(),
    ['account_suspended', 'key_revoked'],
  );
  await follower.loadAll(store.repositories);
  assert.deepEqual(cuts, []);
  assert.equal(directory.size, 1);
  assert.equal(directory.find(other.text), undefined, 'suspended');
  await store.ledger.setAccountStatus('acct_b', 'active', 2, uuid());
  await follower.follow([{ kind: 'account_status', ref: 'acct_b' }], store.repositories);
  assert.notEqual(directory.find(other.text), undefined);
});

test('a key of another secret keeps a service from starting, and a running one from nothing', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const { directory, follower, warnings } = memory();
  await follower.loadAll(store.repositories);
  const strange = await newKey(store, 'acct_a', secretOf('t'));
  const own = await newKey(store, 'acct_a');
  const changes = [strange, own].map(({ id }) => ({ kind: 'key_created', ref: id }));
  await follower.follow(changes, store.repositories);
  assert.notEqual(directory.find(own.text), undefined);
  assert.equal(directory.find(strange.text), undefined);
  await follower.loadAll(store.repositories);
  assert.equal(warnings.length, 2);
  assert.match(warnings[0]!, /1 API keys were created with another secret/);
  await assert.rejects(memory().follower.loadAll(store.repositories), /created with another secret/);
});

test('a holder of balances hears whose budget has changed after the change is in force, and of maybe all when changes were missed', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const { id, text } = await newKey(store, 'acct_a');
  const directory = new Directory(secret);
  const heard: (readonly [subject: string | undefined, ...amounts: (bigint | undefined)[]])[] = [];
  const follower = new Follower({
    directory,
    now: Date.now,
    warn: assert.fail,
    budgetChanged: (subject) => {
      const caller = directory.find(text);
      assert.ok(typeof caller === 'object');
      heard.push([subject, caller.key.budget?.amountMicrocents, caller.account.budget?.amountMicrocents]);
    },
  });
  await follower.loadAll(store.repositories);
  const facts = { spentBeforeMicrocents: 0n, at: 1 };
  const set = (kind: 'key_budget' | 'account_budget', subject: string, amountMicrocents: bigint) =>
    store.ledger.setBudget({ kind, subject, budget: { amountMicrocents, per: 'day' }, changeId: uuid(), ...facts });
  await set('key_budget', id, 5n);
  await follower.follow([{ kind: 'key_budget', ref: id }], store.repositories);
  await set('account_budget', 'acct_a', 7n);
  await follower.follow([{ kind: 'account_budget', ref: 'acct_a' }], store.repositories);
  await follower.follow([{ kind: 'account_status', ref: 'acct_a' }], store.repositories);
  await set('key_budget', id, 6n);
  await follower.loadAll(store.repositories);
  assert.deepEqual(heard, [
    [id, 5n, undefined],
    ['acct_a', 5n, 7n],
    [undefined, 6n, 7n],
  ]);
});

test('a budget of a member reaches all of their keys, also new ones, and no other', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const userId = 'a'.repeat(32);
  const invited = { accountId: 'acct_a', email: 'm@example.com', tokenHash: new Uint8Array(32).fill(7) };
  const terms = { role: 'developer', invitedBy: '', createdAt: 0, expiresAt: 1e15 } as const;
  await store.repositories.createInvitation({ ...invited, ...terms, id: `inv_${'0'.repeat(32)}` });
  const person = { userId, credentialId: 'b'.repeat(32), name: 'M', passwordHash: 'x', at: 1 };
  await store.repositories.joinAnew({ ...person, tokenHash: invited.tokenHash, email: invited.email });
  const made = async (owner: string | null): Promise<string> => {
    const { text, row } = issueKey({ accountId: 'acct_a', name: 'x', secret, now: 0 });
    await store.repositories.createKey({ key: { ...row, userId: owner }, changeId: uuid() });
    return text;
  };
  const keys = [await made(userId), await made(userId), await made(null), await made('c'.repeat(32))];
  const { directory, follower } = memory();
  await follower.loadAll(store.repositories);
  const known = (texts: readonly string[]) =>
    texts.map((text) => {
      const caller = directory.find(text);
      assert.ok(typeof caller === 'object');
      return caller.key.member;
    });
  const none = [undefined, undefined, undefined, undefined];
  assert.deepEqual(known(keys), none);
  const subject = memberSubject('acct_a', userId);
  const set = async (budget: Budget | null) => {
    const facts = { spentBeforeMicrocents: 0n, at: 1, changeId: uuid() };
    await store.ledger.setBudget({ kind: 'member_budget', subject, budget, ...facts });
    await follower.follow([{ kind: 'member_budget', ref: subject }], store.repositories);
  };
  const budget = { amountMicrocents: 5n, per: 'day' } as const;
  await set(budget);
  const theirs = { id: subject, budget };
  assert.deepEqual(known(keys), [theirs, theirs, undefined, undefined]);
  const later = await made(userId);
  await follower.loadAll(store.repositories);
  assert.deepEqual(known([later]), [theirs]);
  await set(null);
  assert.deepEqual(known(keys), none);
  await set(budget);
  await store.repositories.setMemberRole({ accountId: 'acct_a', userId, role: null });
  assert.equal(await store.repositories.getBudget({ subject }), null, 'it goes with the member');
  await assert.rejects(set(budget), { code: 'not_found' });
});

test('the only process reads again what it has changed until it can: a revoked key ends although queries fail', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  const { id, text } = await newKey(store, 'acct_a');
  const { directory, follower, cuts } = memory();
  let failures = 0;
  const repositories = new Proxy(store.repositories, {
    get: (real, name) =>
      name === 'loadKeys' && failures > 0 && failures-- > 0
        ? () => Promise.reject(new StoreError('busy', 'too many reports are waiting'))
        : real[name as keyof typeof real],
  });
  const feed = await followAlone(repositories, follower);
  t.after(() => feed.close());
  assert.ok(typeof directory.find(text) === 'object');
  await store.repositories.revokeKey({ keyId: id, at: Date.now(), changeId: uuid() });
  failures = 2;
  assert.equal(await feed.catchUp([{ kind: 'key_revoked', ref: id }]), true);
  assert.equal(directory.find(text), undefined);
  assert.deepEqual([failures, cuts], [0, [{ kind: 'key_revoked', keyId: id }]]);
  await feed.close();
  assert.equal(await feed.catchUp([{ kind: 'key_revoked', ref: id }]), false, 'nothing is read any more');
});

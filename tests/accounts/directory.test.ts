import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, isEntitled, type Cut, type KnownAccount } from '../../src/accounts/directory.ts';
import { issueKey, newKey, type KeyText } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import type { LoadedKey } from '../../src/store/repositories/loaded-keys.ts';

const secretOf = (text: string) =>
  openSecret({ fromEnvironment: text.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const secret = secretOf('s');
const noRates = new Map<string, never>();

function key(accountId = 'acct_a', changes: Partial<LoadedKey> = {}): { text: KeyText; loaded: LoadedKey } {
  const { text, row } = issueKey({ accountId, name: 'mine', secret, now: 0 });
  return {
    text,
    loaded: {
      ...row,
      accountStatus: 'active',
      accountModels: null,
      accountPlan: null,
      budget: null,
      accountBudget: null,
      accountLimits: null,
      ...changes,
    },
  };
}

/** An account that is active and has no restrictions but these. */
const account = (id: string, changes: Partial<KnownAccount> = {}): KnownAccount => ({
  id,
  status: 'active',
  models: null,
  plan: null,
  limits: null,
  budget: null,
  rates: [],
  ...changes,
});

test('a live key is found, junk is malformed, any other key is unknown', () => {
  const directory = new Directory(secret);
  const { text, loaded } = key('acct_a');
  directory.load([loaded, key('acct_b').loaded], noRates);
  assert.equal(directory.size, 2);
  assert.deepEqual(directory.find(text), {
    account: {
      id: 'acct_a',
      models: undefined,
      plan: undefined,
      limits: undefined,
      zdrRequired: undefined,
      tier: undefined,
      tiers: undefined,
      budget: undefined,
      modelBudgets: undefined,
      aliases: undefined,
      rates: undefined,
    },
    key: {
      id: loaded.id,
      accountId: 'acct_a',
      userId: null,
      name: 'mine',
      access: undefined,
      rates: undefined,
      isPlanKey: undefined,
      tier: undefined,
      tiers: undefined,
      models: undefined,
      budget: undefined,
      modelBudgets: undefined,
      member: undefined,
      tags: undefined,
      isManagement: undefined,
      expiresAt: null,
    },
  });
  assert.equal(directory.find(newKey()), undefined);
  for (const junk of [
    '',
    'Bearer',
    `${text}x`,
    text.slice(0, -1),
    `${text.slice(0, -1)}${text.endsWith('0') ? '1' : '0'}`,
  ]) {
    assert.equal(directory.find(junk), 'malformed', junk);
  }
});

test('budgets of accounts and keys are known, and follow their changes', () => {
  const directory = new Directory(secret);
  const ofKey = { amountMicrocents: 10n, per: 'day' } as const;
  const ofAccount = { amountMicrocents: 20n, per: 'total' } as const;
  const one = key('acct_a', { budget: ofKey, accountBudget: ofAccount });
  const two = key('acct_a', { accountBudget: ofAccount });
  directory.load([one.loaded, two.loaded], noRates);
  const found = (text: KeyText) => {
    const caller = directory.find(text);
    assert.ok(typeof caller === 'object');
    return [caller.key.budget, caller.account.budget];
  };
  assert.deepEqual(
    [found(one.text), found(two.text)],
    [
      [ofKey, ofAccount],
      [undefined, ofAccount],
    ],
  );
  const before = directory.find(one.text);
  directory.load([{ ...one.loaded, budget: ofAccount }], noRates);
  directory.setAccount(account('acct_a'));
  assert.deepEqual(
    [found(one.text), found(two.text)],
    [
      [ofAccount, undefined],
      [undefined, undefined],
    ],
  );
  assert.ok(typeof before === 'object');
  assert.deepEqual(
    [before.key.budget, before.account.budget],
    [ofKey, ofAccount],
    'what runs keeps what it began with',
  );
  directory.load([{ ...one.loaded, budget: null, accountBudget: null }], noRates);
  assert.deepEqual(found(one.text), [undefined, undefined]);
  directory.load([{ ...two.loaded, budget: ofKey }], noRates);
  assert.deepEqual(found(two.text), [ofKey, ofAccount]);
});

test('plans and limits of accounts and keys are known, and follow their changes', () => {
  const directory = new Directory(secret);
  const { text, loaded } = key('acct_a', {
    accountPlan: 'standard',
    accountLimits: '{"concurrencyMax":3}',
    limits: '{"planKey":true,"requestsPerMinute":5}',
  });
  directory.load([loaded], noRates);
  const found = () => {
    const caller = directory.find(text);
    assert.ok(typeof caller === 'object');
    const { account, key } = caller;
    return [
      account.plan,
      account.limits?.concurrencyMax,
      key.isPlanKey,
      key.rates?.requestsPerMinute,
      key.rates?.tokensPerMinute,
    ];
  };
  assert.deepEqual(found(), ['standard', 3, true, 5, undefined]);
  const before = directory.find(text);
  directory.load([{ ...loaded, limits: '{"tokensPerMinute":7}' }], noRates);
  directory.setAccount(account('acct_a', { plan: 'large' }));
  assert.deepEqual(found(), ['large', undefined, undefined, undefined, 7]);
  // Requests that run keep what they began with.
  assert.ok(typeof before === 'object');
  assert.deepEqual([before.account.plan, before.key.rates?.requestsPerMinute], ['standard', 5]);
  directory.load([{ ...loaded, limits: null }], noRates);
  directory.setAccount(account('acct_a'));
  assert.deepEqual(found(), [undefined, undefined, undefined, undefined, undefined]);
});

test('a new key is found at once; a revoked one never again, and running requests hear of it', () => {
  const directory = new Directory(secret);
  const { text, loaded } = key();
  const cuts: Cut[] = [];
  const stop = directory.listen((cut) => cuts.push(cut));
  directory.load([loaded], noRates);
  assert.notEqual(directory.find(text), undefined);
  directory.revoke(loaded.id);
  directory.revoke(loaded.id);
  assert.equal(directory.find(text), undefined);
  assert.equal(directory.size, 0);
  assert.deepEqual(cuts, [{ kind: 'key_revoked', keyId: loaded.id }]);
  stop();
  directory.setAccount(account('acct_a', { status: 'suspended' }));
  assert.equal(cuts.length, 1);
});

test('a suspended account has no live key, and has them back when it is active again', () => {
  const directory = new Directory(secret);
  const cuts: Cut[] = [];
  directory.listen((cut) => cuts.push(cut));
  const one = key('acct_a');
  const other = key('acct_b');
  const before = key('acct_c', { accountStatus: 'suspended' });
  directory.load([one.loaded, other.loaded, before.loaded], noRates);
  assert.equal(directory.find(before.text), undefined);
  assert.deepEqual(cuts.splice(0), [{ kind: 'account_suspended', accountId: 'acct_c' }]);
  directory.setAccount(account('acct_a', { status: 'suspended' }));
  assert.equal(directory.find(one.text), undefined);
  assert.notEqual(directory.find(other.text), undefined);
  assert.deepEqual(cuts, [{ kind: 'account_suspended', accountId: 'acct_a' }]);
  directory.setAccount(account('acct_a'));
  directory.setAccount(account('acct_c'));
  assert.notEqual(directory.find(one.text), undefined);
  assert.notEqual(directory.find(before.text), undefined);
});

test('a key ends at its time, without anybody doing anything', () => {
  let now = 99;
  const directory = new Directory(secret, () => now);
  const { text, loaded } = key('acct_a', { expiresAt: 100 });
  directory.load([loaded], noRates);
  assert.notEqual(directory.find(text), undefined);
  now = 100;
  assert.equal(directory.find(text), undefined);
});

test('keys that were made with another secret are reported in words instead of never matching', () => {
  const { loaded } = key();
  const directory = new Directory(secretOf('t'));
  assert.throws(
    () => directory.load([loaded], noRates),
    /1 of 1 API keys .* created with another secret .* Restore TOKENHOUSE_SECRET/,
  );
  assert.equal(directory.size, 0);
});

test('§5.5: a key may use what both its account and itself are allowed, at once after a change', () => {
  const directory = new Directory(secret);
  const limited = key('acct_a', { models: ['one', 'two'], accountModels: ['two', 'three'] });
  const free = key('acct_a', { accountModels: ['two', 'three'] });
  const other = key('acct_b');
  directory.load([limited.loaded, free.loaded, other.loaded], noRates);
  const usable = ({ text }: { text: KeyText }): string[] => {
    const caller = directory.find(text);
    assert.ok(typeof caller === 'object');
    return ['One', 'TWO', 'three', 'four'].filter((id) => isEntitled(caller, id));
  };
  assert.deepEqual([usable(limited), usable(free)], [['TWO'], ['TWO', 'three']]);
  assert.deepEqual(usable(other), ['One', 'TWO', 'three', 'four']);

  const before = directory.find(limited.text);
  directory.load([{ ...limited.loaded, models: ['three'] }], noRates);
  assert.deepEqual(usable(limited), ['three']);
  assert.ok(typeof before === 'object' && isEntitled(before, 'two'), 'what runs keeps what it had');
  directory.setAccount(account('acct_a'));
  assert.deepEqual([usable(limited), usable(free)], [['three'], ['One', 'TWO', 'three', 'four']]);
  directory.setAccount(account('acct_a', { models: [] }));
  assert.deepEqual([usable(limited), usable(free)], [[], []]);
  directory.revoke('key_nobody');
});

test('a rotated key is one key with two secrets, until the earlier one ends or another rotation ends it', () => {
  let now = 1_000;
  const directory = new Directory(secret, () => now);
  const cuts: Cut[] = [];
  directory.listen((cut) => cuts.push(cut));
  const first = key();
  const [second, third] = [key(), key()];
  directory.load([first.loaded], noRates);
  const rotate = (to: typeof first, from: typeof first, endsAt: number | null): void =>
    directory.load(
      [
        {
          ...first.loaded,
          hash: to.loaded.hash,
          previous: endsAt === null ? null : { hash: from.loaded.hash, endsAt },
        },
      ],
      noRates,
    );
  const idOf = (text: KeyText): string | undefined => {
    const found = directory.find(text);
    return typeof found === 'object' ? found.key.id : undefined;
  };
  const idsOf = (): readonly (string | undefined)[] => [first, second, third].map(({ text }) => idOf(text));
  const { id } = first.loaded;

  rotate(second, first, 2_000);
  assert.deepEqual(idsOf(), [id, id, undefined]);
  assert.equal(directory.size, 1);
  now = 2_000;
  assert.deepEqual(idsOf(), [undefined, id, undefined], 'it ends at that very moment');
  now = 1_500;
  rotate(third, second, 5_000);
  assert.deepEqual(idsOf(), [undefined, id, id], 'a second rotation ends the first overlap');
  rotate(third, second, null);
  assert.deepEqual(idsOf(), [undefined, undefined, id]);
  assert.deepEqual(cuts, [], 'requests go on through a rotation');
  directory.revoke(id);
  assert.deepEqual(idsOf(), [undefined, undefined, undefined]);
  assert.equal(directory.size, 0);
});

test('a paused key lets nobody in and is cut once; it is the same key when it goes on', () => {
  const directory = new Directory(secret);
  const cuts: Cut[] = [];
  directory.listen((cut) => cuts.push(cut));
  const { text, loaded } = key();
  directory.load([loaded], noRates);
  for (let times = 0; times < 2; times++) directory.load([{ ...loaded, isPaused: true }], noRates);
  assert.equal(directory.find(text), undefined);
  assert.deepEqual(cuts, [{ kind: 'key_paused', keyId: loaded.id }]);
  directory.load([loaded], noRates);
  const found = directory.find(text);
  assert.ok(typeof found === 'object');
  assert.equal(found.key.id, loaded.id);
});

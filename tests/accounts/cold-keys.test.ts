import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import fc from 'fast-check';
import { Directory, isEntitled, type Cut } from '../../src/accounts/directory.ts';
import { Follower } from '../../src/accounts/follower.ts';
import { issueKey, newKey } from '../../src/accounts/key.ts';
import { KeyLookUps } from '../../src/accounts/key-look-ups.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { pricesAt } from '../../src/billing/account-prices.ts';
import { ApiError } from '../../src/platform/errors.ts';
import type { Change } from '../../src/store/feed.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { capableModel } from '../inference/pipeline/models.ts';
import { customer, openStore, temporaryFolder, uuid } from '../store/fixture.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const keysMax = 3;
const model = { ...capableModel, id: 'one' };

interface Running {
  readonly keyId: string;
  readonly accountId: string;
}

/** A process with so many keys in memory, and the requests that run in it. */
function process(repositories: Repositories, now: () => number, most: number, cut = () => {}) {
  const directory = new Directory(secret, now, most);
  const running = new Set<Running>();
  directory.listen((what: Cut) => {
    for (const one of running)
      if (what.kind === 'account_suspended' ? what.accountId === one.accountId : what.keyId === one.keyId) {
        running.delete(one);
        cut();
      }
  });
  const runningKeys = () => [...running].map(({ keyId }) => keyId);
  const follower = new Follower({ directory, now, runningKeys, warn: assert.fail });
  const lookUps = new KeyLookUps({ directory, repositories, now });
  /** All that a request reads of its caller. */
  const answer = (text: string) => {
    const caller = directory.find(text);
    if (typeof caller !== 'object') return caller;
    const { key, account } = caller;
    return {
      id: key.id,
      accountId: account.id,
      entitled: ['one', 'two'].map((id) => isEntitled(caller, id)),
      budgets: [key.budget, account.budget],
      rates: [key.rates?.requestsPerMinute, account.limits?.concurrencyMax, account.plan],
      prices: pricesAt(model, account.rates, now()),
      expiresAt: key.expiresAt,
    };
  };
  const isRunning = ({ keyId }: Running): boolean => [...running].some((one) => one.keyId === keyId);
  const begin = (text: string): void => {
    const caller = directory.find(text);
    if (typeof caller !== 'object') return;
    const one = { keyId: caller.key.id, accountId: caller.account.id };
    if (!isRunning(one)) running.add(one);
  };
  return { directory, running, isRunning, follower, lookUps, answer, begin };
}

/** The database as look-ups see it: what they have read arrives later, and sometimes not at all. */
function slowly(repositories: Repositories) {
  const held: (() => void)[] = [];
  let failures = 0;
  const slow =
    <Request, Answer>(read: (request: Request) => Promise<Answer>) =>
    async (request: Request): Promise<Answer> => {
      const answer = await read(request);
      await new Promise<void>((resolve) => held.push(resolve));
      if (failures > 0 && failures-- > 0) throw new StoreError('busy', 'too much is waiting');
      return answer;
    };
  return {
    repositories: {
      ...repositories,
      findKeys: slow((request: Parameters<Repositories['findKeys']>[0]) => repositories.findKeys(request)),
      listAccountPrices: slow((request: Parameters<Repositories['listAccountPrices']>[0]) =>
        repositories.listAccountPrices(request),
      ),
      listKeyHashes: slow((request: Parameters<Repositories['listKeyHashes']>[0]) =>
        repositories.listKeyHashes(request),
      ),
    } as Repositories,
    release: () => held.shift()?.(),
    fail: () => void failures++,
    releaseAll: async (until: () => boolean) => {
      while (!until()) {
        for (const release of held.splice(0)) release();
        await nextTurn();
      }
    },
  };
}

const steps = fc.array(
  fc.record({ kind: fc.nat(31), pick: fc.nat(1000), isFollowed: fc.boolean(), releases: fc.nat(2) }),
  { minLength: 30, maxLength: 60 },
);
type Step = typeof steps extends fc.Arbitrary<readonly (infer One)[]> ? One : never;

interface Made {
  readonly id: string;
  readonly accountId: string;
  /** Its secrets, the newest last. */
  readonly texts: string[];
}

/** Changes the database as the step says; what the feed would say of it. */
async function change(
  store: SqliteStore,
  { kind, pick }: Step,
  accountIds: readonly string[],
  made: Made[],
  at: number,
): Promise<Change | undefined> {
  const { repositories, ledger } = store;
  const accountId = accountIds[pick % accountIds.length]!;
  const facts = { at, changeId: uuid() };
  const key = made[pick % Math.max(made.length, 1)];
  if (kind <= 1 || key === undefined) {
    const expiresAt = pick % 5 === 0 ? at + 40 : null;
    const { text, row } = issueKey({ accountId, name: 'mine', secret, now: at, expiresAt });
    await repositories.createKey({ key: row, changeId: facts.changeId });
    made.push({ id: row.id, accountId, texts: [text] });
    return { kind: 'key_created', ref: row.id };
  }
  const keyId = key.id;
  const models = pick % 3 === 0 ? null : ['one', 'two'].slice(0, pick % 3);
  switch (kind) {
    case 2:
      await repositories.revokeKey({ keyId, ...facts });
      return { kind: 'key_revoked', ref: keyId };
    case 3: {
      const { text, row } = issueKey({ accountId, name: 'next', secret, now: at });
      const { hash, pepperId, display } = row;
      const previousEndsAt = pick % 2 === 0 ? null : at + 20;
      const rotated = await repositories.rotateKey({ keyId, hash, pepperId, display, previousEndsAt, ...facts });
      if (rotated === undefined) return undefined;
      key.texts.push(text);
      return { kind: 'key_rotated', ref: keyId };
    }
    case 4:
    case 16:
      await repositories.editKey({ keyId, disabled: pick % 2 === 0, ...facts });
      return { kind: 'key_edited', ref: keyId };
    case 5:
      await repositories.allowKey({ keyId, models, ...facts });
      return { kind: 'key_models', ref: keyId };
    case 6:
      await repositories.limitKey({ keyId, limits: { requestsPerMinute: pick + 1 }, ...facts });
      return { kind: 'key_limits', ref: keyId };
    case 7:
    case 8:
    case 17:
      await ledger.setAccountStatus(accountId, kind === 7 ? 'suspended' : 'active', at, facts.changeId);
      return { kind: 'account_status', ref: accountId };
    case 9: {
      const rates = { input: BigInt(pick), output: 1n, cacheRead: 0n };
      const price = { accountId, modelId: 'one', validFrom: at, validTo: null, ...rates };
      await repositories.addAccountPrice({ price, ...facts });
      return { kind: 'account_price', ref: accountId };
    }
    case 10:
      await repositories.endAccountPrices({ accountId, modelId: 'one', ...facts });
      return { kind: 'account_price', ref: accountId };
    case 11:
      await repositories.allowAccount({ accountId, models, ...facts });
      return { kind: 'account_models', ref: accountId };
    case 12:
      await repositories.limitAccount({ accountId, limits: { concurrencyMax: pick + 1 }, ...facts });
      return { kind: 'account_limits', ref: accountId };
    case 13:
      await repositories.planAccount({ accountId, plan: pick % 2 === 0 ? null : 'large', ...facts });
      return { kind: 'account_plan', ref: accountId };
    default: {
      const of = pick % 2 === 0 ? ('key_budget' as const) : ('account_budget' as const);
      const subject = of === 'key_budget' ? keyId : accountId;
      const budget = pick % 3 === 0 ? null : ({ amountMicrocents: BigInt(pick), per: 'day' } as const);
      const isSet = await ledger.setBudget({ kind: of, subject, budget, spentBeforeMicrocents: 0n, ...facts }).then(
        () => true,
        () => false, // the key was revoked
      );
      return isSet ? { kind: of, ref: subject } : undefined;
    }
  }
}

test('with three keys in memory everybody gets the answer that they would get with all of them, and is cut when they would be', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  let accounts = 0;
  let at = 1_000;
  const counts = { answered: 0, refused: 0, cut: 0 };
  await fc.assert(
    fc.asyncProperty(steps, async (list) => {
      const accountIds = [`acct_${++accounts}`, `acct_${++accounts}`];
      for (const id of accountIds) await customer(store, id, 0n);
      const slow = slowly(store.repositories);
      const now = () => at;
      const all = process(store.repositories, now, Infinity, () => void counts.cut++);
      const some = process(slow.repositories, now, keysMax);
      const load = () => Promise.all([all, some].map(({ follower }) => follower.loadAll(store.repositories)));
      const made: Made[] = [];
      const create = { kind: 0, pick: 1, isFollowed: true, releases: 0 };
      for (let keys = 0; keys < 6; keys++) await change(store, create, accountIds.slice(keys % 2), made, at);
      await load();
      let changes: Change[] = [];
      const underWay = new Set<Promise<void>>();
      /** A look-up may have seen what no process has followed yet. */
      const isPending = ({ id, accountId }: Made): boolean =>
        changes.some(({ ref }) => ref === id || ref === accountId);
      const ownerOf = (text: string): Made | undefined => made.find(({ texts }) => texts.includes(text));
      const compare = (text: string): void => {
        const [found, owner] = [some.answer(text), ownerOf(text)];
        if (found === 'cold' || (owner !== undefined && isPending(owner))) return;
        assert.deepEqual(found, all.answer(text));
        for (const process of [all, some]) process.begin(text);
      };
      const compareRunning = (): void => {
        for (const one of all.running)
          if (isPending({ id: one.keyId, accountId: one.accountId, texts: [] }) && !some.isRunning(one))
            all.running.delete(one);
        assert.deepEqual(idsOf(some.running), idsOf(all.running));
      };
      const ask = (text: string): void => {
        compare(text);
        if (some.answer(text) !== 'cold') return;
        const reading = some.lookUps.read(text, '192.0.2.1').then(
          () => {
            assert.notEqual(some.answer(text), 'cold');
            // What it was when the read began may have changed, and the change be in force.
            compare(text);
            counts.answered++;
          },
          (error: unknown) => {
            assert.ok(error instanceof ApiError && error.retryAfterSeconds === 1, String(error));
            counts.refused++;
          },
        );
        const ended = reading.finally(() => underWay.delete(ended));
        underWay.add(ended);
      };
      for (const step of list) {
        at += 1;
        if (step.kind >= 18) {
          const key = made[step.pick % Math.max(made.length, 1)];
          ask(key === undefined || step.pick % 7 === 0 ? newKey() : key.texts[step.pick % key.texts.length]!);
          if (step.pick % 13 === 0) slow.fail();
          if (step.pick % 17 === 0) some.lookUps.fill();
        } else {
          const changed = await change(store, step, accountIds, made, at);
          if (changed !== undefined) changes.push(changed);
        }
        if (step.pick % 50 === 0) {
          changes = [];
          await load();
        } else if (step.isFollowed) {
          for (const { follower } of [all, some]) await follower.follow(changes, store.repositories);
          changes = [];
        }
        compareRunning();
        for (let releases = 0; releases < step.releases; releases++) {
          slow.release();
          await nextTurn();
        }
        for (const text of made.flatMap(({ texts }) => texts)) compare(text);
        compareRunning();
      }
      for (const { follower } of [all, some]) await follower.follow(changes, store.repositories);
      compareRunning();
      changes = [];
      await slow.releaseAll(() => underWay.size === 0);
      await Promise.all(underWay);
      await nextTurn();
      assert.ok(some.directory.size <= keysMax);
      // All of them, one after the other, whatever is in memory.
      for (const text of [...made.flatMap(({ texts }) => texts), newKey()]) {
        ask(text);
        await slow.releaseAll(() => underWay.size === 0);
        await Promise.all(underWay);
      }
      assert.deepEqual(idsOf(some.running), idsOf(all.running));
      some.lookUps.close();
      await slow.releaseAll(() => some.lookUps.waiting === 0);
    }),
    { numRuns: 30 },
  );
  // The property is of something.
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.answered > 100 && counts.refused > 5 && counts.cut > 0, JSON.stringify(counts));
});

const idsOf = (running: ReadonlySet<Running>): readonly string[] =>
  [...new Set([...running].map(({ keyId }) => keyId))].toSorted();

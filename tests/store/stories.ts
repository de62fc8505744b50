/**
 * What callers do with the store, one story for each family of operations, for the tests that make each of its calls fail. A story ends
 * with the same rows wherever it was interrupted.
 */
import assert from 'node:assert/strict';
import { openSecret } from '../../src/accounts/secret.ts';
import { UsageHeads } from '../../src/app/usage-heads.ts';
import { balanceAt } from '../../src/store/budget.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import type { RemovalCursor } from '../../src/store/retention/removal.ts';
import { openRequest } from './fixture.ts';
import { at, changeId, dayMs, hourMs, once, type Stage, type Step, type Story } from './stage.ts';

const cent = 1_000_000n;

const newAccount: Step = once(({ store, account: id }) =>
  store.ledger.createAccount({ id, name: 'A', creditLimitMicrocents: 0n, at, changeId: changeId() }),
);
const firstCredit: Step = (stage) => stage.store.ledger.transfer(stage.transfer(900, cent));
const newKey: Step = once((stage) => {
  const key = { id: stage.name('key'), accountId: stage.account, userId: null, name: 'K', display: 'tkh_…abcd' };
  const rest = { hash: stage.hash(901), pepperId: 'p', limits: null, models: null, createdAt: at, expiresAt: null };
  return stage.store.repositories.createKey({ key: { ...key, ...rest }, changeId: changeId() });
});

const settlement: Story = {
  name: 'hold and settle',
  before: [newAccount, firstCredit],
  steps: [
    (stage) => stage.hold(100n),
    (stage) => stage.settle(stage.usage(1, 70n, { holdMicrocents: 100n })),
    (stage) => stage.settle(stage.usage(3, 0n, { ending: 'failed' })),
    async (stage) => assert.equal((await stage.store.ledger.readBack(stage.id(1)))?.costMicrocents, 70n),
    (stage) => stage.store.ledger.probe(),
  ],
};

const running: Story = {
  name: 'a request that is listed as running',
  isOfProcess: true,
  before: [newAccount, firstCredit],
  steps: [
    (stage) => stage.hold(300n),
    // Rides with the next settlement.
    (stage) => {
      if (!stage.isAgain) stage.store.ledger.open(openRequest(stage.account, 300n, stage.id(1)));
      return stage.settle(stage.usage(2, 0n, { ending: 'failed' }));
    },
    (stage) => stage.settle(stage.usage(1, 300n)),
  ],
};

const budgetsOf = (stage: Stage): readonly string[] => [
  stage.account,
  balanceAt(stage.name('key'), 'total', at).id,
  balanceAt(stage.account, 'month', at).id,
];

const budgets: Story = {
  name: 'budgets, and a batch of settlements',
  before: [newAccount, firstCredit, newKey],
  steps: [
    (stage) => setBudget(stage, 'key_budget', stage.name('key'), { amountMicrocents: 5_000n, per: 'total' }),
    (stage) => setBudget(stage, 'account_budget', stage.account, { amountMicrocents: 9_000n, per: 'month' }),
    (stage) => stage.hold(400n, budgetsOf(stage)),
    (stage) =>
      Promise.all(
        [1, 2, 3, 4].map((number) =>
          stage.settle(
            stage.usage(number, BigInt(90 + number), {
              ...{ holdMicrocents: 100n, keyBudget: 'total', accountBudget: 'month' },
            }),
            budgetsOf(stage),
          ),
        ),
      ),
    (stage) => setBudget(stage, 'key_budget', stage.name('key'), { amountMicrocents: 7_000n, per: 'total' }),
    (stage) => setBudget(stage, 'account_budget', stage.account, null),
  ],
};

const setBudget = (
  { store }: Stage,
  kind: 'key_budget' | 'account_budget',
  subject: string,
  budget: { readonly amountMicrocents: bigint; readonly per: 'total' | 'month' } | null,
) => store.ledger.setBudget({ kind, subject, budget, spentBeforeMicrocents: 0n, at, changeId: changeId() });

const movements: Story = {
  name: 'grant, refund, debit and credit limit',
  before: [newAccount],
  steps: [
    firstCredit,
    (stage) => stage.hold(1_000n),
    (stage) => stage.settle(stage.usage(1, 1_000n)),
    (stage) => {
      const idempotencyKey = `refund:${Buffer.from(stage.id(1)).toString('hex')}`;
      return stage.store.ledger.transfer(stage.transfer(2, 400n, { kind: 'refund', idempotencyKey }));
    },
    (stage) => {
      const sides = { debitAccount: stage.account, creditAccount: systemAccounts.promo };
      return stage.store.ledger.transfer(stage.transfer(3, 5_000n, { ...sides, kind: 'adjust' }));
    },
    (stage) => stage.store.ledger.setCreditLimit(stage.account, 2_000n, at, changeId()),
    (stage) => stage.store.ledger.setCreditLimit(stage.account, 500n, at, changeId()),
    (stage) => stage.store.ledger.setAccountStatus(stage.account, 'suspended', at, changeId()),
  ],
};

const event = (stage: Stage, number: number, kind: string, outcome: string) =>
  [stage.name('prov'), `${stage.name('evt')}_${number}`, kind, stage.name('pay'), outcome, at, at] as const;

const payment: Story = {
  name: 'top-up, its payment, and its refund',
  before: [newAccount],
  steps: [
    (stage) =>
      stage.store.repositories.beginTopup({
        ...{ id: stage.name('topup'), accountId: stage.account, amountMicrocents: 5n * cent, origin: 'checkout' },
        ...{ provider: stage.name('prov'), idempotencyKey: stage.name('once'), successUrl: null, cancelUrl: null },
        ...{ createdAt: at, by: 'test' },
      }),
    (stage) =>
      stage.store.repositories.noteCheckout({
        id: stage.name('topup'),
        checkoutId: stage.name('cs'),
        checkoutUrl: '/',
      }),
    (stage) => {
      const [id, paymentId, topupId] = [stage.id(1), stage.name('pay'), stage.name('topup')];
      const made = [stage.name('prov'), paymentId, topupId, stage.account, 5n * cent, id, at] as const;
      return stage.store.ledger.transfer(
        stage.transfer(1, 5n * cent, {
          ...{ debitAccount: systemAccounts.cash, kind: 'topup', reference: topupId },
          idempotencyKey: `payment:${stage.name('prov')}:${paymentId}`,
          recording: [
            { name: 'payment_event', values: event(stage, 1, 'paid', 'applied') },
            { name: 'payment', values: made },
            { name: 'topup_paid', values: [paymentId, at, topupId] },
          ],
        }),
      );
    },
    (stage) => {
      const [provider, id, kind, subject, outcome] = event(stage, 2, 'paid', 'again');
      const record = { provider, id, kind, subject, outcome, createdAt: at, receivedAt: at };
      return stage.store.repositories.recordPaymentEvent(record);
    },
    (stage) =>
      stage.store.repositories.savePaymentMethod({
        ...{ accountId: stage.account, provider: stage.name('prov'), customerId: 'c', methodId: 'm', savedAt: at },
      }),
    (stage) =>
      stage.store.ledger.reverse({
        ...{ provider: stage.name('prov'), returnId: stage.name('re'), accountId: stage.account, at },
        ids: [stage.id(2), stage.id(3)],
        decision: {
          ...{ kind: 'refund', paymentId: stage.name('pay'), topupId: stage.name('topup'), amountMicrocents: cent },
          recording: [{ name: 'payment_event', values: event(stage, 3, 'refund', 'applied') }],
          recordingIfBeyond: [],
        },
      }),
    (stage) =>
      stage.store.ledger.reinstate({
        ...{ provider: stage.name('prov'), returnId: stage.name('re'), accountId: stage.account, at },
        ...{ ids: [stage.id(4), stage.id(5)], takenMicrocents: cent },
        recording: [{ name: 'payment_event', values: event(stage, 4, 'refund_failed', 'applied') }],
      }),
    (stage) => stage.store.repositories.notePaymentsSeen({ provider: stage.name('prov'), at }),
  ],
};

const owned = (stage: Stage, number: number) => {
  const ids = { accountId: stage.account, keyHash: stage.hash(number), requestId: stage.id(number) };
  return { ...ids, fingerprint: stage.hash(10), publicId: stage.name('req'), owner: stage.id(99), now: at };
};

const keyed: Story = {
  name: 'idempotency: claim, answer and leave',
  before: [newAccount, firstCredit],
  steps: [
    async (stage) => {
      const claimed = await stage.store.repositories.claimRequest({ ...owned(stage, 1), expiredAt: 0 });
      assert.equal(claimed.outcome, 'claimed');
    },
    (stage) => stage.hold(50n),
    (stage) => stage.settle(stage.usage(1, 50n)),
    async (stage) => {
      const answer = Uint8Array.of(1, 2, 3);
      assert.equal(await stage.store.repositories.keepAnswer({ ...owned(stage, 1), answer }), true);
    },
    async (stage) => {
      const claimed = await stage.store.repositories.claimRequest({
        ...{ ...owned(stage, 1), requestId: stage.id(7), owner: stage.id(98), expiredAt: 0 },
      });
      assert.equal(claimed.outcome, 'answered');
    },
    (stage) => stage.store.repositories.claimRequest({ ...owned(stage, 2), expiredAt: 0 }),
    (stage) => stage.store.repositories.leaveRequest(owned(stage, 2)),
    // A claim that is expired is renewed.
    (stage) => stage.store.repositories.claimRequest({ ...owned(stage, 3), now: at - 5, expiredAt: 0 }),
    (stage) => stage.store.repositories.claimRequest({ ...owned(stage, 3), requestId: stage.id(8), expiredAt: at - 5 }),
    (stage) => {
      const most = { accountBytesMax: 1e9, bytesMax: 1e12 };
      return stage.store.repositories.tidyRequests({ expiredAt: 0, accountIds: [stage.account], ...most });
    },
  ],
};

const fileOf = (stage: Stage, number = 1) => ({ id: stage.hex(number), accountId: stage.account });
const beginFile: Step = once((stage) => {
  const bounds = { filesMax: 9, bytesMax: 999 };
  return stage.store.repositories.beginFile({ ...fileOf(stage), bytesMax: 9, at, bounds });
});
const finishFile: Step = async (stage) => {
  const facts = {
    name: 'a.jsonl',
    mediaType: 'text/plain',
    purpose: 'batch',
    bytes: 5,
    createdAt: at,
    expiresAt: null,
  };
  const isReady = await stage.store.repositories.finishFile({ ...fileOf(stage), ...facts });
  assert.ok(isReady || stage.isAgain);
};

const files: Story = {
  name: 'file: put and delete',
  before: [newAccount],
  steps: [
    beginFile,
    finishFile,
    async (stage) => {
      const left = await stage.store.repositories.leaveFile({ ...fileOf(stage), now: at });
      assert.ok(typeof left === 'object' || (left === undefined && stage.isAgain));
    },
    (stage) => stage.store.repositories.unreadyFiles({ now: at, limit: 10 }),
    (stage) => stage.store.repositories.forgetFiles({ ids: [stage.hex(1)] }),
  ],
};

const batchOf = (stage: Stage) => ({ id: stage.hex(2), owner: stage.id(99) });
const lineOf = (stage: Stage, line: number) => ({ batchId: stage.hex(2), line, owner: stage.id(99) });
const claimLines: Step = async (stage) => {
  const { id, owner } = batchOf(stage);
  // The lines of an earlier claim whose answer did not come run nowhere.
  if (stage.isAgain) await stage.store.repositories.recoverLines({ id, self: owner, running: [], endsWaits: false });
  const claim = { id, modelId: 'model', owner, now: at, limit: 2 };
  assert.deepEqual(
    (await stage.store.repositories.claimBatchLines(claim)).map(({ line }) => line),
    [1, 2],
  );
};
const newBatch: readonly Step[] = [
  once((stage) => {
    const window = { createdAt: at, expiresAt: at + dayMs, outputExpiresAfterMs: null, metadata: null };
    const what = { wire: 'openai', endpoint: '/v1/chat/completions', inputFileId: stage.hex(1), requests: 0 } as const;
    const batch = { id: stage.hex(2), accountId: stage.account, keyId: stage.name('key'), ...what, ...window };
    return stage.store.repositories.createBatch({ batch, openMax: 9 });
  }),
  async (stage) => {
    const own = { ...batchOf(stage), status: 'validating' } as const;
    assert.equal(await stage.store.repositories.ownBatch(own), true);
  },
  async (stage) => {
    const { repositories } = stage.store;
    // As a validation that begins anew.
    if (stage.isAgain) {
      while (await repositories.removeBatchLines({ ...batchOf(stage), limit: 100 }));
      await repositories.restartValidation(batchOf(stage));
    }
    const lines = [1, 2, 3, 4].map((line) => ({
      ...{ line, customId: `line-${line}`, modelId: 'model', offsetBytes: line, bytes: 1 },
      result: line === 4 ? '{}' : null,
    }));
    assert.equal(await repositories.addBatchLines({ ...batchOf(stage), lines }), true);
  },
  (stage) => stage.store.repositories.endValidation({ ...batchOf(stage), at, outcome: { models: ['model'] } }),
  claimLines,
];

const batch: Story = {
  name: 'batch: claim, charge and finish',
  before: [newAccount, firstCredit, beginFile, finishFile],
  steps: [
    ...newBatch,
    (stage) => stage.hold(80n),
    async (stage) => {
      const answers = [1, 2].map((line) => ({ ...lineOf(stage, line), requestId: stage.id(line), result: '{"a":1}' }));
      assert.deepEqual(await stage.store.repositories.keepLineAnswers({ answers }), [true, true]);
    },
    (stage) => stage.settle(stage.usage(1, 80n, { batchId: stage.name('batch'), tier: 'batch' })),
    // Its process does not know that the first one is charged.
    (stage) =>
      stage.store.repositories.endLines({
        endings: [
          { ...lineOf(stage, 1), state: 'errored', result: '{}' },
          { ...lineOf(stage, 2), state: 'waiting', tries: 1, notBefore: at },
        ],
      }),
    async (stage) => {
      const { id, owner } = batchOf(stage);
      if (stage.isAgain)
        await stage.store.repositories.recoverLines({ id, self: owner, running: [], endsWaits: false });
      const claim = { id, modelId: 'model', owner, now: at, limit: 9 };
      const claimed = await stage.store.repositories.claimBatchLines(claim);
      assert.deepEqual(
        claimed.map(({ line }) => line),
        [2, 3],
      );
    },
    (stage) =>
      stage.store.repositories.endLines({
        endings: [2, 3].map((line) => ({ ...lineOf(stage, line), state: 'errored', result: '{}' })),
      }),
    (stage) => stage.store.repositories.beginFinalizing({ id: stage.hex(2), at }),
    (stage) => stage.store.repositories.ownBatch({ ...batchOf(stage), status: 'finalizing' }),
    (stage) =>
      stage.store.repositories.planOutput({ ...batchOf(stage), outputFileId: stage.hex(3), errorFileId: null }),
    (stage) => stage.store.repositories.endBatch({ ...batchOf(stage), status: 'completed', at }),
    (stage) => stage.store.repositories.ownBatch({ ...batchOf(stage), status: 'completed' }),
    (stage) => stage.store.repositories.removeBatchLines({ ...batchOf(stage), limit: 100 }),
    (stage) => stage.store.repositories.closeBatch({ id: stage.hex(2) }),
  ],
};

const cancelled: Story = {
  name: 'batch: cancel',
  before: [newAccount, firstCredit, beginFile, finishFile, ...newBatch],
  steps: [
    (stage) => stage.store.repositories.cancelBatch({ accountId: stage.account, id: stage.hex(2), at }),
    (stage) =>
      stage.store.repositories.endLines({
        endings: [1, 2].map((line) => ({ ...lineOf(stage, line), state: 'waiting', tries: 0, notBefore: 0 })),
      }),
    (stage) => stage.store.repositories.ownBatch({ ...batchOf(stage), status: 'cancelling' }),
    (stage) => stage.store.repositories.endBatch({ ...batchOf(stage), status: 'cancelled', at }),
    (stage) => stage.store.repositories.ownBatch({ ...batchOf(stage), status: 'cancelled' }),
    (stage) => stage.store.repositories.removeBatchLines({ ...batchOf(stage), limit: 100 }),
    (stage) => stage.store.repositories.closeBatch({ id: stage.hex(2) }),
    async (stage) => {
      const isDeleted = await stage.store.repositories.deleteBatch({ accountId: stage.account, id: stage.hex(2) });
      assert.ok(isDeleted || stage.isAgain);
    },
  ],
};

const keys: Story = {
  name: 'key: create and revoke',
  before: [newAccount],
  steps: [
    newKey,
    (stage) => stage.store.repositories.findPresentedKey({ hash: stage.hash(901), at }),
    (stage) => stage.store.repositories.revokeKey({ keyId: stage.name('key'), at, changeId: changeId() }),
  ],
};

const erasure: Story = {
  name: 'account: erase',
  before: [newAccount, firstCredit, newKey, beginFile, finishFile, ...newBatch],
  steps: [
    (stage) => stage.store.ledger.setAccountStatus(stage.account, 'suspended', at, changeId()),
    async (stage) => {
      const isErased = await stage.store.repositories.eraseAccount({
        accountId: stage.account,
        at,
        changeId: changeId(),
      });
      assert.ok(isErased || stage.isAgain);
    },
  ],
};

const outbox: Story = {
  name: 'mail and notices',
  before: [newAccount],
  steps: [
    (stage) => {
      const letter = { recipient: 'a@example.com', subject: 's', kind: 'refund', attachments: null, body: 'b' };
      const ids = { id: stage.hex(1), accountId: stage.account, idempotencyKey: stage.name('mail') };
      return stage.store.repositories.addMail({ ...ids, ...letter, at: at } as never);
    },
    (stage) => stage.store.repositories.noteMailAttempt({ id: stage.hex(1), at, outcome: { kind: 'sent' } }),
  ],
};

/** Requests of two days of the past, and of the day before yesterday. */
const ended = (stage: Stage, number: number, endedAt: number) =>
  stage.usage(number, 10n, {
    requestId: stage.id(number, endedAt - 5),
    startedAt: endedAt - 5,
    endedAt,
    keyId: 'key_a',
    tags: '["a"]',
  });

const history: readonly Step[] = [
  newAccount,
  firstCredit,
  (stage) => stage.hold(60n),
  async (stage) => {
    const days = [-40, -40, -39, -2, -1, -1].map((day, index) => at + day * dayMs + index * hourMs);
    for (const [index, day] of days.entries()) await stage.settle(ended(stage, index + 1, day));
  },
];

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });

const heads: Story = {
  name: 'days: signed heads',
  isAlone: true,
  before: history,
  steps: [1, 2].map((days): Step => async ({ store: { repositories } }) => {
    const now = (): number => at + (days - 1) * dayMs;
    assert.equal(await new UsageHeads({ repositories, secret, now }).run(Infinity), false);
    assert.equal((await repositories.listDayHeads({ limit: 10 })).length, days);
  }),
};

const rollUps: Story = {
  name: 'roll-ups, retention and removal',
  isAlone: true,
  before: history,
  steps: [
    ({ store }) => store.repositories.recomputeUsageHours({ now: at }),
    async ({ store }) => {
      while ((await store.repositories.recomputeUsageDays({})).isMore);
    },
    ({ store }) => store.repositories.keepUsageSince({ before: at - 35 * dayMs, now: at }),
    async ({ store }) => {
      for (let after: RemovalCursor | undefined; ;) {
        const { state, next } = await store.repositories.removeUsage({ after, now: at });
        if (state !== 'more') return assert.equal(state, 'done');
        after = next;
      }
    },
    ({ store }) => store.repositories.freeUsageSpace({}),
  ],
};

export const stories: readonly Story[] = [
  ...[settlement, running, budgets, movements, payment, keyed, files, batch, cancelled, keys, erasure, outbox],
  ...[heads, rollUps],
];

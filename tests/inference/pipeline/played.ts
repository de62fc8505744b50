/** A request of an account with credit, a plan and limits, played to its end over a real ledger, and what there is of it then. */
import assert from 'node:assert/strict';

import type { Receipt } from '../../../src/billing/hold.ts';
import type { ScriptSettings } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { CancelReason } from '../../../src/inference/pipeline/cancellation.ts';
import type { RunningCall } from '../../../src/inference/pipeline/run.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { Counter } from '../../billing/bills.ts';
import { modelSubject } from '../../../src/store/budget.ts';
import { balanceOf, customer, uuid } from '../../store/fixture.ts';
import { requestOf, servicesFor } from './runs.ts';
import type { RequestOptions, ServicesOptions } from './runs.ts';

const keyId = 'key_000000000000';
const credit = 1_000_000n;
/** Of the prompt, as its model counts them. */
export const promptTokens = 5;
/** What the pipeline takes the prompt for until its length is known. */
export const likelyTokens = 37;
const dayMs = 86_400_000;
export const begin = Date.now();
const plan = { name: 'p', quota: { requests: 100, windowMs: dayMs } };

type When =
  | 'at once'
  | 'when it is prepared'
  | 'while another model is looked for'
  | 'when another model was found'
  | 'before the first token'
  | 'in the answer';

/** What its model does, and when the request is cancelled, or its reader takes no more. */
export interface Course
  extends
    Pick<ServicesOptions, 'backends' | 'model' | 'image' | 'sharesLimits' | 'otherEngine'>,
    Pick<RequestOptions, 'facts' | 'maxTokens' | 'otherPrices' | 'body' | 'placed'> {
  readonly script?: Partial<ScriptSettings>;
  readonly cancel?: readonly [CancelReason, When];
  readonly leaves?: boolean;
  readonly credit?: bigint;
  readonly otherScript?: Partial<ScriptSettings>;
  /** Called with each batch that its client gets. */
  readonly delivered?: () => void;
  /** Of its account. */
  readonly hasBudgets?: boolean;
  readonly key?: Partial<RunningCall['key']>;
}

let accounts = 0;

export const budget = (per: 'month' | 'week' | 'day') => ({ amountMicrocents: credit, per });

async function budgetsFor(accountId: string, { ledger }: Counter['store']) {
  const own = { budget: budget('month'), modelBudgets: new Map([['demo', budget('week')]]) };
  for (const [subject, of] of [
    [accountId, own.budget],
    [modelSubject(accountId, 'demo'), budget('week')],
  ] as const) {
    const change = { kind: 'account_budget', subject, budget: of, spentBeforeMicrocents: 0n } as const;
    await ledger.setBudget({ ...change, at: begin, changeId: uuid() });
  }
  return own;
}

/** What other requests of the key have counted towards its tokens of the day. */
const tokensBefore = 1_000;

/** Plays a request of an account with a plan, and returns what there is of it in the end; no receipt: it was refused before its hold. */
async function play(counter: Counter, { script = {}, cancel, leaves = false, ...course }: Course) {
  const { store, billing } = counter;
  const accountId = `acct_${++accounts}`;
  const has = course.credit ?? credit;
  await customer(store, accountId, has);
  const settings: ScriptSettings = { say: [{ text: 'one two' }], prompt_tokens: promptTokens, ...script };
  const services = servicesFor(settings, counter, {
    ...course,
    plans: [plan],
    others: { say: settings.say, prompt_tokens: promptTokens, ...course.otherScript },
    asked: ({ fault }) => {
      if (fault?.type === 'hang' && fault.after_tokens === 0) setImmediate(() => stop('before the first token'));
    },
  });
  const cancelled = new AbortController();
  const stop = (at: When): void => {
    if (cancel?.[1] === at) cancelled.abort(cancel[0]);
  };
  const rates = { tokensPerDay: 1_000_000, requestsPerDay: 100, centsPerDay: 100 };
  const ofTokens = { subject: keyId, kind: 'tokens', lengthMs: dayMs } as const;
  services.counts.take([{ rule: { ...ofTokens, limit: rates.tokensPerDay }, amount: tokensBefore }]);
  const calls: RunningCall[] = [];
  let isPrepared = false;
  const begunMs = performance.now();
  const begins = await requestOf(services, accountId, cancelled.signal, {
    ...course,
    facts: {
      account: { id: accountId, plan: 'p', ...(course.hasBudgets === true ? await budgetsFor(accountId, store) : {}) },
      key: { id: keyId, accountId, userId: null, name: '', expiresAt: null, rates, ...course.key },
      prepared: () => {
        assert.ok(!isPrepared);
        isPrepared = true;
        stop('when it is prepared');
      },
      falls: () => stop('when another model was found'),
      ...course.facts,
    },
    begins: (call) => {
      calls.push(call);
      stop('at once');
    },
    looks: () => stop('while another model is looked for'),
  });
  const used = (kind: 'tokens' | 'requests' | 'quota' | 'cost'): number =>
    services.counts.used(
      kind === 'quota'
        ? { subject: accountId, kind, lengthMs: plan.quota.windowMs }
        : { subject: keyId, kind, lengthMs: dayMs },
    ) - (kind === 'tokens' ? tokensBefore : 0);
  let reported: unknown;
  let isWhole = false;
  let batches = 0;
  let claimed: readonly number[] = [];
  try {
    await begins((batch) => {
      batches++;
      course.delivered?.();
      claimed = [used('tokens'), used('cost')];
      stop('in the answer');
      isWhole = batch.at(-1)?.type === 'usage';
      return !leaves;
    });
  } catch (error) {
    reported = error;
  }
  assert.ok(reported === undefined || reported instanceof ApiError, String(reported));
  const [receipt, ...others] = services.ended;
  assert.equal(others.length, 0);
  // Of each model, the times between its batches.
  const elapsedS = (performance.now() - begunMs) / 1_000;
  assert.ok(
    services.gaps.every((seconds) => seconds >= 0) && services.gaps.reduce((sum, each) => sum + each, 0) <= elapsedS,
  );
  const rows = await store.repositories.listUsage({ accountId });
  assert.deepEqual(rows.map(saidIn), services.ended.map(saidIn));
  const charged = receipt?.costMicrocents ?? 0n;
  assert.equal(await balanceOf(store, accountId), has - charged);
  assert.deepEqual([services.limits.running, billing.openHolds, billing.heldMicrocents], [0, 0, 0n]);
  assert.equal(used('cost'), Number(charged));
  const [{ engineMs }] = calls as [RunningCall];
  // It is a part of the time that the request took.
  assert.ok(engineMs >= 0 && engineMs <= performance.now() - begunMs, String(engineMs));
  return {
    receipt,
    services,
    isPrepared,
    reported: reported?.code ?? null,
    extra: reported?.extra,
    retryAfterSeconds: reported?.retryAfterSeconds,
    isWhole,
    batches,
    used,
    claimed,
  };
}

export async function played(counter: Counter, course: Course) {
  const { receipt, ...rest } = await play(counter, course);
  assert.ok(receipt !== undefined);
  return { receipt, ...rest };
}

/** Plays a request that comes to no hold, so that nothing is recorded of it, and returns the error that it gets. */
export async function refused(counter: Counter, course: Course) {
  const { receipt, reported, used, isPrepared } = await play(counter, course);
  assert.equal(receipt, undefined);
  assert.deepEqual([used('tokens'), used('quota')], [0, 0]);
  return { reported, isPrepared };
}

/** A row leaves out what it says nothing of. */
const saidIn = (row: object): object =>
  Object.fromEntries(Object.entries(row).filter(([, value]) => (value ?? null) !== null));

/** The columns of a receipt that an expectation names. */
export const pickOf = (receipt: Receipt, like: Partial<Receipt>): Partial<Receipt> =>
  Object.fromEntries(Object.keys(like).map((column) => [column, receipt[column as keyof Receipt]]));

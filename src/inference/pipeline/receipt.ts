import { isCharged } from '../../billing/endings.ts';
import type { Receipt } from '../../billing/hold.ts';
import type { Spent } from '../../billing/rate-limits/rate-limits.ts';
import { budgetForModel, type Payer } from '../../billing/bill.ts';
import { balanceAt, chargedPeriods, type ChargedPeriods } from '../../store/budget.ts';
import type { Ending } from '../../store/ledger.ts';
import type { UsageAttempt, UsageQueued } from '../../store/schema/tables.ts';
import { elapsedMs } from './request-facts.ts';
import type { DispatchTrace } from './dispatch.ts';
import type { Fallen } from './fallbacks.ts';
import type { Meter } from './meter.ts';
import type { Order } from './order.ts';
import type { Wait } from './wait-queue.ts';

/** A request with what has served it. */
export interface Served {
  readonly order: Order;
  readonly meter: Meter;
  readonly trace: Pick<DispatchTrace, 'attempts'>;
  /** Absent while the requested model serves it. */
  readonly fallen: Fallen | undefined;
  /** Its waits for slots, if it had to wait. */
  readonly waits: readonly Wait[] | undefined;
}

/** Makes the ledger row of a request that ends now: the request from `order`, and its outcome. The only place where rows are made. */
export function receiptOf(
  { order, meter, trace, fallen, waits }: Served,
  ending: Ending,
  errorCode: string | null,
): Receipt {
  const { account, key, plan, prices, startedAt, tags } = order;
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = meter.usage;
  const { attempts } = trace;
  const totalMs = elapsedMs(order);
  return {
    requestId: order.id,
    publicId: order.publicId,
    clientId: order.clientId,
    accountId: account.id,
    keyId: key.id,
    modelId: order.model.id,
    api: order.route.api,
    streamed: order.stream,
    startedAt,
    endedAt: startedAt + totalMs,
    promptTokens,
    cachedTokens,
    completionTokens,
    reasoningTokens,
    costMicrocents: unpriced,
    unchargedMicrocents: unpriced,
    holdMicrocents: unpriced,
    ending,
    finish: ending === 'finished' || ending === 'credit' ? meter.finishReason : null,
    errorCode,
    counted: meter.counted,
    inputPrice: prices.input,
    outputPrice: prices.output,
    cacheReadPrice: prices.cacheRead,
    backend: (lastOf(attempts) ?? fallen?.attempts.at(-1))?.backend ?? null,
    firstTokenMs: meter.firstTokenMs,
    totalMs,
    tags: tags.length === 0 ? null : JSON.stringify(tags),
    plan,
    // A plan pays for all of it.
    keyBudget: plan === null ? chargedTo(key, order) : null,
    accountBudget: plan === null ? chargedTo(account, order) : null,
    memberBudget: plan === null ? memberBalanceOf(order) : null,
    zdr: order.zdr,
    batchId: order.batchId,
    attempts: withName(
      fallen === undefined ? attempts : [...fallen.attempts, ...attempts],
      (fallen?.firstOrder ?? order).model.askedAs,
      fallen !== undefined,
    ),
    fallbacks: fallen?.steps,
    tier: order.tier,
    queued: waits === undefined ? undefined : queuedOf(waits),
    warnings: order.warnings,
    priceMultiple: order.priceMultiple,
  };
}

/** The hold sets these amounts. */
const unpriced = 0n;

/** The whole wait, and who was in front when it began. */
function queuedOf(waits: readonly Wait[]): UsageQueued {
  const [{ ahead, expectedMs }] = waits as [Wait];
  return { waitMs: waits.reduce((sum, { waitedMs }) => sum + waitedMs, 0), expectedMs: expectedMs ?? null, ahead };
}

/** Kept if there was a choice, something failed, or the model was asked for by another name. */
function withName(
  attempts: readonly UsageAttempt[],
  asked: string | undefined,
  isFallen: boolean,
): readonly UsageAttempt[] | undefined {
  const [first, ...others] = attempts;
  if (asked !== undefined && first !== undefined) return [{ ...first, asked }, ...others];
  return isFallen || others.length > 0 || (first?.chosen ?? null) !== null ? attempts : undefined;
}

/** The attempt that decided: of two that raced, not the one that was stopped or failed first. */
const lastOf = (attempts: readonly UsageAttempt[]): UsageAttempt | undefined =>
  attempts.findLast(({ failed, hedge }) => failed === null && hedge !== 'second_stopped') ?? attempts.at(-1);

const chargedTo = (payer: Payer, { model }: Order): ChargedPeriods | null =>
  chargedPeriods(payer.budget?.per, budgetForModel(payer, model)?.per);

function memberBalanceOf({ key: { member }, startedAt }: Order): string | null {
  return member === undefined ? null : balanceAt(member.id, member.budget.per, startedAt).id;
}

/** What a request counts towards limits. */
export function spentBy({ ending, promptTokens, completionTokens, costMicrocents }: Receipt): Spent {
  const isCounted = isCharged(ending);
  return { isCounted, tokens: isCounted ? promptTokens + completionTokens : 0, costMicrocents };
}

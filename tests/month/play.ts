/** Plays a month: settles in lanes as the service does, moves credit through its operations, and runs the jobs when they are due. */
import assert from 'node:assert/strict';
import { commandLine } from '../../src/accounts/actor.ts';
import { moveCredit, refundRequest } from '../../src/accounts/operations/credit.ts';
import type { OperationServices } from '../../src/accounts/operation.ts';
import type { Billing } from '../../src/billing/billing.ts';
import { isCharged } from '../../src/billing/endings.ts';
import { ratesOf, type RatesOfAccounts } from '../../src/accounts/account-rates.ts';
import { pricesAt } from '../../src/billing/account-prices.ts';
import { costMicrocents, timesPrice } from '../../src/catalog/pricing.ts';
import { publicIdOf, uuidMaker, uuidText } from '../../src/platform/ids/uuid.ts';
import { closePromotions } from '../../src/billing/payments/promotions.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { isIn, sumOf, type Moved, type Span } from './played.ts';
import { grants, rates, tierParts, type Planned, type PlannedMove, type Timeline } from './timeline.ts';

export interface Stage {
  readonly operations: OperationServices;
  readonly billing: Billing;
  readonly clock: { now: number };
  readonly accountId: string;
  readonly keyIds: readonly string[];
  readonly rows: UsageRow[];
  readonly moved: Moved[];
}

/** What is done when everything before it has happened. */
export interface Stop {
  readonly at: number;
  run(): Promise<void>;
}

const settlementsAtOnce = 400;
const movesAtOnce = 16;

/** The rates are the account's own, so they change at their moment without a change of the configuration. */
export async function setRates({ operations }: Stage, accountIds: readonly string[]): Promise<RatesOfAccounts> {
  const { repositories, newId } = operations;
  for (const accountId of accountIds)
    for (const [modelId, changes] of Object.entries(rates))
      for (const { from, input, output, cacheRead } of changes) {
        const price = { accountId, modelId, validFrom: from, validTo: null, input, output, cacheRead };
        await repositories.addAccountPrice({ price, at: Date.now(), changeId: newId() });
      }
  return await ratesOf('all', repositories, 0);
}

export async function play(
  stage: Stage,
  { requests, moves }: Timeline,
  prices: RatesOfAccounts,
  stops: readonly Stop[],
): Promise<void> {
  const refunds: { readonly at: number; readonly row: UsageRow; readonly percent: number }[] = [];
  let from = 0;
  for (const stop of stops) {
    const span = { from, to: stop.at };
    const isDue = ({ at }: { readonly at: number }): boolean => isIn(span, at);
    await inLanes(moves.filter(isDue), 1, (move) => moveOf(stage, move));
    await inLanes(
      requests.filter(({ endedAt }) => isIn(span, endedAt)),
      settlementsAtOnce,
      async (planned) => {
        const row = await settled(stage, planned, prices);
        stage.rows.push(row);
        if (planned.refund !== undefined && row.costMicrocents > 0n) refunds.push({ ...planned.refund, row });
      },
    );
    await inLanes(refunds.filter(isDue), movesAtOnce, (refund) => refunded(stage, refund));
    stage.clock.now = stop.at;
    await endGrants(stage, span);
    await stop.run();
    from = stop.at;
  }
  assert.ok(refunds.every(({ at }) => at < from));
}

/** Holds what is estimated, settles what is charged, and releases the rest. */
async function settled({ billing, operations, keyIds }: Stage, planned: Planned, prices: RatesOfAccounts) {
  const { isBeyondHold, refund: _, keyIndex, ...of } = planned;
  const used = { ...of, reasoningTokens: Math.floor(of.completionTokens / 3) };
  const usual = pricesAt(
    { id: of.modelId, prices: { input: 0n, output: 0n, cacheRead: 0n } },
    prices.get(of.accountId),
    of.startedAt,
  );
  const { input, output, cacheRead } = timesPrice(usual, tierParts[of.tier]);
  const list = costMicrocents(used, { input, output, cacheRead });
  const held = of.plan !== null ? 0n : isBeyondHold ? list / 2n : list + 10n;
  const charged = of.plan === null && isCharged(of.ending) ? (list < held ? list : held) : 0n;
  // Of a crashed request nothing is known but its hold.
  const isCrashed = of.ending === 'crashed';
  const tokens = isCrashed
    ? { ...of, promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 }
    : used;
  const requestId = uuidMaker(() => of.startedAt)();
  const row: UsageRow = {
    ...tokens,
    requestId,
    publicId: publicIdOf(requestId),
    clientId: null,
    keyId: keyIds[keyIndex]!,
    api: 'chat',
    costMicrocents: charged,
    unchargedMicrocents: isCrashed ? held : list - charged,
    holdMicrocents: held,
    counted: false,
    inputPrice: input,
    outputPrice: output,
    cacheReadPrice: cacheRead,
    backend: 'scripted',
    firstTokenMs: 1,
    totalMs: of.endedAt - of.startedAt,
    keyBudget: null,
    accountBudget: null,
    zdr: false,
  };
  await take(billing, of.accountId, held);
  assert.equal(await operations.ledger.settle(row), 'billed');
  billing.credit(of.accountId, held - charged);
  return row;
}

/** A lease may be short of it for a moment: then what there was goes back, and it is asked again. */
async function take(billing: Billing, accountId: string, amount: bigint): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const taken = await billing.take(accountId, amount);
    if (taken === amount) return;
    billing.credit(accountId, taken);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`${accountId} has no credit left`);
}

const ofCashOrPromo = { topup: false, payback: false, chargeback: false, grant: false, expire: false } as const;

async function moveOf({ operations, accountId, moved }: Stage, move: PlannedMove): Promise<void> {
  const { at, movement, microcents, lastsMs } = move;
  const done = await moveCredit(
    {
      movement,
      accountId,
      microcents: String(microcents),
      reference: undefined,
      idempotencyKey: `${movement}:${at}`,
      expiresAfterMs: lastsMs,
    },
    { ...operations, now: () => at, actor: commandLine },
  );
  const kind = movement === 'payback' ? 'refund' : movement.startsWith('adjust') ? 'adjust' : movement;
  moved.push({
    accountId,
    at,
    kind: kind as Moved['kind'],
    microcents: BigInt(done.microcents),
    ofRevenue: !(movement in ofCashOrPromo),
  });
}

async function refunded(
  { operations, moved }: Stage,
  { at, row, percent }: { readonly at: number; readonly row: UsageRow; readonly percent: number },
): Promise<void> {
  const part = (row.costMicrocents * BigInt(percent)) / 100n;
  const microcents = part === 0n ? row.costMicrocents : part;
  const { accountId } = row;
  const done = await refundRequest(
    {
      accountId,
      requestId: uuidText(row.requestId),
      microcents: percent === 100 ? undefined : String(microcents),
      reference: undefined,
    },
    { ...operations, now: () => at, actor: commandLine },
  );
  assert.equal(done.microcents, String(microcents));
  moved.push({ accountId, at, kind: 'refund', microcents, ofRevenue: true, request: row });
}

/** Promotions that have ended are closed, and what of them no request has used is taken back. */
async function endGrants({ operations, clock, accountId, rows, moved }: Stage, span: Span): Promise<void> {
  while (await closePromotions(operations));
  for (const { at, lastsMs, microcents } of grants) {
    if (!isIn(span, at + lastsMs)) continue;
    const used = sumOf(
      rows.filter((row) => row.accountId === accountId && isIn({ from: at, to: at + lastsMs }, row.endedAt)),
      ({ costMicrocents: cost }) => cost,
    );
    if (used < microcents)
      moved.push({ accountId, at: clock.now, kind: 'expiry', microcents: used - microcents, ofRevenue: false });
  }
}

async function inLanes<Item>(
  items: readonly Item[],
  lanes: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      while (next < items.length) await work(items[next++]!);
    }),
  );
}

import Type from 'typebox';
import type { Static } from 'typebox';

import { errorTable } from '../platform/errors.ts';
import type { ErrorCode } from '../platform/errors.ts';
import { uuidText } from '../platform/ids/uuid.ts';
import { warningTable } from '../platform/warnings.ts';
import type { Ending, UsageRow } from '../store/ledger.ts';
import type { UsageAttempt } from '../store/schema/tables.ts';
import type { ApiKey } from '../store/repositories/keys.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Refund } from '../store/reports/reports.ts';
import { cacheMissOf, cacheMissSchema, cacheSentences } from './cache-miss.ts';
import { multipleShown, tierMultipleOf } from './price-object.ts';
import { nullable, secondsOf, wholeOf } from './wire.ts';

const microcents = Type.Integer({ description: '1 cent = 1,000,000 microcents.' });

const summaryFields = {
  object: Type.Literal('generation'),
  id: Type.String({ description: 'Id in the ledger: unique for all time.' }),
  request_id: Type.String({
    description: '`x-request-id` of the answer. It is short, so two requests may have the same one.',
  }),
  client_request_id: nullable(Type.String({ description: 'The `x-request-id` that the client sent.' })),
  created_at: Type.Integer({ description: 'Unix seconds of its start.' }),
  ended_at: Type.Integer({ description: 'Unix seconds of its end, by which reports count it.' }),
  model: Type.String(),
  asked_as: nullable(
    Type.String({ description: 'The name that the request used for the model, where it is not the id.' }),
  ),
  fallback_from: nullable(
    Type.String({ description: 'The model that was asked for, where `model` served the request instead.' }),
  ),
  api_type: Type.String({ description: 'chat, completions, messages or responses.' }),
  streamed: Type.Boolean(),
  cancelled: Type.Boolean({
    description: 'The answer was cut short because the client left or the key was revoked.',
  }),
  ending: Type.String({ description: 'How it ended, by the table of endings.' }),
  finish_reason: nullable(Type.String()),
  error_code: nullable(Type.String()),
  tokens_prompt: Type.Integer({ description: 'Cached tokens included.' }),
  tokens_cached: Type.Integer(),
  tokens_completion: Type.Integer({ description: 'Reasoning included.' }),
  tokens_reasoning: Type.Integer(),
  total_cost_microcents: microcents,
  refunded_microcents: Type.Integer({ description: 'The part of the cost that was refunded since.' }),
  latency_ms: nullable(Type.Integer({ description: 'Until the first token.' })),
  generation_time_ms: nullable(Type.Integer({ description: 'From the first token to the end.' })),
  total_ms: Type.Integer(),
  key_id: Type.String(),
  tags: Type.Array(Type.String()),
  zdr: nullable(Type.Boolean({ description: 'With zero data retention; null: from before this was recorded.' })),
  service_tier: Type.Enum(['priority', 'default', 'flex', 'batch'], {
    description: 'The tier that served it, whose prices are charged.',
  }),
  price_multiple: nullable(
    Type.Number({
      description: 'What these prices are of the usual ones because of the tier; null: from before this was recorded.',
    }),
  ),
};
export const generationSummarySchema = Type.Object(summaryFields);

const lineSchema = Type.Object({
  item: Type.Enum(['input', 'cached_input', 'output']),
  tokens: Type.Integer(),
  microcents_per_million_tokens: Type.Integer(),
  microcents: Type.String({ description: 'Exact, with up to six decimals.' }),
});

const attemptSchema = Type.Object({
  backend: Type.String(),
  at_ms: Type.Integer({ description: 'From the start of the request.' }),
  model: nullable(Type.String({ description: 'The model, where another one served the request.' })),
  error_code: nullable(Type.String({ description: 'What it failed with.' })),
  hedge: nullable(
    Type.Enum(['second', 'second_stopped', 'overtaken'], {
      description:
        '`second`: asked because the first gave no text in time, and `second_stopped` when that did after all; `overtaken`: the first, stopped because the second gave text.',
    }),
  ),
  cached_elsewhere: nullable(
    Type.Object(
      {
        backend: Type.String(),
        tokens_cached: Type.Integer(),
        expected_ms: Type.Integer({ description: 'Until the first token, there.' }),
        state: Type.Enum(['slower', 'full', 'unavailable'], {
          description:
            'Why it was not chosen: its first token was expected later, it had as many requests as it takes, or it was left out or tried before.',
        }),
      },
      {
        description: 'The backend that was believed to have most of the prompt in its cache, where another was chosen.',
      },
    ),
  ),
  chosen: nullable(
    Type.Object(
      {
        expected_ms: Type.Integer({ description: 'Until the first token.' }),
        tokens_cached: Type.Integer({ description: 'Of the prompt, expected in the cache of the backend.' }),
        tokens_uncached: Type.Integer(),
        tokens_waiting: Type.Integer({ description: 'Of the prompts of other requests that the backend had to read.' }),
        running: Type.Integer({ description: 'Requests that were running there.' }),
        foreign: nullable(
          Type.Object(
            { running: Type.Integer(), tokens_waiting: Type.Integer() },
            {
              description:
                'What of these two others than this service had sent there, by what the server said of itself; null: nothing that was known.',
            },
          ),
        ),
        tokens_per_second: Type.Integer({ description: 'At which it reads prompts.' }),
        rank: Type.Integer(),
        of: Type.Integer({ description: 'How many backends the model had.' }),
      },
      { description: 'The figures by which it was chosen: it had the least expected time to the first token.' },
    ),
  ),
});

const fallbackSchema = Type.Object({
  model: Type.String(),
  reason: Type.String({
    description: 'Code of the error that it failed with, or would have refused the request with.',
  }),
  skipped: Type.Boolean({ description: 'It was not tried: the request, its key or its credit does not fit it.' }),
});

const queueSchema = Type.Object(
  {
    wait_ms: Type.Integer(),
    expected_ms: nullable(Type.Integer({ description: 'What the wait was expected to take when it began.' })),
    ahead: Type.Object(
      {
        tiers: Type.Integer({ description: 'In tiers that go before its own.' }),
        own: Type.Integer({ description: 'Of the same account.' }),
        others: Type.Integer({ description: 'Of other accounts in its tier, which got their turns before it.' }),
      },
      { description: 'The requests in front of it when it began to wait.' },
    ),
  },
  { description: 'Its wait for a slot; null where it did not wait.' },
);

const errorSchema = Type.Object(
  {
    status: Type.Integer({ description: 'Of the HTTP answer, where none had begun.' }),
    meaning: Type.String(),
    remedy: Type.String({ description: 'What the caller can do about it.' }),
    retry: Type.String({ description: 'Whether the same request may succeed later.' }),
  },
  { description: 'What `error_code` means, as its page says it; null without one.' },
);

export const receiptSchema = Type.Object({
  ...summaryFields,
  error: nullable(errorSchema),
  key_name: nullable(Type.String()),
  backend: nullable(Type.String()),
  attempts: nullable(
    Type.Array(attemptSchema, {
      description: 'The backends that were tried, and why; null where the model has one and it answered.',
    }),
  ),
  queue: nullable(queueSchema),
  fallbacks: nullable(
    Type.Array(fallbackSchema, {
      description:
        'The models that did not serve it, the one that was asked for first; null where that one did. `model` names the one that served and is charged, or the one that was asked for where none did.',
    }),
  ),
  batch_id: nullable(Type.String({ description: 'The batch that it was a line of; null: none.' })),
  warnings: Type.Array(Type.Object({ code: Type.String(), meaning: Type.String() }), {
    description:
      'What it asked for and did not get, as the header `x-tokenhouse-warning` said: images, for a model without vision.',
  }),
  cache_miss: nullable(cacheMissSchema),
  tokens_counted: Type.Boolean({ description: 'Counted by the service, because the backend reported no usage.' }),
  lines: Type.Array(lineSchema, { description: 'Tokens times prices, at the rates in force when it started.' }),
  sum_microcents: Type.String({ description: 'Sum of the lines, before it is rounded up once.' }),
  list_cost_microcents: Type.Integer({ description: 'The sum, rounded up: the cost of a complete answer.' }),
  uncharged_microcents: Type.Integer({ description: 'The part of it that was not charged.' }),
  hold_microcents: Type.Integer({
    description: 'The credit held for the request when it ended; a charge is never more.',
  }),
  plan: nullable(Type.String({ description: 'The plan that pays for it.' })),
  explanation: Type.String({ description: 'How it ended, and why that is the charge.' }),
  ledger: Type.Array(
    Type.Object({
      id: Type.String(),
      type: Type.Enum(['usage', 'refund']),
      amount_microcents: Type.Integer({ description: 'Negative when it is taken from the account.' }),
      created_at: Type.Integer(),
    }),
    { description: 'Rows of the ledger: the charge and its refunds.' },
  ),
});
export type GenerationReceipt = Static<typeof receiptSchema>;
export type GenerationSummary = Static<typeof generationSummarySchema>;

/** The fields common to every form of a request's row: the API's object, the export, and the command line's output. */
export const requestRow = (row: UsageRow) => ({
  id: uuidText(row.requestId),
  request_id: row.publicId,
  client_request_id: row.clientId,
  model: row.modelId,
  fallback_from: fallbackFrom(row),
  api_type: row.api,
  streamed: row.streamed,
  key_id: row.keyId,
  tags: row.tags === null ? [] : (JSON.parse(row.tags) as string[]),
  ending: row.ending,
  finish_reason: row.finish,
  error_code: row.errorCode,
  tokens_prompt: row.promptTokens,
  tokens_cached: row.cachedTokens,
  tokens_completion: row.completionTokens,
  tokens_reasoning: row.reasoningTokens,
  latency_ms: row.firstTokenMs,
  total_ms: row.totalMs,
  zdr: row.zdr ?? null,
  service_tier: row.tier ?? 'default',
  price_multiple: tierMultipleOf(row.tier, row.priceMultiple),
});

/** A request without its content. */
export function generationSummary(row: UsageRow, refunds: readonly Refund[]): GenerationSummary {
  const { ending, firstTokenMs, totalMs } = row;
  return {
    object: 'generation',
    ...requestRow(row),
    asked_as: row.attempts?.[0]?.asked ?? null,
    created_at: secondsOf(row.startedAt),
    ended_at: secondsOf(row.endedAt),
    cancelled: ending === 'client_left' || ending === 'reader_stalled' || ending === 'revoked',
    total_cost_microcents: wholeOf(row.costMicrocents),
    refunded_microcents: wholeOf(refundedOf(row, refunds)),
    generation_time_ms: firstTokenMs === null ? null : Math.max(0, totalMs - firstTokenMs),
  };
}

/** The requested model, if another one served the request (docs/decisions/040-another-model.md). */
function fallbackFrom({ fallbacks, modelId }: Pick<UsageRow, 'fallbacks' | 'modelId'>): string | null {
  const asked = fallbacks?.[0]?.model;
  return asked === undefined || asked === modelId ? null : asked;
}

/** Receipts of one account's requests, as far as the sender may read them. */
export async function generationReceipts(
  accountId: string,
  rows: readonly UsageRow[],
  repositories: Pick<Repositories, 'refundsOf' | 'getKey'>,
  mayRead: (key: ApiKey | undefined) => boolean = () => true,
): Promise<readonly GenerationReceipt[]> {
  const refunds = await repositories.refundsOf({ accountId, requestIds: rows.map(({ requestId }) => requestId) });
  const keys = new Map<string, ApiKey | undefined>();
  for (const { keyId } of rows) if (!keys.has(keyId)) keys.set(keyId, await repositories.getKey({ keyId, accountId }));
  return rows
    .filter(({ keyId }) => mayRead(keys.get(keyId)))
    .map((row) => generationReceipt(row, { refunds, keyName: keys.get(row.keyId)?.name ?? null }));
}

/** The same with the calculation and reasons of its cost. */
function generationReceipt(
  row: UsageRow,
  { refunds, keyName }: { readonly refunds: readonly Refund[]; readonly keyName: string | null },
): GenerationReceipt {
  const lines = linesOf(row);
  const sum = lines.reduce((total, { millionths }) => total + millionths, 0n);
  const own = refunds.filter(isOf(row));
  return {
    ...generationSummary(row, refunds),
    error: errorOf(row.errorCode),
    key_name: keyName,
    backend: row.backend,
    attempts: row.attempts?.map(attemptObject) ?? null,
    fallbacks: row.fallbacks?.map(({ model, reason, isSkipped }) => ({ model, reason, skipped: isSkipped })) ?? null,
    batch_id: row.batchId ?? null,
    warnings: (row.warnings ?? []).map((code) => ({ code, meaning: warningTable[code] ?? code })),
    queue:
      row.queued === undefined
        ? null
        : { wait_ms: row.queued.waitMs, expected_ms: row.queued.expectedMs, ahead: row.queued.ahead },
    cache_miss: cacheMissOf(row),
    tokens_counted: row.counted,
    lines: lines.map(({ item, tokens, price, millionths }) => ({
      item,
      tokens,
      microcents_per_million_tokens: wholeOf(price),
      microcents: decimal(millionths),
    })),
    sum_microcents: decimal(sum),
    list_cost_microcents: wholeOf(ceiled(sum)),
    uncharged_microcents: wholeOf(row.unchargedMicrocents),
    hold_microcents: wholeOf(row.holdMicrocents),
    plan: row.plan,
    explanation: explanationOf(row, ceiled(sum)),
    ledger: [
      {
        id: uuidText(row.requestId),
        type: 'usage',
        amount_microcents: wholeOf(-row.costMicrocents),
        created_at: secondsOf(row.endedAt),
      },
      ...own.map(({ transferId, amountMicrocents, at }) => ({
        id: uuidText(transferId),
        type: 'refund' as const,
        amount_microcents: wholeOf(amountMicrocents),
        created_at: secondsOf(at),
      })),
    ],
  };
}

/** A code of an earlier version may no longer be in a table. */
function errorOf(code: string | null): GenerationReceipt['error'] {
  if (code === null || !Object.hasOwn(errorTable, code)) return null;
  const { status, meaning, remedy, retry } = errorTable[code as ErrorCode];
  return { status, meaning, remedy, retry };
}

const attemptObject = ({
  backend,
  atMs,
  model,
  failed,
  hedge,
  cachedElsewhere: elsewhere,
  chosen,
}: UsageAttempt): Static<typeof attemptSchema> => ({
  backend,
  at_ms: atMs,
  model: model ?? null,
  error_code: failed,
  hedge: hedge ?? null,
  cached_elsewhere:
    elsewhere === undefined
      ? null
      : {
          backend: elsewhere.backend,
          tokens_cached: elsewhere.cachedTokens,
          expected_ms: elsewhere.expectedMs,
          state: elsewhere.state,
        },
  chosen:
    chosen === null
      ? null
      : {
          expected_ms: chosen.expectedMs,
          tokens_cached: chosen.cachedTokens,
          tokens_uncached: chosen.uncachedTokens,
          tokens_waiting: chosen.waitingTokens,
          running: chosen.running,
          foreign:
            chosen.foreign === undefined
              ? null
              : { running: chosen.foreign.running, tokens_waiting: chosen.foreign.waitingTokens },
          tokens_per_second: chosen.tokensPerSecond,
          rank: chosen.rank,
          of: chosen.of,
        },
});

/** How much of a request's cost was refunded. */
export const refundedOf = (row: UsageRow, refunds: readonly Refund[]): bigint =>
  refunds.filter(isOf(row)).reduce((sum, { amountMicrocents }) => sum + amountMicrocents, 0n);

const isOf =
  ({ requestId }: UsageRow) =>
  (refund: Refund): boolean =>
    Buffer.compare(refund.requestId, requestId) === 0;

/** money.md, "Rounding": cached tokens have a separate price, the sum is rounded up once. Amounts are millionths of microcents. */
function linesOf(row: UsageRow) {
  const line = (item: 'input' | 'cached_input' | 'output', tokens: number, price: bigint) => ({
    item,
    tokens,
    price,
    millionths: BigInt(tokens) * price,
  });
  return [
    line('input', row.promptTokens - row.cachedTokens, row.inputPrice),
    line('cached_input', row.cachedTokens, row.cacheReadPrice),
    line('output', row.completionTokens, row.outputPrice),
  ];
}

const million = 1_000_000n;
const ceiled = (millionths: bigint): bigint => (millionths + million - 1n) / million;

function decimal(millionths: bigint): string {
  const fraction = String(millionths % million)
    .padStart(6, '0')
    .replace(/0+$/, '');
  return `${millionths / million}${fraction === '' ? '' : `.${fraction}`}`;
}

/** The table of endings (docs/money.md), in words. */
const endings: Readonly<Record<Ending, string>> = {
  finished: 'The answer is complete: all used tokens are charged.',
  credit: 'Credit or a budget ran out in the middle of the answer: the delivered part is charged.',
  client_left: 'The client left before the end: the input and the output generated until then are charged.',
  reader_stalled: 'The client stopped reading: the input and the output generated until then are charged.',
  revoked:
    'The key was revoked or the account suspended in the middle of the answer: the input and the output generated until then are charged.',
  failed: 'The service or the model failed: nothing is charged.',
  deadline: 'The request exceeded the time limit: nothing is charged.',
  drained: 'The service was stopped: nothing is charged.',
  cancelled: 'Its batch was cancelled, or its key could not be used any more: nothing is charged.',
  lost: 'The charge could not be recorded: nothing is charged.',
  crashed: 'The process that served it ended unexpectedly: nothing is charged.',
};

function explanationOf(row: UsageRow, listCost: bigint): string {
  const sentences = [endings[row.ending]];
  const [asked] = row.fallbacks ?? [];
  if (asked !== undefined)
    sentences.push(
      fallbackFrom(row) === null
        ? `None of its fallbacks could serve the request instead of "${asked.model}".`
        : `"${row.modelId}" served it instead of "${asked.model}" (${asked.reason}), at its own prices.`,
    );
  if (row.tier !== undefined && row.tier !== null && row.tier !== 'default')
    sentences.push(
      row.priceMultiple === undefined
        ? `It was served in the tier "${row.tier}", at the prices of that tier.`
        : `It was served in the tier "${row.tier}", at ${multipleShown(row.priceMultiple)} times the usual prices.`,
    );
  if (row.plan !== null) sentences.push(`The plan "${row.plan}" pays for this request, so no credit is used.`);
  else if (row.costMicrocents > 0n && row.costMicrocents < listCost)
    sentences.push(
      'The backend reported more usage than the credit held for the request covers; a charge is never more than the hold.',
    );
  sentences.push(...cacheSentences(row));
  if (row.counted && row.costMicrocents > 0n)
    sentences.push('The backend reported no token counts, so the service estimated them, on the low side.');
  return sentences.join(' ');
}

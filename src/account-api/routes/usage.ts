import Type from 'typebox';
import type { Static } from 'typebox';

import { dollarDecimal } from '../../platform/dollars.ts';
import { ApiError } from '../../platform/errors.ts';
import { parseUuid, uuidText } from '../../platform/ids/uuid.ts';
import { StoreError } from '../../store/store-error.ts';
import type { LatencyRow } from '../../store/reports/latency.ts';
import type { RefundSum, ReportRow } from '../../store/reports/reports.ts';
import { dateAt, nextDay, startOfDate, startOfDay } from '../../platform/calendar/time-zone.ts';
import { generationReceipts, generationSummary, generationSummarySchema, receiptSchema } from '../generation-object.ts';
import { notThere } from '../input.ts';
import {
  askedReport,
  askedSpan,
  filterOf,
  filterQuery,
  latencyDimensions,
  latencyQuery,
  reportQuery,
  spanQuery,
  timeZoneOf,
} from '../report-request.ts';
import type { AskedReport } from '../report-request.ts';
import { everyRole, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { visibleUsage } from '../visible-usage.ts';
import { listSchema, nullable, page, pageLimit, pageQuery, secondsOf, wholeListSchema, wholeOf } from '../wire.ts';

const tag = 'Usage';
const seen = 'Developers and viewers see requests of their own keys, and the sums of the whole account.';

/** Selects requests; also for exports. */
export const generationQuery = {
  ...spanQuery,
  ...filterQuery,
  error_code: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  streamed: Type.Optional(Type.Boolean()),
};

const generationFields = Type.Object(generationQuery);
type GenerationQuery = Static<typeof generationFields>;

export function generationFilter(call: Pick<Call, 'account' | 'principal'> & { readonly query: GenerationQuery }) {
  const { start_time: start, end_time: end, error_code: errorCode, streamed } = call.query;
  if (start !== undefined && end !== undefined && start >= end)
    throw new ApiError('unsupported_value', 'start_time must be before end_time.', { param: 'start_time' });
  return {
    ...filterOf(call, []),
    ...visibleUsage(call),
    ...(start === undefined ? {} : { from: start * 1000 }),
    ...(end === undefined ? {} : { to: end * 1000 }),
    ...(errorCode === undefined ? {} : { errorCode }),
    ...(streamed === undefined ? {} : { streamed }),
  };
}

/** A bucket's fields for a group; fields of groups that were not requested are null. */
const groupFields = {
  model: nullable(Type.String()),
  api_key_id: nullable(Type.String()),
  user_id: nullable(Type.String()),
  tag: nullable(Type.String()),
  service_tier: nullable(
    Type.String({ description: 'null also for requests from before there were tiers, and for removed ones.' }),
  ),
  ending: nullable(Type.String()),
};

/** The answer of a report. */
export const bucketPageSchema = (
  result: Readonly<Record<string, ReturnType<typeof Type.String> | ReturnType<typeof Type.Integer>>> | object,
) =>
  Type.Object({
    object: Type.Literal('page'),
    time_zone: Type.String(),
    data: Type.Array(
      Type.Object({
        object: Type.Literal('bucket'),
        start_time: Type.Integer(),
        end_time: Type.Integer(),
        results: Type.Array(Type.Object(result as never)),
      }),
    ),
    has_more: Type.Boolean(),
    next_page: Type.Optional(Type.String()),
  });

const usageFields = {
  input_tokens: Type.Integer({ description: 'Cached tokens included.' }),
  input_cached_tokens: Type.Integer(),
  output_tokens: Type.Integer({ description: 'Reasoning included.' }),
  output_reasoning_tokens: Type.Integer(),
  num_model_requests: Type.Integer(),
  cost_microcents: Type.Integer(),
  uncharged_microcents: Type.Integer(),
  ...groupFields,
};

const costFields = {
  amount: Type.Object({ value: Type.String({ description: 'Dollars, exact.' }), currency: Type.Literal('usd') }),
  amount_microcents: Type.Integer({ description: 'Below 0: given back.' }),
  line_item: Type.Enum(['usage', 'refunds']),
  ...groupFields,
};

const { tag: _tag, ...latencyGroups } = groupFields;
const milliseconds = nullable(Type.Integer({ description: 'Right to a few per cent; null: no such requests.' }));

const latencySchema = Type.Object({
  object: Type.Literal('latency'),
  num_model_requests: Type.Integer(),
  first_token_p50_ms: milliseconds,
  first_token_p95_ms: milliseconds,
  total_p50_ms: milliseconds,
  total_p95_ms: milliseconds,
  ...latencyGroups,
});

export const usageRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/generation',
    operationId: 'getGeneration',
    tag,
    summary: 'Get the receipt of a request',
    description: `The tokens, cost and ending of a request: tokens times prices, the hold, how it ended, and its rows of the ledger. Never its contents. ${seen}`,
    access: everyRole,
    query: Type.Object({
      id: Type.String({
        minLength: 1,
        maxLength: 200,
        description: '`x-request-id` of the answer (`req_…`), the id that the client sent, or the id of the ledger.',
      }),
    }),
    answers: [
      {
        status: 200,
        description: 'The receipt; or, where several requests have this id, a list of theirs.',
        schema: Type.Union([
          receiptSchema,
          Type.Object({
            object: Type.Literal('list'),
            message: Type.String(),
            data: Type.Array(receiptSchema),
            has_more: Type.Literal(false),
          }),
        ]),
      },
    ],
    handle: async (call) => {
      const { account, query, services } = call;
      const { repositories, now } = services.operations;
      const found = await repositories.findUsage({ accountId: account.id, id: query.id, now: now() });
      const { ownerId } = visibleUsage(call);
      const receipts = await generationReceipts(
        account.id,
        found,
        repositories,
        (key) => ownerId === undefined || key?.userId === ownerId,
      );
      if (receipts.length === 0) throw notKept((await repositories.retentionOf({})).keptSince);
      if (receipts.length === 1) return receipts[0];
      const message = `${receipts.length} requests have this id, newest first; ask for one by its ledger id.`;
      return { object: 'list', message, data: receipts, has_more: false };
    },
  }),
  route({
    method: 'get',
    path: '/v1/generations',
    operationId: 'listGenerations',
    tag,
    summary: 'List requests',
    description: `Requests by their end, newest first. A page may have fewer than \`limit\` rows although another page follows. ${seen}`,
    access: everyRole,
    query: Type.Object({ ...pageQuery, ...generationQuery }),
    answers: [
      {
        status: 200,
        description: 'A page of requests.',
        schema: Type.Object({
          ...listSchema(generationSummarySchema).properties,
          details_since: nullable(
            Type.Integer({
              description:
                'Unix seconds. Of requests that ended before, only sums are kept: they are in no page. null: all are.',
            }),
          ),
        }),
      },
    ],
    handle: async (call) => {
      const { account, query, services } = call;
      const { repositories } = services.operations;
      const before = query.after === undefined ? undefined : await cursorAt(call, query.after);
      const { rows, next, keptSince } = await repositories.listGenerations({
        ...generationFilter(call),
        ...(before === undefined ? {} : { before }),
        limit: pageLimit(query.limit),
      });
      const refunds = await repositories.refundsOf({
        accountId: account.id,
        requestIds: rows.map(({ requestId }) => requestId),
      });
      const shown = rows.map((row) => generationSummary(row, refunds));
      return {
        ...page(shown, next === undefined ? undefined : uuidText(next.requestId)),
        details_since: keptSince === 0 ? null : secondsOf(keptSince),
      };
    },
  }),
  route({
    method: 'get',
    path: '/v1/activity',
    operationId: 'getActivity',
    tag,
    summary: 'Usage by day and model',
    description: `The last 30 days in the time zone of the account, newest first, one row per day and model. ${seen}`,
    access: everyRole,
    query: Type.Object({
      date: Type.Optional(Type.String({ pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}$', description: 'Only this day.' })),
      ...filterQuery,
    }),
    answers: [
      {
        status: 200,
        description: 'Days with usage.',
        schema: Type.Object({
          object: Type.Literal('list'),
          time_zone: Type.String(),
          data: Type.Array(
            Type.Object({
              date: Type.String(),
              model: Type.String(),
              requests: Type.Integer(),
              prompt_tokens: Type.Integer(),
              cached_tokens: Type.Integer(),
              completion_tokens: Type.Integer(),
              reasoning_tokens: Type.Integer(),
              cost_microcents: Type.Integer(),
            }),
          ),
          has_more: Type.Literal(false),
        }),
      },
    ],
    handle: async (call) => {
      const { query, services } = call;
      const { repositories, now } = services.operations;
      const timeZone = await timeZoneOf(call);
      const bounds = query.date === undefined ? lastDays(timeZone, now()) : dayNamed(timeZone, query.date);
      const asked = { ...filterOf(call, []), timeZone, bounds, by: ['model' as const] };
      const rows = await readable(repositories.reportUsage(asked));
      return {
        object: 'list',
        time_zone: timeZone,
        data: rows
          .map((row) => ({
            date: dateAt(timeZone, bounds[row.bucket]!),
            model: row.model!,
            requests: wholeOf(row.requests),
            prompt_tokens: wholeOf(row.prompt_tokens),
            cached_tokens: wholeOf(row.cached_tokens),
            completion_tokens: wholeOf(row.completion_tokens),
            reasoning_tokens: wholeOf(row.reasoning_tokens),
            cost_microcents: wholeOf(row.cost),
          }))
          .reverse(),
        has_more: false,
      };
    },
  }),
  route({
    method: 'get',
    path: '/v1/usage',
    operationId: 'getUsage',
    tag,
    summary: 'Get usage over time',
    description: `Tokens and requests, by the time when requests ended. The first bucket begins at start_time, the last ends at end_time. ${seen}`,
    access: everyRole,
    query: Type.Object({
      ...reportQuery.properties,
      top: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: 1000,
          description: 'Of each bucket only so many groups: those with the most requests, the largest first.',
        }),
      ),
    }),
    answers: [{ status: 200, description: 'A page of buckets.', schema: bucketPageSchema(usageFields) }],
    handle: async (call) => {
      const asked = await askedReport(call);
      const rows = await readable(call.services.operations.repositories.reportUsage(asked));
      const { top } = call.query;
      return bucketPage(asked, top === undefined ? rows : largest(rows, top), usageResult);
    },
  }),
  route({
    method: 'get',
    path: '/v1/latency',
    operationId: 'getLatency',
    tag,
    summary: 'Get latencies as percentiles',
    description: `Time to the first token and whole time of the requests that ended in a span, failed ones too unless an ending is given. Of days whose requests have no details any more, only whole days of UTC are counted. ${seen}`,
    access: everyRole,
    query: latencyQuery,
    answers: [{ status: 200, description: 'One row per group with usage.', schema: wholeListSchema(latencySchema) }],
    handle: async (call) => {
      const by = latencyDimensions(call.query.group_by);
      const { from, to } = askedSpan(call);
      const asked = { ...filterOf(call, by), from, to, by };
      const rows = await readable(call.services.operations.repositories.reportLatency(asked));
      return page(rows.toSorted((a, b) => b.total.requests - a.total.requests).map(latencyResult));
    },
  }),
  route({
    method: 'get',
    path: '/v1/costs',
    operationId: 'getCosts',
    tag,
    summary: 'Get costs over time',
    description: `Charges of requests, by the time when they ended, and refunds of charges, by the time of the refund. ${seen}`,
    access: everyRole,
    query: reportQuery,
    answers: [{ status: 200, description: 'A page of buckets.', schema: bucketPageSchema(costFields) }],
    handle: async (call) => {
      const asked = await askedReport(call);
      const { repositories } = call.services.operations;
      const rows = (await readable(repositories.reportUsage(asked))).filter(({ cost }) => cost > 0n);
      const refunds = await repositories.reportRefunds(asked);
      return bucketPage<ReportRow | RefundSum>(asked, [...rows, ...refunds], costResult);
    },
  }),
];

function largest(rows: readonly ReportRow[], top: number): readonly ReportRow[] {
  const taken = new Map<number, number>();
  return rows
    .toSorted((a, b) => Number(b.requests - a.requests))
    .filter(({ bucket }) => {
      const count = (taken.get(bucket) ?? 0) + 1;
      taken.set(bucket, count);
      return count <= top;
    });
}

const latencyResult = ({ firstToken, total, ...groups }: LatencyRow) => {
  const { tag: _, ...named } = groupOf({ ...groups, tag: null });
  return {
    object: 'latency' as const,
    num_model_requests: total.requests,
    first_token_p50_ms: firstToken.p50,
    first_token_p95_ms: firstToken.p95,
    total_p50_ms: total.p50,
    total_p95_ms: total.p95,
    ...named,
  };
};

export function usageResult(row: ReportRow) {
  return {
    input_tokens: wholeOf(row.prompt_tokens),
    input_cached_tokens: wholeOf(row.cached_tokens),
    output_tokens: wholeOf(row.completion_tokens),
    output_reasoning_tokens: wholeOf(row.reasoning_tokens),
    num_model_requests: wholeOf(row.requests),
    cost_microcents: wholeOf(row.cost),
    uncharged_microcents: wholeOf(row.uncharged),
    ...groupOf(row),
  };
}

export function costResult(row: ReportRow | RefundSum) {
  const isRefund = 'amountMicrocents' in row;
  const amount = isRefund ? -row.amountMicrocents : row.cost;
  return {
    amount: { value: dollarDecimal(amount), currency: 'usd' as const },
    amount_microcents: wholeOf(amount),
    line_item: isRefund ? ('refunds' as const) : ('usage' as const),
    ...groupOf(row),
  };
}

type Grouped = Pick<ReportRow, 'model' | 'key' | 'user' | 'tag' | 'tier' | 'ending'>;

const groupOf = ({ model, key, user, tag: label, tier, ending }: Grouped) => ({
  model,
  api_key_id: key,
  user_id: user,
  tag: label,
  service_tier: tier,
  ending,
});

export function bucketPage<Row extends { readonly bucket: number }>(
  { timeZone, bounds, nextFrom }: Pick<AskedReport, 'timeZone' | 'bounds' | 'nextFrom'>,
  rows: readonly Row[],
  shown: (row: Row) => object,
) {
  const results = bounds.slice(0, -1).map((): object[] => []);
  for (const row of rows) results[row.bucket]!.push(shown(row));
  return {
    object: 'page',
    time_zone: timeZone,
    data: results.map((of, index) => ({
      object: 'bucket',
      start_time: secondsOf(bounds[index]!),
      end_time: secondsOf(bounds[index + 1]!),
      results: of,
    })),
    has_more: nextFrom !== undefined,
    ...(nextFrom === undefined ? {} : { next_page: String(secondsOf(nextFrom)) }),
  };
}

/** The store refuses reports that are too large to read, and those of hours whose requests no longer have details. */
export async function readable<Rows>(report: Promise<Rows>): Promise<Rows> {
  try {
    return await report;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (error.code === 'gone')
      throw new ApiError('unsupported_value', error.message, { param: 'start_time', cause: error });
    if (error.code !== 'invalid') throw error;
    throw new ApiError(
      'unsupported_value',
      'The report has too many groups: ask for fewer buckets, or group by fewer fields.',
      {
        param: 'group_by',
        cause: error,
      },
    );
  }
}

/** Old requests have no details, so an unknown id may belong to one. */
export const notKept = (keptSince: number): ApiError =>
  keptSince === 0
    ? notThere()
    : new ApiError(
        'http_404',
        `Nothing with this id was found. Details of requests that ended before ${new Date(keptSince).toISOString()} are not kept, only their sums.`,
      );

async function cursorAt({ account, services }: Pick<Call, 'account' | 'services'>, after: string) {
  const requestId = parseUuid(after);
  const cursor =
    requestId === undefined
      ? undefined
      : await services.operations.repositories.cursorOf({ accountId: account.id, requestId });
  if (cursor === undefined)
    throw new ApiError('unsupported_value', 'This page does not exist: use `next_after` of the previous page.', {
      param: 'after',
    });
  return cursor;
}

const activityDays = 30;

/** The bounds of the days until now. */
function lastDays(timeZone: string, now: number): readonly number[] {
  const bounds = [nextDay(timeZone, now)];
  while (bounds.length <= activityDays) bounds.unshift(startOfDay(timeZone, bounds[0]! - 1));
  return bounds;
}

function dayNamed(timeZone: string, date: string): readonly number[] {
  const midnight = Date.parse(`${date}T00:00:00Z`);
  if (Number.isNaN(midnight) || new Date(midnight).toISOString().slice(0, 10) !== date)
    throw new ApiError('unsupported_value', 'This day does not exist.', { param: 'date' });
  const from = startOfDate(timeZone, midnight);
  return [from, nextDay(timeZone, from)];
}

/** Reports, receipts and exports of the account API, each against the requests that were played. */
import assert from 'node:assert/strict';
import { localText, nextDay, dateAt } from '../../src/platform/calendar/time-zone.ts';
import { uuidText } from '../../src/platform/ids/uuid.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { dimensions, hexOf, movedIn, requestsIn, sumOf, valuesOf } from './played.ts';
import type { Dimension, Moved, Played, Span } from './played.ts';

/** GET, as JSON or as it comes. */
export interface Asker {
  json(path: string): Promise<never>;
  stream(path: string): AsyncIterable<string>;
}

interface Buckets {
  readonly time_zone: string;
  readonly data: readonly {
    readonly start_time: number;
    readonly end_time: number;
    readonly results: readonly Readonly<Record<string, unknown>>[];
  }[];
  readonly next_page?: string;
}

const pageMax = { '1m': 1440, '1h': 168, '1d': 366 } as const;
export type Width = keyof typeof pageMax;
const seconds = (ms: number): number => ms / 1000;
const spanQuery = ({ from, to }: Span): string => `start_time=${seconds(from)}&end_time=${seconds(to)}`;
const groupQuery = (by: Dimension | undefined): string => (by === undefined ? '' : `&group_by[]=${by}`);

/** By every dimension, and by none. */
export const allGroups = [undefined, ...dimensions] as const;

/** Usage and costs of a span, in buckets and in groups. */
export async function compareBuckets(
  ask: Asker,
  played: Played,
  zone: string,
  span: Span,
  width: Width,
  groups: readonly (Dimension | undefined)[] = allGroups,
): Promise<void> {
  const { accountId } = played;
  const rows = requestsIn(played, accountId, span);
  const refunds = movedIn(played, accountId, span).filter(({ request }) => request !== undefined);
  for (const by of groups) {
    const where = `${zone}, ${width}, by ${by}, ${JSON.stringify(span)}`;
    const bounds = new Set<number>();
    const usage: string[] = [];
    const costs: string[] = [];
    const query = `${spanQuery(span)}&bucket_width=${width}${groupQuery(by)}&limit=${pageMax[width]}`;
    for await (const { start, result } of bucketsOf(ask, `/v1/usage?${query}`, zone, bounds))
      usage.push(
        [
          start,
          result[by ?? 'model'],
          result['num_model_requests'],
          result['input_tokens'],
          result['input_cached_tokens'],
          result['output_tokens'],
          result['output_reasoning_tokens'],
          result['cost_microcents'],
          result['uncharged_microcents'],
        ].join(' '),
      );
    for await (const { start, result } of bucketsOf(ask, `/v1/costs?${query}`, zone, bounds))
      costs.push([start, result[by ?? 'model'], result['line_item'], result['amount_microcents']].join(' '));
    const bucketOf = bucketFinder([...bounds]);
    assert.deepEqual(usage.sort(), usageOf(played, rows, by, bucketOf), `usage, ${where}`);
    assert.deepEqual(costs.sort(), costsOf(played, rows, refunds, by, bucketOf), `costs, ${where}`);
  }
}

async function* bucketsOf(ask: Asker, path: string, zone: string, bounds: Set<number>) {
  for (let page: string | undefined = ''; page !== undefined;) {
    const found: Buckets = await ask.json(page === '' ? path : `${path}&page=${page}`);
    assert.equal(found.time_zone, zone);
    for (const { start_time: start, results } of found.data) {
      bounds.add(start * 1000);
      for (const result of results) yield { start, result };
    }
    page = found.next_page;
  }
}

/** The start in seconds of the bucket that a time is in. */
function bucketFinder(starts: readonly number[]): (at: number) => number {
  const sorted = starts.toSorted((a, b) => a - b);
  return (at) => {
    let low = 0;
    for (let high = sorted.length - 1; low < high;) {
      const middle = Math.ceil((low + high) / 2);
      if (sorted[middle]! <= at) low = middle;
      else high = middle - 1;
    }
    return seconds(sorted[low]!);
  };
}

function usageOf(
  played: Played,
  rows: readonly UsageRow[],
  by: Dimension | undefined,
  bucketOf: (at: number) => number,
): readonly string[] {
  const sums = new Map<string, { counts: number[]; cost: bigint; uncharged: bigint }>();
  for (const row of rows)
    for (const value of valuesOf(played, row, by)) {
      const name = `${bucketOf(row.endedAt)} ${value ?? ''}`;
      const sum = sums.get(name) ?? { counts: [0, 0, 0, 0, 0], cost: 0n, uncharged: 0n };
      sums.set(name, sum);
      const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = row;
      for (const [index, count] of [1, promptTokens, cachedTokens, completionTokens, reasoningTokens].entries())
        sum.counts[index]! += count;
      sum.cost += row.costMicrocents;
      sum.uncharged += row.unchargedMicrocents;
    }
  return [...sums].map(([name, { counts, cost, uncharged }]) => [name, ...counts, cost, uncharged].join(' ')).sort();
}

function costsOf(
  played: Played,
  rows: readonly UsageRow[],
  refunds: readonly Moved[],
  by: Dimension | undefined,
  bucketOf: (at: number) => number,
): readonly string[] {
  const sums = new Map<string, bigint>();
  const add = (row: UsageRow, at: number, item: string, amount: bigint): void => {
    for (const value of valuesOf(played, row, by)) {
      const name = `${bucketOf(at)} ${value ?? ''} ${item}`;
      sums.set(name, (sums.get(name) ?? 0n) + amount);
    }
  };
  for (const row of rows) if (row.costMicrocents > 0n) add(row, row.endedAt, 'usage', row.costMicrocents);
  for (const { request, at, microcents } of refunds) add(request!, at, 'refunds', -microcents);
  return [...sums].map(([name, amount]) => `${name} ${amount}`).sort();
}

/** Each day of the span, by model. */
export async function compareActivity(ask: Asker, played: Played, zone: string, span: Span): Promise<void> {
  for (let from = span.from; from < span.to; from = nextDay(zone, from)) {
    const date = dateAt(zone, from);
    const { data }: { readonly data: readonly Readonly<Record<string, unknown>>[] } = await ask.json(
      `/v1/activity?date=${date}`,
    );
    const reported = data.map((row) =>
      [seconds(from), row['model'], row['requests'], row['cost_microcents']].join(' '),
    );
    const rows = requestsIn(played, played.accountId, { from, to: nextDay(zone, from) });
    const models = [...new Set(rows.map(({ modelId }) => modelId))];
    const expected = models.map((model) => {
      const own = rows.filter(({ modelId }) => modelId === model);
      return [seconds(from), model, own.length, sumOf(own, (row) => row.costMicrocents)].join(' ');
    });
    assert.deepEqual(reported.sort(), expected.sort(), `${zone} ${date}`);
  }
}

/** Receipts of some requests: their rows of the ledger are the charge and what was given back. */
export async function compareReceipts(ask: Asker, played: Played, rows: readonly UsageRow[]): Promise<void> {
  const refunds = refundsByRequest(played);
  for (const row of rows) {
    const id = uuidText(row.requestId);
    const receipt: {
      readonly total_cost_microcents: number;
      readonly refunded_microcents: number;
      readonly list_cost_microcents: number;
      readonly uncharged_microcents: number;
      readonly ended_at: number;
      readonly service_tier: string;
      readonly batch_id: string | null;
      readonly ledger: readonly { readonly amount_microcents: number }[];
    } = await ask.json(`/v1/generation?id=${id}`);
    const back = Number(refunds.get(hexOf(row.requestId)) ?? 0n);
    const cost = Number(row.costMicrocents);
    assert.deepEqual(
      [
        receipt.total_cost_microcents,
        receipt.uncharged_microcents,
        receipt.list_cost_microcents,
        receipt.refunded_microcents,
        receipt.ledger.reduce((sum, { amount_microcents: amount }) => sum + amount, 0),
        receipt.ended_at,
        receipt.service_tier,
        receipt.batch_id,
      ],
      [
        cost,
        Number(row.unchargedMicrocents),
        // Of a crashed request nothing is known but its hold.
        row.ending === 'crashed' ? 0 : cost + Number(row.unchargedMicrocents),
        back,
        back - cost,
        Math.floor(row.endedAt / 1000),
        row.tier,
        row.batchId,
      ],
      id,
    );
  }
}

const refundsByRequest = ({ moved }: Played): ReadonlyMap<string, bigint> =>
  new Map(
    moved.flatMap(({ request, microcents }) => (request ? [[hexOf(request.requestId), microcents] as const] : [])),
  );

const exported = [
  'tokens_prompt',
  'tokens_cached',
  'tokens_completion',
  'tokens_reasoning',
  'cost_microcents',
  'uncharged_microcents',
  'refunded_microcents',
] as const;

/** Every request of a span in an export that is read as it comes; behind them stand their sums. */
export async function compareGenerations(
  ask: Asker,
  played: Played,
  zone: string,
  span: Span,
  format: 'csv' | 'json',
): Promise<void> {
  const refunds = refundsByRequest(played);
  const figuresOf = (row: UsageRow): readonly bigint[] => [
    BigInt(row.promptTokens),
    BigInt(row.cachedTokens),
    BigInt(row.completionTokens),
    BigInt(row.reasoningTokens),
    row.costMicrocents,
    row.unchargedMicrocents,
    refunds.get(hexOf(row.requestId)) ?? 0n,
  ];
  const missing = new Map(requestsIn(played, played.accountId, span).map((row) => [uuidText(row.requestId), row]));
  const expectedSums = exported.map((_, index) => sumOf([...missing.values()], (row) => figuresOf(row)[index]!));
  const expectedRows = missing.size;
  const sums = exported.map(() => 0n);
  let totals: readonly bigint[] | undefined;
  const path = `/v1/export/generations.${format}?${spanQuery(span)}`;
  for await (const line of linesOf(format, ask.stream(path))) {
    const figures = exported.map((name) => BigInt(line.cells[name] as string | number));
    if (line.isTotal) {
      assert.equal(totals, undefined);
      totals = figures;
      if (format === 'json') assert.equal(line.cells['rows'], expectedRows);
      continue;
    }
    const id = String(line.cells['id']);
    const row = missing.get(id);
    assert.ok(row, `${format}: ${id} is one of the span, and there once`);
    missing.delete(id);
    assert.deepEqual(figures, figuresOf(row), id);
    assert.equal(line.cells['ended_at_utc'], new Date(row.endedAt).toISOString());
    // Each costs a look at the calendar, so one of many.
    if (missing.size % 50 === 0) assert.equal(line.cells['ended_at_local'], localText(zone, row.endedAt));
    for (const [index, figure] of figures.entries()) sums[index]! += figure;
  }
  assert.equal(missing.size, 0, `${format}: none is left out`);
  assert.deepEqual(sums, expectedSums);
  assert.deepEqual(totals, expectedSums);
}

interface ExportLine {
  readonly cells: Readonly<Record<string, string | number>>;
  readonly isTotal: boolean;
}

async function* linesOf(format: 'csv' | 'json', stream: AsyncIterable<string>): AsyncGenerator<ExportLine> {
  let header: readonly string[] | undefined;
  for await (const line of textLines(stream)) {
    if (format === 'json') {
      if (line.startsWith('{"object"')) continue;
      if (!line.startsWith(']')) yield { cells: parsed(line.replace(/,$/, '')), isTotal: false };
      else yield { cells: parsed(/"totals":(\{.*?\})/.exec(line)![1]!), isTotal: true };
      continue;
    }
    const cells = line.replace(/\r$/, '').split(',');
    if (header === undefined) header = cells;
    else {
      assert.equal(cells.length, header.length, line);
      const named = Object.fromEntries(header.map((name, index) => [name, cells[index]!]));
      yield { cells: named, isTotal: cells[0] === 'total' };
    }
  }
}

const parsed = (text: string) => JSON.parse(text) as ExportLine['cells'];

async function* textLines(stream: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = '';
  for await (const piece of stream) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop()!;
    yield* lines.filter((line) => line !== '');
  }
  if (rest !== '') yield rest;
}

/** The sums behind whole reports are those of the span. */
export async function compareReportExports(ask: Asker, played: Played, span: Span, width: Width): Promise<void> {
  const rows = requestsIn(played, played.accountId, span);
  const refunds = movedIn(played, played.accountId, span).filter(({ request }) => request !== undefined);
  const cost = sumOf(rows, (row) => row.costMicrocents);
  const amounts = { usage: cost, costs: cost - sumOf(refunds, ({ microcents }) => microcents) };
  for (const report of ['usage', 'costs'] as const)
    for (const format of ['csv', 'json'] as const) {
      const path = `/v1/export/${report}.${format}?${spanQuery(span)}&bucket_width=${width}&group_by[]=model&group_by[]=user_id`;
      const name = report === 'usage' ? 'cost_microcents' : 'amount_microcents';
      let sum = 0n;
      let total: bigint | undefined;
      for await (const { cells, isTotal } of linesOf(format, ask.stream(path)))
        if (isTotal) total = BigInt(cells[name]!);
        else sum += BigInt(cells[name]!);
      assert.deepEqual([sum, total], [amounts[report], amounts[report]], path);
    }
}

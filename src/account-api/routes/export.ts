import Type from 'typebox';

import type { RefundSum, ReportRow } from '../../store/reports/reports.ts';
import { localText } from '../../platform/calendar/time-zone.ts';
import { exportedGenerations, generationColumns } from '../exported-generation.ts';
import { printExport } from '../export.ts';
import type { Columns, Exported, ExportFormat } from '../columns.ts';
import { askedReport, reportQuery, timeZoneOf } from '../report-request.ts';
import type { AskedReport, ReportQuery } from '../report-request.ts';
import { everyRole, Reply, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { costResult, generationFilter, generationQuery, readable, usageResult } from './usage.ts';

const formats = {
  csv: 'text/csv; charset=utf-8',
  json: 'application/json',
  parquet: 'application/vnd.apache.parquet',
} as const satisfies Readonly<Record<ExportFormat, string>>;
const namesOfFormats = { csv: 'Csv', json: 'Json', parquet: 'Parquet' } as const;
const tag = 'Export';
const about =
  'All rows that match the filter, streamed, with their sums at the end. CSV is RFC 4180; an apostrophe precedes text that a spreadsheet would take for a formula. A Parquet file has its sums in its metadata. Times are in UTC and in the time zone of the account.';

const { page: _page, limit: _limit, ...reportProperties } = reportQuery.properties;
/** For whole reports, which have no pages. */
const wholeReport = Type.Object(reportProperties);

export const exportRoutes: readonly AccountRoute[] = (['csv', 'json', 'parquet'] as const).flatMap((format) => [
  route({
    method: 'get',
    path: `/v1/export/generations.${format}`,
    operationId: `exportGenerations${namesOfFormats[format]}`,
    tag,
    summary: `Export requests as ${format.toUpperCase()}`,
    description: `${about} Newest first. Developers and viewers get the requests of their own keys.`,
    access: everyRole,
    query: Type.Object(generationQuery),
    answers: [{ status: 200, description: 'One row per request.', contentType: formats[format] }],
    handle: async (call) => {
      const timeZone = await timeZoneOf(call);
      const { repositories, now } = call.services.operations;
      // Requests that end during the export are not in it.
      const filter = { to: now() + 1, ...generationFilter(call) };
      return file('generations', format, generationColumns, exportedGenerations(repositories, filter, timeZone));
    },
  }),
  route({
    method: 'get',
    path: `/v1/export/usage.${format}`,
    operationId: `exportUsage${namesOfFormats[format]}`,
    tag,
    summary: `Export usage over time as ${format.toUpperCase()}`,
    description: `${about} The same as GET /v1/usage, without pages.`,
    access: everyRole,
    query: wholeReport,
    answers: [{ status: 200, description: 'One row per bucket and group with usage.', contentType: formats[format] }],
    handle: async (call) => {
      const first = await askedReport(call);
      const rowsOf = async (asked: AskedReport) =>
        (await readable(call.services.operations.repositories.reportUsage(asked))).map((row) =>
          bucketRow(asked, row, usageResult),
        );
      return file('usage', format, usageColumns, buckets(call, first, rowsOf));
    },
  }),
  route({
    method: 'get',
    path: `/v1/export/costs.${format}`,
    operationId: `exportCosts${namesOfFormats[format]}`,
    tag,
    summary: `Export costs over time as ${format.toUpperCase()}`,
    description: `${about} The same as GET /v1/costs, without pages.`,
    access: everyRole,
    query: wholeReport,
    answers: [{ status: 200, description: 'One row per bucket, group and line item.', contentType: formats[format] }],
    handle: async (call) => {
      const first = await askedReport(call);
      const { repositories } = call.services.operations;
      const rowsOf = async (asked: AskedReport) => {
        const charged = (await readable(repositories.reportUsage(asked))).filter(({ cost }) => cost > 0n);
        const all: readonly (ReportRow | RefundSum)[] = [...charged, ...(await repositories.reportRefunds(asked))];
        return all
          .toSorted((a, b) => a.bucket - b.bucket)
          .map((row) =>
            bucketRow(asked, row, (one) => {
              const { amount, ...result } = costResult(one);
              return { amount_usd: amount.value, ...result };
            }),
          );
      };
      return file('costs', format, costColumns, buckets(call, first, rowsOf));
    },
  }),
]);

const bucketColumns = {
  start_utc: 'time',
  end_utc: 'time',
  start_local: 'text',
  end_local: 'text',
  model: 'text',
  api_key_id: 'text',
  user_id: 'text',
  tag: 'text',
  service_tier: 'text',
  ending: 'text',
} as const satisfies Columns;
const usageColumns = {
  ...bucketColumns,
  num_model_requests: 'sum',
  input_tokens: 'sum',
  input_cached_tokens: 'sum',
  output_tokens: 'sum',
  output_reasoning_tokens: 'sum',
  cost_microcents: 'sum',
  uncharged_microcents: 'sum',
} as const satisfies Columns;
const costColumns = {
  ...bucketColumns,
  line_item: 'text',
  amount_microcents: 'sum',
  amount_usd: 'text',
} as const satisfies Columns;

/** An export as a file to save. */
export function file(
  name: string,
  format: ExportFormat,
  columns: Columns,
  pages: AsyncIterable<readonly Exported[]>,
): Reply {
  const headers = {
    'content-type': formats[format],
    'content-disposition': `attachment; filename="${name}.${format}"`,
  };
  return new Reply(200, headers, printExport(format, columns, pages));
}

/** All pages of a report, one after the other. */
async function* buckets(
  call: Pick<Call, 'account' | 'principal' | 'services' | 'signal'> & { readonly query: ReportQuery },
  first: AskedReport,
  rowsOf: (asked: AskedReport) => Promise<readonly Exported[]>,
): AsyncGenerator<readonly Exported[]> {
  // Fixes the end of the span, however long reading it takes.
  const endOf = call.query.end_time ?? Math.ceil((call.services.operations.now() + 1) / 1000);
  const query = { ...call.query, start_time: first.bounds[0]! / 1000, end_time: endOf };
  for (let asked: AskedReport | undefined = first; asked !== undefined && !call.signal.aborted;) {
    yield await rowsOf(asked);
    const { nextFrom }: AskedReport = asked;
    asked =
      nextFrom === undefined
        ? undefined
        : await askedReport({ ...call, query: { ...query, page: String(nextFrom / 1000) } });
  }
}

function bucketRow<Row extends { readonly bucket: number }>(
  { timeZone, bounds }: AskedReport,
  row: Row,
  shown: (row: Row) => Exported,
): Exported {
  const [from, to] = [bounds[row.bucket]!, bounds[row.bucket + 1]!];
  return {
    start_utc: new Date(from).toISOString(),
    end_utc: new Date(to).toISOString(),
    start_local: localText(timeZone, from),
    end_local: localText(timeZone, to),
    ...shown(row),
  };
}

import { useGet } from '../../api/use-api.ts';
import { bucketsMax, reportQuery } from './filter.ts';
import type { RequestFilter, Span } from './filter.ts';

interface Errors {
  readonly refused: number;
  readonly failed: number;
  /** The span is longer than a page of the API, which these are of. */
  readonly isPart: boolean;
}

/** How many requests of a span were refused and failed. Undefined: not known yet, or the API has no such sums. */
export function useErrors(filter: RequestFilter, span: Span, every?: number): Errors | undefined {
  // Refused requests have neither label, tier nor ending.
  const { tag, service_tier: tier, ending, ...query } = reportQuery(filter, span);
  const { error } = filter;
  const code = error === undefined ? {} : { error_code: error };
  const enabled = span.start !== undefined && [tag, tier, ending].every((one) => one === undefined);
  const { data } = useGet(
    '/v1/errors',
    { query: { ...query, ...code, limit: bucketsMax['1d'] } },
    { enabled, keepPrevious: true, every },
  );
  if (!enabled || data === undefined) return undefined;
  const results = data.data.flatMap((bucket) => bucket.results);
  return {
    refused: results.reduce((sum, one) => sum + one.num_refused_requests, 0),
    failed: results.reduce((sum, one) => sum + one.num_failed_requests, 0),
    isPart: data.has_more,
  };
}

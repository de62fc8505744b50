import { mayPay, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import { reportQuery } from './filter.ts';
import type { RequestFilter, Span } from './filter.ts';
import { groupings, type Grouping } from './groupings.ts';

/** The field of a filter for each thing that is counted. */
const fields = {
  model: 'model',
  key: 'key',
  person: 'user',
  tag: 'tag',
  tier: 'tier',
  ending: 'ending',
  error: 'error',
} as const satisfies Readonly<Record<Grouping | 'error', keyof RequestFilter>>;

/** As many as are offered. */
const groupsMax = 100;

/**
 * How many requests of a span there are by model, key, …, under all other filters: from sums, whatever the number of requests. undefined: not
 * asked for, not known yet, or there are no such sums.
 */
export function useCounts(
  { filter, span }: { readonly filter: RequestFilter; readonly span: Span },
  by: keyof typeof fields,
  isWanted: boolean,
): ReadonlyMap<string, number> | undefined {
  const { may, me } = useSession();
  const { error, ...others }: RequestFilter = { ...filter, [fields[by]]: undefined };
  const { tag, tier, ending } = others;
  const isRefused = ending === 'refused';
  // Of labels together with tiers or endings there are no sums, and of errors alone, which have none of these.
  const hasTag = by === 'tag' || tag !== undefined;
  const hasTier = by === 'tier' || by === 'ending' || tier !== undefined || (ending !== undefined && !isRefused);
  const isOfErrors = isRefused || by === 'error';
  const isSummed = isOfErrors
    ? !hasTag && tier === undefined && by !== 'tier' && (ending === undefined || isRefused)
    : error === undefined && !(hasTag && hasTier);
  const enabled = isWanted && span.start !== undefined && isSummed;
  // The list has requests of their own keys alone.
  const own = may(mayPay) ? {} : { user_id: me.id };
  const { tag: _tag, service_tier: _tier, ending: _ending, ...ofErrors } = reportQuery(others, span);
  const common = { ...own, bucket_width: 'all' } as const;
  const usage = useGet(
    '/v1/usage',
    {
      query: {
        ...reportQuery(others, span),
        ...common,
        group_by: [by === 'error' ? 'ending' : groupings[by]],
        top: groupsMax,
      },
    },
    { enabled: enabled && !isOfErrors, keepPrevious: true },
  ).data;
  // Refused requests are in no other sum.
  const group = by === 'model' ? 'model' : by === 'key' ? 'api_key_id' : by === 'person' ? 'user_id' : 'error_code';
  const errors = useGet(
    '/v1/errors',
    {
      query: {
        ...ofErrors,
        ...common,
        ...(error === undefined ? {} : { error_code: error }),
        group_by: by === 'ending' ? [] : [group],
      },
    },
    { enabled: enabled && (isOfErrors || (by === 'ending' && !hasTag && tier === undefined)), keepPrevious: true },
  ).data;
  if (!enabled || (isOfErrors ? errors : usage) === undefined) return undefined;
  const counts = new Map<string, number>();
  if (!isOfErrors)
    for (const result of usage!.data.flatMap(({ results }) => results))
      counts.set(result[groupings[by as Grouping]] ?? '', result.num_model_requests);
  for (const result of errors?.data.flatMap(({ results }) => results) ?? []) {
    const count = isRefused || by === 'ending' ? result.num_refused_requests : result.num_failed_requests;
    const name = by === 'ending' ? 'refused' : (result[group] ?? '');
    if (count > 0) counts.set(name, (counts.get(name) ?? 0) + count);
  }
  counts.delete('');
  return counts;
}

import { useGet } from '../../api/use-api.ts';
import { useNow } from '../../components/use-now.ts';
import { spanOf } from './filter.ts';
import type { RequestFilter, Span } from './filter.ts';

interface InZone {
  readonly span: Span;
  /** Of the account. */
  readonly zone: string;
}

/** The span of a filter in the zone of the account; undefined: the zone is not known yet. It changes at midnight, not before. */
export function useSpan(filter: RequestFilter): InZone | undefined {
  const now = useNow(60_000);
  const { data: account } = useGet('/v1/account');
  if (account === undefined) return undefined;
  return { span: spanOf(filter, Math.floor(now / 1000), account.time_zone), zone: account.time_zone };
}

import { useGet } from '../../api/use-api.ts';
import { Note } from '../../components/state.tsx';
import { formatDate } from '../../format/date.ts';
import { useText } from '../../i18n/text.ts';
import type { Span } from './filter.ts';
import type { UsageTexts } from './messages/en.ts';

/** Since when there are details of requests, where a period begins before that. */
export function DetailsSince({ span: { start } }: { readonly span: Span }) {
  const t = useText<UsageTexts>('usage');
  const since = useGet('/v1/generations', { query: { limit: 1 } }).data?.details_since ?? null;
  if (since === null || (start !== undefined && start >= since)) return null;
  return <Note>{t('detailsSince', { date: formatDate(since) })}</Note>;
}

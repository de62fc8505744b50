import { Link } from '@tanstack/react-router';

import { useGet } from '../api/use-api.ts';
import type { AppTexts } from '../app/messages/en.ts';
import { formatPercent } from '../format/number.ts';
import { useText } from '../i18n/text.ts';
import type { Tile } from './page.tsx';

const days = 7;
const hourSeconds = 3600;

/** The share of requests that were refused or failed in the last days: of the account, a key or a model. It opens the refused ones. */
export function useErrorTile(of: { readonly key?: string; readonly model?: string }): Tile {
  const t = useText<AppTexts>('app');
  // The same for an hour, so that it is one entry of the cache.
  const start = Math.floor(Date.now() / 1000 / hourSeconds) * hourSeconds - days * 24 * hourSeconds;
  const query = {
    start_time: start,
    limit: days + 2,
    ...(of.key === undefined ? {} : { api_key_id: of.key }),
    ...(of.model === undefined ? {} : { model: of.model }),
  };
  const options = { every: 15_000, keepPrevious: true };
  const errors = useGet('/v1/errors', { query }, options).data?.data.flatMap(({ results }) => results);
  const usage = useGet('/v1/usage', { query }, options).data?.data.flatMap(({ results }) => results);
  const name = t('errorRate');
  if (errors === undefined || usage === undefined) return { name, value: '–' };
  const refused = errors.reduce((sum, one) => sum + one.num_refused_requests, 0);
  const failed = errors.reduce((sum, one) => sum + one.num_failed_requests, 0);
  const all = usage.reduce((sum, one) => sum + one.num_model_requests, 0) + refused;
  const share = all === 0 ? '–' : formatPercent(Math.min(1, (refused + failed) / all));
  return {
    name,
    value:
      refused === 0 ? (
        share
      ) : (
        <Link to="/requests" search={{ since: '7d', ending: 'refused', ...of } as never}>
          {share}
        </Link>
      ),
    note: t('errorRateNote', { refused, failed }),
  };
}

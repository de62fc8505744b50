import { useQuery } from '@tanstack/react-query';

import { get, getKey } from '../api/use-api.ts';
import type { Row } from '../api/use-api.ts';
import { allRows } from './all-rows.ts';

/** What is typed letter by letter is looked for in what was read a moment ago. */
const freshMs = 60_000;

/** Every row of a list, page after page, up to a thousand; none before it is enabled. */
export function useAllRows<Path extends '/v1/keys' | '/v1/members'>(
  path: Path,
  enabled: boolean,
): readonly Row<Path>[] | undefined {
  return useQuery({
    queryKey: [...getKey(path), 'all'],
    queryFn: ({ signal }) => allRows<Row<Path>>((query) => get(path, { query } as never, signal) as never),
    staleTime: freshMs,
    enabled,
  }).data;
}

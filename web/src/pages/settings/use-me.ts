import { useQueryClient } from '@tanstack/react-query';

import { meQuery } from '../../api/session.ts';

/** Asks again who is signed in: after a change of one's name, codes or accounts. */
export function useRefreshMe(): () => void {
  const queries = useQueryClient();
  return () => void queries.invalidateQueries({ queryKey: meQuery.queryKey });
}

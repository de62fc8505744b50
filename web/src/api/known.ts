import { useGet } from './use-api.ts';

/** As many as one answer has: the newest. What is older is known by its id. */
export const knownMax = 100;

/** Keys of the account that lists and filters offer by name, paused ones too. */
export const useKeys = () =>
  useGet('/v1/keys', { query: { include_disabled: true, limit: knownMax } }).data?.data ?? [];
/** Its people. */
export const useMembers = () => useGet('/v1/members', { query: { limit: knownMax } }).data?.data ?? [];

import { useGet } from './use-api.ts';

/** As many as one answer has: the newest. What is older is known by its id. */
export const knownMax = 100;

const listed = { query: { include_disabled: true, limit: knownMax } };

/** Keys of the account that lists and filters offer by name, paused ones too. */
export const useKeys = (enabled = true) => useGet('/v1/keys', listed, { enabled }).data?.data ?? [];
/** Its people. */
export const useMembers = (enabled = true) =>
  useGet('/v1/members', { query: { limit: knownMax } }, { enabled }).data?.data ?? [];

/** Names of keys by their ids; those that are revoked, or older than the list is long, are asked for together. */
export function useKeyNames(ids: readonly string[], enabled = true): (id: string) => string | undefined {
  const known = useGet('/v1/keys', listed, { enabled }).data?.data;
  const isListed = new Set(known?.map(({ id }) => id));
  const others = [...new Set(ids)].filter((id) => !isListed.has(id)).slice(0, knownMax);
  const asked = useGet(
    '/v1/keys',
    { query: { ids: others.toSorted(), limit: knownMax } },
    { enabled: enabled && known !== undefined && others.length > 0, keepPrevious: true },
  ).data?.data;
  const names = new Map([...(asked ?? []), ...(known ?? [])].map(({ id, name }) => [id, name]));
  return (id) => names.get(id);
}

import type { Got } from '../../api/use-api.ts';

type Report = Pick<Got<'/v1/usage'>, 'data'>;

/** What the requests of each person's keys were charged, in microcents, by the id of the person; null: of keys without one. */
export function spentByPerson({ data }: Report): ReadonlyMap<string | null, number> {
  const spent = new Map<string | null, number>();
  for (const { results } of data)
    for (const { user_id: id, cost_microcents: cost } of results) spent.set(id, (spent.get(id) ?? 0) + cost);
  return spent;
}

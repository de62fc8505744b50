/** What queries of usage and of its roll-ups share. */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from './database.ts';
import { hourMs } from './time-zone.ts';

export type TokenColumn = 'prompt_tokens' | 'cached_tokens' | 'completion_tokens' | 'reasoning_tokens';

/** What a query adds up; `requests` is how it counts them. */
export function sumsOf(requests: RawBuilder<bigint>) {
  const sum = <Column extends TokenColumn | 'cost' | 'uncharged'>(column: Column) =>
    sql<bigint>`sum(${sql.ref(column)})`.as(column);
  return [
    requests.as('requests'),
    sum('prompt_tokens'),
    sum('cached_tokens'),
    sum('completion_tokens'),
    sum('reasoning_tokens'),
    sum('cost'),
    sum('uncharged'),
  ] as const;
}

/** Labels are kept as a list of JSON. */
export const tagPattern = (tag: string): string => `%${JSON.stringify(tag).replace(/[%_!]/g, '!$&')}%`;

export const listOf = (text: string | null): readonly string[] | null =>
  text === null ? null : (JSON.parse(text) as readonly string[]);

/** Hours before this one are not written any more: the job writes the last hour with usage and the one before it. */
export async function closedBefore(db: Kysely<Database>): Promise<number> {
  const row = await db
    .selectFrom('usage_hour')
    .select((of) => of.fn.max('hour').as('hour'))
    .executeTakeFirst();
  const last = row?.hour ?? null; // null in an empty table
  return last === null ? 0 : Number(last) - hourMs;
}

import { sql, type Kysely } from 'kysely';
import { changesAtOnce, changesKeptMs } from '../repositories/changes.ts';
import type { Database } from '../database.ts';
import { databaseNow } from './statements.ts';

/**
 * Deletes changes that are an hour old, at most a bounded number, and returns how many. It records what it has deleted in the same
 * transaction: a replica whose last poll was before the end of one of those transactions reloads everything (`readChanges`). It deletes
 * only changes of transactions older than all running ones, so that no replica that polls four times a second misses them. Rows of future
 * transactions come from another server, from whose dump this one was restored; no reader needs them.
 */
export async function pruneChanges(db: Kysely<Database>): Promise<number> {
  const { rows } = await sql<{ readonly pruned: bigint }>`
    with look as (
      select txid_current_snapshot() as snapshot
    ), chosen as (
      select id from change, look
      where at < ${sql.raw(databaseNow)} - ${changesKeptMs}::bigint
        and (tx < txid_snapshot_xmin(snapshot) or tx >= txid_snapshot_xmax(snapshot))
      order by at limit ${changesAtOnce}
    ), deleted as (
      delete from change where id in (select id from chosen) returning tx
    ), noted as (
      update change_pruned
      set tx = greatest(seen.tx, case when change_pruned.tx < txid_snapshot_xmax(look.snapshot) then change_pruned.tx else 0 end)
      from look, (select max(deleted.tx) as tx from deleted, look where deleted.tx < txid_snapshot_xmin(look.snapshot)) as seen
      where seen.tx is not null
    )
    select count(*) as pruned from deleted`.execute(db);
  return Number(rows[0]!.pruned);
}

/**
 * The statements of limits across replicas (money.md, "Limits across replicas"). A limit's row in `limit_window` has the sum of what is
 * leased or used, so it alone decides; `limit_share` records which replica has it. Locks are taken in the same order everywhere: the
 * replica, limits by their key, shares.
 */
import { plentyParts, wantedForMs } from '../limit-leases.ts';
import { databaseNow } from './statements.ts';

const key = (one: string, other: string): string =>
  `${one}.subject = ${other}.subject and ${one}.kind = ${other}.kind and ${one}.length = ${other}.length`;

/**
 * $1 is the replica and $2 its epoch; from $3 the columns of the exchanges (`LimitExchange`). Always returns at least one row: `isAlive` is
 * false, and nothing was done, if the replica does not exist under this epoch; limits that have no row yet are not in the answer. The lock
 * on the replica's row blocks a process that is expiring it, as in `grant`.
 */
export const exchange = {
  name: 'limit_exchange',
  text: `
    with me as (
      select id from replica where id = $1::bytea and limits_epoch = $2::bigint for key share
    ), ask as (
      select * from unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
          $10::bigint[], $11::bigint[], $12::bigint[], $13::boolean[])
        as of_ask (subject, kind, length, starts_at, most, back, owed, least, need, want, leaves)
    ), pool as materialized (
      select ask.*, limit_window.starts_at as was_at, limit_window.used as was_used,
        -- A window further ahead than the next one is of a clock that was wrong.
        limit_window.starts_at < ask.starts_at or limit_window.starts_at > ask.starts_at + ask.length as is_new
      from me, ask, limit_window where ${key('limit_window', 'ask')}
      order by ask.subject, ask.kind, ask.length for no key update of limit_window
    ), own as (
      select pool.*, now_at, now_at = pool.starts_at as is_now, coalesce(limit_share.held, 0) as had,
        case when now_at = pool.starts_at then least(pool.back, coalesce(limit_share.held, 0)) else 0 end as returned
      from pool cross join lateral (select case when is_new then pool.starts_at else was_at end as now_at) as which
        left join limit_share on limit_share.replica_id = $1::bytea and ${key('limit_share', 'pool')}
          and limit_share.starts_at = now_at
    ), room as (
      select own.*, base, most - base as room
      from own cross join lateral (select case when is_new then 0 else was_used end - returned + owed as base) as rest
    ), effect as materialized (
      select room.*, granted, base + granted as used, is_now and granted < need as is_short,
        case when leaves then 0 else had - returned + owed + granted end as held
      from room cross join lateral (
        select case when is_now and room > 0 and room >= least
          then least(room, greatest(need, least(want, room / ${plentyParts}))) else 0 end as granted
      ) as lease
    ), counted as (
      update limit_window set starts_at = now_at, used = effect.used from effect
      where ${key('limit_window', 'effect')} and (effect.used <> was_used or now_at <> was_at)
    ), kept as (
      insert into limit_share (replica_id, subject, kind, length, starts_at, held, wanted_at)
      select $1::bytea, subject, kind, length, now_at, held, case when is_short then ${databaseNow} else 0 end
      from effect where held > 0 or is_short
      on conflict (replica_id, subject, kind, length) do update
        set starts_at = excluded.starts_at, held = excluded.held, wanted_at = excluded.wanted_at
    ), left_behind as (
      delete from limit_share using effect
      where limit_share.replica_id = $1::bytea and ${key('limit_share', 'effect')} and effect.held = 0 and not is_short
    )
    select exists (select 1 from me) as "isAlive", subject, kind, length, now_at as "startsAt", granted, held, used
    from (values (1)) as always left join effect on true`,
};

/** Creates the rows of limits that were never used before: from $1 subjects, kinds, lengths. */
export const beginLimits = {
  name: 'limit_begin',
  text: `
    insert into limit_window (subject, kind, length, starts_at, used)
    select subject, kind, length, 0, 0 from unnest($1::text[], $2::text[], $3::bigint[]) as fresh (subject, kind, length)
    order by subject, kind, length on conflict (subject, kind, length) do nothing`,
};

/**
 * Runs after a statement whose answer was lost: waits until it has ended, and voids what is still in transit. No row: this replica has
 * expired.
 */
export const beginEpoch = {
  name: 'limit_epoch',
  text: `
    with me as (select id from replica where id = $1::bytea for update)
    update replica set limits_epoch = limits_epoch + 1 from me where replica.id = me.id returning limits_epoch as epoch`,
};

export const readShares = {
  name: 'limit_shares',
  text: `select subject, kind, length, starts_at as "startsAt", held from limit_share where replica_id = $1::bytea`,
};

/** The limits that others need and replica $1 has a share of. */
export const readWanted = {
  name: 'limit_wanted',
  text: `
    with recent as (
      select (extract(epoch from clock_timestamp()) * 1000)::bigint - ${wantedForMs} as since
    ), wanted as (
      select distinct subject, kind, length from limit_share
      where wanted_at > 0 and wanted_at > (select since from recent) and replica_id <> $1::bytea
    )
    select wanted.subject, wanted.kind, wanted.length, (
        select count(*) from limit_share
        where ${key('limit_share', 'wanted')} and (held > 0 or wanted_at > (select since from recent))
      ) as contenders
    from wanted join limit_share as own on own.replica_id = $1::bytea and ${key('own', 'wanted')} and own.held > 0`,
};

/**
 * Running requests of expired replicas have ended with them, so their slots are free; their use of a window stays counted. As for leases: a
 * separate statement, whose snapshot is newer than the deletion of their rows.
 */
export const returnShares = {
  name: 'limit_return',
  text: `
    with stranded as materialized (
      select replica_id, subject, kind, length from limit_share
      where not exists (select 1 from replica where replica.id = limit_share.replica_id)
    ), pool as materialized (
      select subject, kind, length, used from limit_window
      where (subject, kind, length) in (select subject, kind, length from stranded where kind = 'running')
      order by subject, kind, length for no key update
    ), returned as (
      delete from limit_share using stranded
      where (select count(*) from pool) >= 0 -- locked before
        and limit_share.replica_id = stranded.replica_id and ${key('limit_share', 'stranded')}
      returning limit_share.subject, limit_share.kind, limit_share.length, limit_share.held
    ), total as (
      select subject, kind, length, sum(held)::bigint as held from returned group by subject, kind, length
    )
    update limit_window set used = pool.used - total.held from total, pool
    where ${key('total', 'pool')} and ${key('limit_window', 'pool')}`,
};

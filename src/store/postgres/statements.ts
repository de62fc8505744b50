/**
 * The statements of the hot path and of a replica's membership, each one round trip and one transaction. A replica's row is the fencing
 * token: leasing to it locks that row, and its expiry deletes it.
 */
import { columnTypes } from '../schema/create-schema.ts';
import { tables } from '../schema/tables.ts';
import { usageColumns } from '../reports/usage-columns.ts';
import { longestRequestMs } from '../reports/usage-months.ts';

/** Milliseconds since 1970 by the database's clock, because replicas' clocks may differ (reliability M4). */
export const databaseNow = `(extract(epoch from clock_timestamp()) * 1000)::bigint`;

export const register = {
  name: 'register',
  text: `insert into replica (id, heartbeat_at) values ($1::bytea, ${databaseNow}) returning heartbeat_at`,
};

/** No row: this replica has expired. Otherwise the time. */
export const heartbeat = {
  name: 'heartbeat',
  text: `update replica set heartbeat_at = ${databaseNow} where id = $1::bytea returning heartbeat_at`,
};

interface BalanceTable {
  readonly name: string;
  /** The expression for what can be leased from a row of the table. */
  readonly spendable: string;
  readonly condition: string;
  readonly lease: { readonly table: string; readonly column: string };
}

const credit: BalanceTable = {
  name: 'account',
  spendable: 'available + credit_limit - owed',
  condition: `kind = 0 and status = 'active'`,
  lease: { table: 'credit_lease', column: 'account_id' },
};
const budget: BalanceTable = {
  name: 'budget_balance',
  spendable: 'available',
  condition: 'true',
  lease: { table: 'budget_lease', column: 'balance_id' },
};

/**
 * Leases a part of balance $2: at least $3 or nothing, up to $4, in steps of $5; beyond $3, at most a sixteenth of what is available, so
 * that others find some too. `$3` may be 0: leases ahead of need.
 */
const grantOf = ({ name, spendable, condition, lease: { table, column } }: BalanceTable) => `
    with me as (
      select id from replica where id = $1::bytea for key share
    ), source as (
      select ${name}.id, ${spendable} as spendable from ${name}, me
      where ${name}.id = $2 and ${condition} for no key update of ${name}
    ), amount as (
      select id, least(spendable, greatest($3::bigint, least($4::bigint, spendable / 16 / $5::bigint * $5::bigint))) as leased
      from source where spendable > 0 and spendable >= $3::bigint
    ), debited as (
      update ${name} set available = available - amount.leased from amount where ${name}.id = amount.id and amount.leased > 0
    ), lease as (
      insert into ${table} (replica_id, ${column}, remaining) select $1::bytea, id, leased from amount where leased > 0
      on conflict (replica_id, ${column}) do update set remaining = ${table}.remaining + excluded.remaining
    )
    select coalesce((select leased from amount), 0)::bigint as leased,
      exists (select 1 from ${table} where ${column} = $2 and replica_id <> $1::bytea and remaining > 0) as "isElsewhere",
      exists (select 1 from ${name} where id = $2) as "isThere"`;

/**
 * Returns $3 of a lease to balance $2; no row if this replica no longer owns the lease. Locks the balance before the lease, as a grant
 * does.
 */
const returnUnusedOf = ({ name, lease: { table, column } }: BalanceTable) => `
    with source as (
      select id from ${name} where id = $2 for no key update
    ), returned as (
      update ${table} set remaining = remaining - $3::bigint from source
      where replica_id = $1::bytea and ${column} = source.id and remaining >= $3::bigint returning ${column}
    )
    update ${name} set available = available + $3::bigint where id = (select ${column} from returned)`;

export const grant = { name: 'grant', text: grantOf(credit) };
export const returnCredit = { name: 'return_unused', text: returnUnusedOf(credit) };
export const grantOfBudget = { name: 'grant_of_budget', text: grantOf(budget) };
export const returnBudget = { name: 'return_unused_to_budget', text: returnUnusedOf(budget) };

/**
 * Creates balance $1 of $2's budget per $3 for the period from $4 to $5, if it does not exist. This and a change of the budget block each
 * other, so that the balance matches the budget.
 */
export const beginBalance = {
  name: 'begin_balance',
  text: `
    with source as (
      select subject, per, amount from budget where subject = $2 and per = $3 for share
    )
    insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
    select $1, subject, per, $4::bigint, $5::bigint, amount, 0, amount from source on conflict (id) do nothing`,
};

const typeOf = (column: keyof typeof tables.usage.columns): string =>
  columnTypes[tables.usage.columns[column].kind].postgres;

/**
 * Writes a batch: $1 is the replica, $2 the accounts in it, $3 the request ids, from $4 the columns of usage. Rows with a cost are written
 * only if the replica still owns the lease that the cost was held from (M6); rows without a cost always. Returns the ids that are new. The
 * account's row is not touched, so replicas do not wait for each other; leases are locked in account order, so they cannot deadlock.
 */
const settleOf = ({ owned, isRefused, charged }: Readonly<Record<'owned' | 'isRefused' | 'charged', string>>) => `
    with owned as materialized (
      select account_id from credit_lease where replica_id = $1::bytea and account_id = any($2::text[]) order by account_id for no key update
    ), ${owned} batch as (
      select * from unnest($3::bytea[], ${usageColumns.map((column, index) => `$${index + 4}::${typeOf(column)}[]`).join(', ')})
        as of_usage (request_id, ${usageColumns.join(', ')})
    ), written as (
      insert into usage (request_id, ${usageColumns.join(', ')})
      select request_id, ${usageColumns.join(', ')} from batch
      where cost = 0 or account_id in (select account_id from owned) ${isRefused}
      on conflict (request_id) do nothing returning request_id, account_id, cost
    ), debited as (
      update credit_lease set remaining = remaining - total.cost
      from (select account_id, sum(cost)::bigint as cost from written where cost > 0 group by account_id) as total
      where credit_lease.replica_id = $1::bytea and credit_lease.account_id = total.account_id
    ), ${charged} closed as (
      delete from open_request where request_id = any($3::bytea[])
    )
    select encode(request_id, 'hex') as id from written`;

export const settle = { name: 'settle', text: settleOf({ owned: '', isRefused: '', charged: '' }) };

const [balances, chargedRequests, chargedBalances] = [4, 5, 6].map((place) => `$${usageColumns.length + place}`);

/**
 * The same for a batch with rows that are also charged to budgets. After the columns of usage: the balances in it, and the request ids and
 * balances of each charge. The replica must own the leases of those balances as well.
 */
export const settleWithBudgets = {
  name: 'settle_with_budgets',
  text: settleOf({
    owned: `owned_balance as materialized (
      select balance_id from budget_lease where replica_id = $1::bytea and balance_id = any(${balances}::text[]) order by balance_id for no key update
    ), charge as materialized (
      select * from unnest(${chargedRequests}::bytea[], ${chargedBalances}::text[]) as charge (request_id, balance_id)
    ), `,
    isRefused: `and request_id not in (
        select request_id from charge where balance_id not in (select balance_id from owned_balance)
      )`,
    charged: `debited_balance as (
      update budget_lease set remaining = remaining - total.cost
      from (
        select balance_id, sum(cost)::bigint as cost from written join charge using (request_id) where cost > 0 group by balance_id
      ) as total
      where budget_lease.replica_id = $1::bytea and budget_lease.balance_id = total.balance_id
    ), `,
  }),
};

/** The ledger's rows of these requests. */
export const readUsage = {
  name: 'read_usage',
  text: `select encode(request_id, 'hex') as id, cost, ending from usage where request_id = any($1::bytea[])`,
};

/** Lists running requests: $1 is the replica. A late entry of a settled request must not come back as crashed. */
export const open = {
  name: 'open',
  text: `
    insert into open_request (request_id, account_id, key_id, model_id, hold, started_at, replica_id)
    select entry.*, $1::bytea from unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
      as entry (request_id, account_id, key_id, model_id, hold, started_at)
    where not exists (select 1 from usage where usage.request_id = entry.request_id)
    on conflict (request_id) do nothing`,
};

/** Expires replicas whose last heartbeat is older than $1 milliseconds. */
export const deleteExpired = {
  name: 'delete_expired',
  text: `delete from replica where heartbeat_at < ${databaseNow} - $1::bigint`,
};

/**
 * Returns what expired replicas had leased. A separate statement, whose snapshot is newer than the deletion of their rows: it includes
 * leases that were being granted meanwhile, because `grant` and the deletion block each other.
 */
export const returnLeases = {
  name: 'return_leases',
  text: `
    with stranded as (
      delete from credit_lease where not exists (select 1 from replica where replica.id = credit_lease.replica_id)
      returning account_id, remaining
    ), total as (
      select account_id, sum(remaining)::bigint as remaining from stranded group by account_id
    ), stranded_balance as (
      delete from budget_lease where not exists (select 1 from replica where replica.id = budget_lease.replica_id)
      returning balance_id, remaining
    ), balance_total as (
      select balance_id, sum(remaining)::bigint as remaining from stranded_balance group by balance_id
    ), returned as (
      update budget_balance set available = available + balance_total.remaining from balance_total where budget_balance.id = balance_total.balance_id
    )
    update account set available = available + total.remaining from total where account.id = total.account_id`,
};

/** Records the running requests of expired replicas as usage rows that cost nothing (M8). The public id is that of platform/ids/uuid.ts. */
export const recordCrashes = {
  name: 'record_crashes',
  text: `
    with stranded as (
      delete from open_request where replica_id is not null
        and not exists (select 1 from replica where replica.id = open_request.replica_id)
      returning *, greatest(started_at, least(${databaseNow}, started_at + ${longestRequestMs})) as ended_at
    )
    insert into usage (request_id, public_id, account_id, key_id, model_id, api, streamed, started_at, ended_at,
      prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, cost, uncharged, hold, ending, counted,
      input_price, output_price, cache_read_price, total_ms)
    select request_id,
      'req_' || substring(encode(request_id, 'hex') from 5 for 8) || substring(encode(request_id, 'hex') from 29 for 4),
      account_id, key_id, model_id, 'unknown', 0, started_at, ended_at,
      0, 0, 0, 0, 0, hold, hold, 'crashed', 0, 0, 0, 0, ended_at - started_at
    from stranded on conflict (request_id) do nothing`,
};

/**
 * Finds the changes that have become visible since snapshot $1 (`null`: no snapshot), and takes the next snapshot. It relies on snapshots
 * rather than times, because a transaction may be committed long after its rows were written. Rows of future transactions come from another
 * server, from whose dump this one was restored. `isLate`: some changes may have been deleted since.
 */
export const readChanges = {
  name: 'read_changes',
  text: `
    with look as (
      select txid_current_snapshot() as snapshot, extract(epoch from pg_postmaster_start_time())::text as server,
        (select tx from change_pruned) as pruned
    )
    select look.snapshot::text as snapshot, look.server, change.kind, change.ref,
      pruned >= txid_snapshot_xmin($1::txid_snapshot) and pruned < txid_snapshot_xmax(look.snapshot) as "isLate"
    from look left join change on change.tx >= txid_snapshot_xmin($1::txid_snapshot)
      and change.tx < txid_snapshot_xmax(look.snapshot) and not txid_visible_in_snapshot(change.tx, $1::txid_snapshot)
    order by change.tx`,
};

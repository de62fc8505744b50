/** Databases of earlier revisions, on a real PostgreSQL: they come to the schema that is described, and what they say stays. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { migrationNames } from '../../../src/store/migrations/migrate.ts';
import { earlierDatabases, earlierDump } from '../../store/earlier-databases.ts';
import { usage } from '../../store/fixture.ts';
import { assertRight, balanceOf, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

/** All that the database holds to. Partitions of usage have the names of their months; the first and the default one suffice. */
async function schemaOf(url: string): Promise<readonly string[]> {
  const ours = `relnamespace = 'public'::regnamespace and relname !~ '^usage_\\d'`;
  const rows = await server.sql(
    url,
    `select 'column' as kind, relname || '.' || attnum as name,
        concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), reloptions::text, relkind) as text
      from pg_class join pg_attribute on attrelid = pg_class.oid left join pg_attrdef on adrelid = attrelid and adnum = attnum
      where ${ours} and relkind in ('r', 'p') and attnum > 0 and not attisdropped
    union all select 'constraint', relname || '.' || conname, pg_get_constraintdef(pg_constraint.oid)
      from pg_constraint join pg_class on pg_class.oid = conrelid where ${ours}
    union all select 'index', pg_class.relname, pg_get_indexdef(indexrelid)
      from pg_index join pg_class on pg_class.oid = indexrelid where ${ours}
    union all select 'trigger', relname || '.' || tgname, pg_get_triggerdef(pg_trigger.oid)
      from pg_trigger join pg_class on pg_class.oid = tgrelid where ${ours} and not tgisinternal
    union all select 'function', proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace
    order by 1, 2`,
  );
  const plain = (text: string): string =>
    text
      .replaceAll(/usage_before_\d{4}_\d\d/g, 'usage_before_MONTH')
      .replaceAll(/(?<=usage_before_MONTH_)(?:account|client_id|account_id_\w+_idx)\b/g, 'INDEX') // PostgreSQL's names, or ours
      .replaceAll(/\s+/g, ' ');
  return rows.map(({ kind, name, text }) => plain(`${String(kind)} ${String(name)}: ${String(text)}`)).toSorted();
}

for (const earlier of earlierDatabases)
  test(`a database with the steps up to ${earlier} comes to the schema that is described, and its requests are charged`, async (t) => {
    const [fresh, url] = [await server.createDatabase(), await server.createDatabase()];
    await openReplica(t, fresh);
    const described = await schemaOf(fresh);
    assert.ok(described.length > 700, String(described.length));
    await server.sql(url, earlierDump(earlier));
    const [customer] = await server.sql(
      url,
      `select id, (available + coalesce((select sum(remaining) from public.credit_lease where account_id = account.id), 0))::text as balance
       from public.account where kind = 0 order by created_at limit 1`,
    );
    const [id, balance] = [String(customer!['id']), BigInt(String(customer!['balance']))];
    assert.ok(balance > 0n);
    const balances = await server.sql(
      url,
      'select id, amount::text, available::text from public.budget_balance order by id',
    );
    assert.ok(balances.length >= 2);

    const replica = await openReplica(t, url);
    assert.deepEqual(replica.store.migrated, migrationNames().slice(1));
    const upgraded = await schemaOf(url);
    assert.deepEqual(
      upgraded.filter((line) => !described.includes(line)),
      described.filter((line) => !upgraded.includes(line)),
    );
    assert.deepEqual(
      await server.sql(url, 'select id, amount::text, available::text from budget_balance order by id'),
      balances,
    );
    assert.equal(await balanceOf(replica.store, id), balance);
    assert.ok(await hold(replica, id, 10n));
    assert.equal(await replica.store.ledger.settle(usage(id, 10n)), 'billed');
    assert.equal(await balanceOf(replica.store, id), balance - 10n);
    await assertRight(url);
    assert.deepEqual((await openReplica(t, url)).store.migrated, []);
  });

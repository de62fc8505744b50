/** Upgrades on PostgreSQL with the whole program, in one go and beside a replica that serves (docs/operations.md). */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import {
  assertKept,
  costOfLoad,
  earlierDump,
  earlierKeys,
  idleLeases,
  keptTables,
  migrationsOf,
  usedWith,
  type Rows,
} from '../../store/earlier-databases.ts';
import { migrationNames } from '../../../src/store/migrations/migrate.ts';
import { addNextStep, nextStep } from '../../store/steps.ts';
import { built } from '../../support/built.ts';
import { mulberry32 } from '../../support/random.ts';
import { until, type TestService } from '../../support/service.ts';
import { assertRight } from './fixture.ts';
import { asked, secret, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const [oldest, newest] = ['100-baseline', nextStep];
/** The program that has a step more; commands run here. */
addNextStep();
const entry = built('tests/store/next-version.ts');

async function earlierOn(t: TestContext, more = '', program: { readonly entry?: string } = { entry }) {
  const url = await server.createDatabase();
  await server.sql(url, earlierDump('100'));
  await server.sql(url, usedWith(secret, 'postgres') + more);
  const service = serviceOn(url, program);
  t.after(() => service.dispose());
  service.key = earlierKeys['first key'];
  return { url, service };
}

const oneNumber = async (url: string, query: string): Promise<bigint> =>
  BigInt(String((await server.sql(url, query))[0]!['n']));
const balanceIn = (url: string): Promise<bigint> =>
  oneNumber(
    url,
    `select (available + coalesce((select sum(remaining) from credit_lease where account_id = account.id), 0))::text as n
     from account where name = 'first account'`,
  );

async function read(url: string) {
  const inDatabase = new Set(
    (await server.sql(url, `select relname from pg_class where relkind in ('r', 'p')`)).map((row) => row['relname']),
  );
  const tables = new Map<string, Rows>();
  for (const table of keptTables)
    if (inDatabase.has(table)) tables.set(table, await server.sql(url, `select * from ${table}`));
  const budgets = await server.sql(
    url,
    `select id, amount, spent_before, available + coalesce((select sum(remaining) from budget_lease where balance_id = budget_balance.id), 0) as available
     from budget_balance`,
  );
  return { tables, budgets, balance: await balanceIn(url) };
}

async function assertCarriedOver(url: string, was: Awaited<ReturnType<typeof read>>): Promise<void> {
  // What the dead process had is given back by the first replica that looks.
  const crashed = `select count(*)::text as n from usage where ending = 'crashed' and cost = 0`;
  await until(async () => (await oneNumber(url, crashed)) === 3n, 30_000);
  for (const [table, rows] of was.tables) assertKept(table, rows, await server.sql(url, `select * from ${table}`));
  const left = `available + coalesce((select sum(remaining) from budget_lease where balance_id = budget_balance.id), 0)`;
  const budgets = await server.sql(url, `select id, amount, spent_before, ${left} as available from budget_balance`);
  assertKept('budget_balance', was.budgets, budgets);
  assert.equal(await balanceIn(url), was.balance);
}

const load = (service: TestService, goesOn: (request: number) => boolean): Promise<bigint> =>
  costOfLoad((key) => asked(service, undefined, { key }), goesOn);

const schemaOf = async (url: string): Promise<unknown> =>
  (await server.sql(url, 'select max(name) as name from kysely_migration'))[0]!['name'];

test('the start brings a database up to date, and its keys are served', async (t) => {
  const { url, service } = await earlierOn(t);
  const was = await read(url);
  await service.start();
  await assertCarriedOver(url, was);
  const cost = await load(service, (request) => request < 8);
  assert.ok(cost > 0n);
  assert.equal(await balanceIn(url), was.balance - cost);
  assert.equal(await service.stop(), 0);
  await service.start();
  // The log comes by another pipe than what says that it is ready.
  await until(() => migrationsOf(service).length > 1);
  const released = migrationNames().filter((name) => name !== oldest && name !== nextStep);
  assert.deepEqual(migrationsOf(service), [released.length + 1, 0], 'the second start migrates nothing');
  assert.equal((await asked(service)).status, 200);
  await service.stop();
  await assertRight(url, false);
});

test('kill -9 in the middle of the migration: the database is one of the old schema or of the new one, and the next start completes it', async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const { url, service } = await earlierOn(t, idleLeases('public', `'\\x00'::bytea`));
  const was = await read(url);
  const isMigrating = `select count(*)::text as n from pg_locks where mode = 'AccessExclusiveLock' and relation = 'credit_lease'::regclass`;
  let inTheMiddle = 0;
  for (let round = 1; round <= 5 && inTheMiddle < 3 && (await schemaOf(url)) === oldest; round++) {
    const started = assert.rejects(service.start(), /ended with SIGKILL/);
    await until(async () => (await oneNumber(url, isMigrating)) > 0n, 30_000);
    const afterMs = random() * 150;
    await new Promise((resolve) => setTimeout(resolve, afterMs));
    await service.stop('SIGKILL');
    await started;
    // The server ends the transaction when it sees that its client is gone.
    await until(async () => (await oneNumber(url, isMigrating)) === 0n, 30_000);
    const schema = await schemaOf(url);
    t.diagnostic(`round ${round}: killed after ${afterMs.toFixed(1)} ms, ${String(schema)}`);
    assert.ok(schema === oldest || schema === newest);
    if (schema !== oldest) continue;
    inTheMiddle++;
    assert.deepEqual(await read(url), was);
  }
  assert.ok(inTheMiddle > 0);
  await service.start();
  await assertCarriedOver(url, was);
  const cost = await load(service, (request) => request < 4);
  assert.equal(await balanceIn(url), was.balance - cost);
  await service.stop();
  await assertRight(url, false);
});

test('rolling: a replica serves while a newer one starts, migrates below it and takes over', async (t) => {
  const { url, service: early } = await earlierOn(t, '', {});
  await early.start();
  const balance = await balanceIn(url);
  const later = serviceOn(url, { entry });
  t.after(() => later.dispose());
  later.key = early.key;
  let isOver = false;
  const below = load(early, () => !isOver);
  await later.start();
  const cost = await load(later, (request) => request < 8);
  isOver = true;
  const total = cost + (await below);
  assert.deepEqual(migrationsOf(later), [1]);
  assert.equal(await early.stop(), 0);
  const last = await load(later, (request) => request < 4);
  assert.equal(await balanceIn(url), balance - total - last);
  // Those of the process before the upgrade end when a replica finds that it is dead.
  await until(async () => (await oneNumber(url, 'select count(*)::text as n from open_request')) === 0n, 60_000);
  await later.stop();
  await assertRight(url, false);
});

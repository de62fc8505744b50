/** Backup and restore of a database on PostgreSQL, by the server's own programs (docs/postgresql.md). */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import pg from 'pg';
import { mainFile } from '../../support/built.ts';
import { TestService, until } from '../../support/service.ts';
import { earlierDump, earlierKeys, usedWith } from '../../store/earlier-databases.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import { assertRight, lockTable } from './fixture.ts';
import { asked, configOn, secret, serviceOn, stream } from './replica-service.ts';
import { PostgresServer, programsFirst } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

function serviceAt(t: TestContext, url: string, environment: Record<string, string> = {}): TestService {
  const service = serviceOn(url, { environment: { ...programsFirst(), ...environment } });
  t.after(() => service.dispose());
  return service;
}

async function run(service: TestService, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await service.command(...args);
  assert.equal(code, 0, stdout + stderr);
  return stdout;
}

async function refused(service: TestService, code: number, message: RegExp, ...args: string[]): Promise<void> {
  const result = await service.command(...args);
  assert.equal(result.code, code, result.stdout + result.stderr);
  assert.match(result.stderr, message);
  assert.ok(!result.stderr.includes('    at '), result.stderr);
}

const oneNumber = async (url: string, query: string): Promise<number> =>
  Number((await server.sql(url, query))[0]!['n']);
const tablesIn = (url: string): Promise<number> =>
  oneNumber(url, `select count(*) as n from pg_class where relnamespace = 'public'::regnamespace`);
const functionsIn = (url: string): Promise<number> =>
  oneNumber(url, `select count(*) as n from pg_proc where pronamespace = 'public'::regnamespace`);
const isEmpty = async (url: string): Promise<boolean> => (await tablesIn(url)) + (await functionsIn(url)) === 0;

test('under load: every charge that was acknowledged before the backup began is in it, it verifies, and it restores', async (t) => {
  const url = await server.createDatabase();
  const service = await serviceAt(t, url).start();
  const acknowledged: string[] = [];
  let isOver = false;
  const load = Promise.all(
    Array.from({ length: 4 }, async () => {
      while (!isOver) {
        const answer = await asked(service);
        assert.equal(answer.status, 200, await answer.clone().text());
        acknowledged.push(answer.headers.get('x-request-id')!);
        await answer.text();
      }
    }),
  );
  const standing = await service.chat(stream('endless'));
  await until(async () => (await oneNumber(url, 'select count(*) as n from open_request')) > 0, 30_000);
  await until(() => acknowledged.length > 20, 60_000);

  const before = [...acknowledged];
  const file = join(service.folder, 'backup.dump');
  const said = await run(service, 'db', 'backup', file);
  assert.match(said, /backup\.dump: \d+ bytes, \d+ accounts?, \d+ transfers?, \d+ requests?; verified\n/);
  assert.match(said, /need the secret that they were created with: TOKENHOUSE_SECRET/);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.ok(!existsSync(`${file}.part`));
  await refused(service, 1, /backup\.dump exists.*--force/, 'db', 'backup', file);
  isOver = true;
  await load;
  await standing.body!.cancel();
  await service.stop();

  const other = await server.createDatabase();
  const restored = serviceAt(t, other).takesAccountOf(service);
  const restoredSays = await run(restored, 'db', 'restore', file);
  assert.match(
    restoredSays,
    /test_\d+ is restored from .*backup\.dump: \d+ accounts?, \d+ transfers?, \d+ requests?; verified\./,
  );
  const ids = new Set((await server.sql(other, 'select client_id, public_id from usage')).flatMap(Object.values));
  assert.deepEqual(
    before.filter((id) => !ids.has(id)),
    [],
  );
  // All that the tables hold to is there, too.
  for (const kind of ['pg_constraint where connamespace', 'pg_proc where pronamespace', 'pg_class where relnamespace'])
    assert.equal(
      await oneNumber(other, `select count(*) as n from ${kind} = 'public'::regnamespace`),
      await oneNumber(url, `select count(*) as n from ${kind} = 'public'::regnamespace`),
      kind,
    );
  await restored.start();
  assert.equal((await asked(restored)).status, 200);
  // What ran then is recorded as crashed by the first replica that looks.
  await until(async () => (await oneNumber(other, 'select count(*) as n from open_request')) === 0, 60_000);
  assert.equal(await oneNumber(other, `select count(*) as n from usage where ending = 'crashed' and cost = 0`), 1);
  await restored.stop();
  await assertRight(other, false);
});

test('the generated secret goes with the backup, and without it nothing is restored', async (t) => {
  const at = (url: string): TestService => {
    const service = new TestService({
      config: configOn(),
      environment: { ...programsFirst(), TEST_DATABASE: url },
    });
    t.after(() => service.dispose());
    return service;
  };
  const service = await at(await server.createDatabase()).start();
  const file = join(service.folder, 'backup.dump');
  assert.match(await run(service, 'db', 'backup', file), /backup\.dump\.secret: the secret that its keys/);
  const other = await server.createDatabase();
  const bare = join(service.folder, 'bare.dump');
  writeFileSync(bare, readFileSync(file));
  await refused(at(other), 1, /none of them would work/, 'db', 'restore', bare);
  assert.ok(await isEmpty(other), 'what was refused is taken away');
  const restored = at(other).takesAccountOf(service);
  await run(restored, 'db', 'restore', file);
  await restored.start();
  assert.equal((await asked(restored)).status, 200);
});

test('what is damaged, not ours, of a newer version or wrong is not restored, and neither is anything into a database in use', async (t) => {
  const url = await server.createDatabase();
  const service = await serviceAt(t, url).start();
  assert.equal((await asked(service)).status, 200);
  await service.stop();
  const folder = temporaryFolder(t);
  const file = join(folder, 'good.dump');
  await run(service, 'db', 'backup', file);
  await refused(service, 69, /not empty.*into an empty one only/, 'db', 'restore', file);
  await refused(service, 1, /nothing to force/, 'db', 'restore', file, '--force');

  const other = await server.createDatabase();
  const target = serviceAt(t, other);
  const bytes = readFileSync(file);
  const spoilt = join(folder, 'spoilt.dump');
  writeFileSync(spoilt, bytes.subarray(0, Math.floor(bytes.length / 2)));
  await refused(target, 69, /pg_restore has failed/, 'db', 'restore', spoilt);
  writeFileSync(spoilt, 'hello');
  await refused(target, 69, /pg_restore has failed/, 'db', 'restore', spoilt);
  await refused(target, 1, /does not exist/, 'db', 'restore', join(folder, 'none.dump'));
  assert.ok(await isEmpty(other));

  const dump = (from: string, to: string): void => {
    const { status, stderr } = spawnSync(
      join(process.env['TOKENHOUSE_TEST_POSTGRES']!, 'pg_dump'),
      ['--format=custom', `--file=${to}`, `--dbname=${from}`],
      { encoding: 'utf8' },
    );
    assert.equal(status, 0, stderr);
  };
  const foreign = await server.createDatabase();
  await server.sql(foreign, 'create table account (id text); insert into account values (1)');
  dump(foreign, spoilt);
  await refused(target, 69, /no backup of a database of Tokenhouse/, 'db', 'restore', spoilt);
  assert.ok(await isEmpty(other));

  await server.sql(url, `insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01')`);
  dump(url, spoilt);
  await refused(target, 69, /newer version of Tokenhouse: it has 999-future/, 'db', 'restore', spoilt);
  assert.ok(await isEmpty(other));
  await refused(service, 69, /newer version of Tokenhouse/, 'db', 'backup', join(folder, 'newer.dump'));
  await server.sql(url, `delete from kysely_migration where name = '999-future'`);
  await server.sql(url, `update account set available = available + 1 where kind = 0`);
  dump(url, spoilt);
  await refused(target, 69, /does not verify: 2 differences/, 'db', 'restore', spoilt);
  assert.ok(await isEmpty(other));
  const result = await service.command('db', 'backup', join(folder, 'wrong.dump'));
  assert.equal(result.code, 1);
  assert.match(result.stdout, /2 DIFFERENCES, see: tokenhouse ledger verify/);
  await run(target, 'db', 'restore', file);
  await assertRight(other, false);
});

test("an earlier version's backup, with requests that ran when it was made, is restored, verified and served", async (t) => {
  const url = await server.createDatabase();
  await server.sql(url, earlierDump('100'));
  await server.sql(url, usedWith(secret, 'postgres'));
  const folder = temporaryFolder(t);
  const file = join(folder, 'earlier.dump');
  spawnSync(join(process.env['TOKENHOUSE_TEST_POSTGRES']!, 'pg_dump'), ['-Fc', `--file=${file}`, `--dbname=${url}`]);
  const other = await server.createDatabase();
  const restored = serviceAt(t, other);
  restored.key = earlierKeys['first key'];
  await run(restored, 'db', 'restore', file);
  const [{ name } = {}] = await server.sql(other, 'select max(name) as name from kysely_migration');
  assert.equal(name, '100-baseline');
  await restored.start();
  assert.equal((await asked(restored)).status, 200);
  await until(async () => (await oneNumber(other, 'select count(*) as n from open_request')) === 0, 60_000);
  await restored.stop();
  await assertRight(other, false);
});

const commandLines = (): readonly string[] => spawnSync('ps', ['-eo', 'args'], { encoding: 'utf8' }).stdout.split('\n');

function started(service: TestService, environment: Record<string, string>, ...args: string[]): ChildProcess {
  return spawn(process.execPath, [mainFile, ...args], {
    cwd: service.folder,
    env: { ...process.env, ...environment },
    stdio: 'ignore',
  });
}

test('a password is in no list of processes and no message; a wrong one, and missing programs, are said in words', async (t) => {
  const password = 'the-password-of-the-tests';
  const [{ hba_file: hba } = {}] = await server.sql('postgres', 'show hba_file');
  await server.sql(
    'postgres',
    `create role secured login password '${password}';
     copy (values ('host all secured 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) to '${String(hba)}';
     select pg_reload_conf()`,
  );
  const plain = await server.createDatabase();
  await server.sql('postgres', `alter database ${plain.split('/').at(-1)} owner to secured`);
  const url = plain.replace('tokenhouse@', 'secured@');
  const environment = {
    ...programsFirst(),
    TEST_DATABASE: url,
    TOKENHOUSE_SECRET: secret,
    TOKENHOUSE_POSTGRES_PASSWORD: password,
  };
  const service = serviceAt(t, url, environment);
  await service.start();
  assert.equal((await asked(service)).status, 200);
  await service.stop();

  const file = join(service.folder, 'backup.dump');
  const unlock = await lockTable(t, plain, 'usage');
  const backup = started(service, environment, 'db', 'backup', file);
  const waiting = `select count(*) as n from pg_stat_activity where application_name = 'tokenhouse' and wait_event_type = 'Lock'
    and query ilike 'lock table%'`;
  await until(async () => (await oneNumber(plain, waiting)) === 1, 60_000);
  const lines = commandLines();
  assert.ok(lines.some((line) => line.includes('pg_dump --format=custom')));
  assert.deepEqual(
    lines.filter((line) => line.includes(password)),
    [],
  );

  // Killed in the middle: pg_dump ends too, and nothing has a name.
  backup.kill('SIGKILL');
  await unlock();
  await until(() => !commandLines().some((line) => line.includes('pg_dump --format=custom')), 60_000);
  assert.ok(!existsSync(file));
  await run(service, 'db', 'backup', file);
  assert.ok(!existsSync(`${file}.part`));

  // Stopped in the middle: it takes away what it has begun.
  const unlockAgain = await lockTable(t, plain, 'usage');
  const stopped = started(service, environment, 'db', 'backup', join(service.folder, 'stopped.dump'));
  await until(async () => (await oneNumber(plain, waiting)) === 1, 60_000);
  const code = new Promise((resolve) => stopped.once('close', resolve));
  stopped.kill('SIGTERM');
  await until(() => !commandLines().some((line) => line.includes('pg_dump --format=custom')), 60_000);
  await unlockAgain();
  assert.equal(await code, 69);
  assert.deepEqual(
    readdirSync(service.folder).filter((name) => name.startsWith('stopped')),
    [],
  );

  const wrong = serviceAt(t, url, { ...environment, TOKENHOUSE_POSTGRES_PASSWORD: 'another-password' });
  const result = await wrong.command('db', 'backup', join(wrong.folder, 'a.dump'));
  assert.equal(result.code, 69);
  assert.match(result.stderr, /refuses this user: password authentication failed.*Check user and password/);
  assert.ok(!result.stderr.includes('another-password'));

  const programs = join(temporaryFolder(t), 'programs');
  mkdirSync(programs);
  const without = serviceAt(t, url, { ...environment, PATH: programs });
  const needs = async (message: RegExp): Promise<void> => {
    await refused(without, 69, message, 'db', 'backup', join(without.folder, 'a.dump'));
    assert.deepEqual(
      readdirSync(without.folder).filter((name) => name.startsWith('a.dump')),
      [],
    );
  };
  await needs(/pg_dump is not on the PATH/);
  writeFileSync(join(programs, 'pg_dump'), '#!/bin/sh\necho "pg_dump (PostgreSQL) 9.6.24"\n');
  chmodSync(join(programs, 'pg_dump'), 0o755);
  await needs(/pg_dump is of version 9, and the server is of version \d+/);
});

test('killed in the middle of a restore: the database is empty, and the next restore fills it', async (t) => {
  const url = await server.createDatabase();
  const service = await serviceAt(t, url).start();
  assert.equal((await asked(service)).status, 200);
  await service.stop();
  // A row that comes in as late as somebody wants, and more behind it than a pipe holds.
  await server.sql(
    url,
    `create function waits(text) returns boolean language plpgsql as
       $$ begin perform pg_advisory_xact_lock_shared(42); return true; end $$;
     create table a_row (content text check (waits(content)));
     insert into a_row values ('x');
     create table many_rows (content bytea);
     insert into many_rows select sha256(n::text::bytea) from generate_series(1, 50000) as n`,
  );
  const file = join(service.folder, 'backup.dump');
  await run(service, 'db', 'backup', file);
  const other = await server.createDatabase();
  const restored = serviceAt(t, other).takesAccountOf(service);
  const environment = { ...programsFirst(), TEST_DATABASE: other, TOKENHOUSE_SECRET: secret };
  const holder = new pg.Client({ connectionString: other });
  await holder.connect();
  await holder.query('select pg_advisory_lock(42)');
  const waiting = `select count(*) as n from pg_stat_activity where datname = current_database() and query ilike 'copy %'
    and wait_event_type = 'Lock'`;
  const command = started(restored, environment, 'db', 'restore', file);
  const ended = new Promise((resolve) => command.once('close', resolve));
  await until(async () => (await oneNumber(other, waiting)) === 1, 60_000);
  command.kill('SIGKILL');
  await ended;
  await holder.end();
  const others = `select count(*) as n from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;
  await until(async () => (await oneNumber(other, others)) === 0, 60_000);
  assert.ok(await isEmpty(other));
  await run(restored, 'db', 'restore', file);
  await restored.start();
  assert.equal((await asked(restored)).status, 200);
  await restored.stop();
  await assertRight(other, false);
});

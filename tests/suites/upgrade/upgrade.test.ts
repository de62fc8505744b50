/**
 * The upgrade that docs/operations.md tells, from programs of earlier revisions to this one, while clients ask all the time; and the
 * way back. What clients were told and what they were charged is the same at every step.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';

import { DatabaseSync } from '@photostructure/sqlite';
import { migrationNames } from '../../../src/store/migrations/migrate.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import { mainFile } from '../../support/built.ts';
import { freePort } from '../../support/free-port.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { PostgresServer, programsFirst } from '../postgres/server.ts';
import { Load } from './load.ts';

const [firstCreditCents, microcentsPerCent] = [500, 1_000_000n];
const newest = migrationNames().at(-1)!;
/** Answers of each program, while all of it goes on. */
const enough = 40;
const model = scriptedModel(
  `- { when: { last_text: long }, say: [{ text: ["word "] }], repeat: 20, pace_ms: 20 }
- { say: [{ text: "one two three four five six seven eight" }] }`,
  { settings: noFeatures },
);

interface Program {
  readonly revision: string;
  readonly main: string;
}
const ours: Program = { revision: 'this version', main: mainFile };
const earlierPrograms = (process.env['TOKENHOUSE_TEST_EARLIER'] ?? '').split(',').map((one): Program => {
  const [revision = '', folder = ''] = one.split('=');
  return { revision, main: join(folder, 'bin', 'tokenhouse.mjs') };
});

interface Database {
  readonly kind: 'sqlite' | 'postgres';
  /** For `storage`. */
  readonly address: string;
  query(text: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** A program in a folder of its own, with a database and a port that other programs have too. */
class Installed {
  readonly program: Program;
  readonly service: TestService;
  readonly #environment: Readonly<Record<string, string>>;

  private constructor(program: Program, database: Database) {
    this.program = program;
    this.#environment = {
      ...programsFirst(),
      TOKENHOUSE_SECRET: 'a secret of thirty-two characters',
      TEST_DATABASE: database.address,
    };
    this.service = new TestService({ config: '', entry: program.main, environment: this.#environment });
  }

  /** Its configuration says only what every revision knows. */
  static async make(t: TestContext, program: Program, database: Database, port: number): Promise<Installed> {
    const installed = new Installed(program, database);
    t.after(() => installed.service.dispose());
    installed.service.writeConfig(`server:
  inference: { port: ${port} }
  account: { port: ${await freePort()} }
accounts: { first_credit_cents: ${firstCreditCents} }
storage: env:TEST_DATABASE
${model}
`);
    return installed;
  }

  command(...words: readonly string[]) {
    return spawnSync(process.execPath, [this.program.main, ...words], {
      cwd: this.service.folder,
      env: { ...process.env, ...this.#environment },
      encoding: 'utf8',
    });
  }

  run(...words: readonly string[]): string {
    const { status, stdout, stderr } = this.command(...words);
    assert.equal(status, 0, `${words.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  }
}

function sqliteDatabase(t: TestContext): Database {
  const file = join(temporaryFolder(t), 'tokenhouse.db');
  return {
    kind: 'sqlite',
    address: `sqlite:${file}`,
    query: (text) => {
      const connection = new DatabaseSync(file, { readOnly: true, readBigInts: true });
      try {
        return Promise.resolve(connection.prepare(text).all() as Readonly<Record<string, unknown>>[]);
      } finally {
        connection.close();
      }
    },
  };
}

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

async function postgresDatabase(): Promise<Database> {
  const url = await server.createDatabase();
  return { kind: 'postgres', address: url, query: (text) => server.sql(url, text) };
}

const numberOf = async ({ query }: Database, text: string): Promise<bigint> =>
  BigInt(String((await query(text))[0]!['n']));
const schemaOf = async ({ query }: Database): Promise<string> =>
  String((await query('select max(name) as name from kysely_migration'))[0]!['name']);
/** Of the customer, while nothing runs. */
const balanceOf = (database: Database): Promise<bigint> =>
  numberOf(database, 'select cast(sum(available) as text) as n from account where kind = 0');
const requestsIn = (database: Database): Promise<bigint> =>
  numberOf(database, 'select cast(count(*) as text) as n from usage');

/** Every row of what is money. */
async function contentOf({ query }: Database): Promise<string> {
  const hash = createHash('sha256');
  const plain = (_name: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  for (const table of ['kysely_migration', 'account', 'transfer', 'usage', 'api_key'])
    hash.update(JSON.stringify(await query(`select * from ${table} order by 1`), plain));
  return hash.digest('hex');
}

async function answersOf(load: Load, by: Installed): Promise<void> {
  const { url } = by.service;
  const before = load.answeredBy.get(url) ?? 0;
  await until(() => (load.answeredBy.get(url) ?? 0) >= before + enough, 60_000);
}

/** The copy that is made before an upgrade: by the old program where it has a command for that. */
function backUp(old: Installed, database: Database, file: string): void {
  if (old.command('db', 'backup', file).status === 0) return;
  assert.equal(database.kind, 'postgres');
  const words = ['--format=custom', `--file=${file}`, `--dbname=${database.address}`];
  const { status, stderr } = spawnSync(join(process.env['TOKENHOUSE_TEST_POSTGRES']!, 'pg_dump'), words, {
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
}

/** All processes of the old version are stopped, then the new one starts; on PostgreSQL it refuses until then. */
async function replace(
  t: TestContext,
  old: Installed,
  later: Installed,
  load: Load,
  database: Database,
): Promise<void> {
  if (database.kind === 'postgres') {
    const early = await Installed.make(t, ours, database, await freePort());
    const schema = await schemaOf(database);
    await assert.rejects(early.service.start(), /ended with 69:[^]*Stop them all/);
    assert.equal(await schemaOf(database), schema);
    await answersOf(load, old);
  }
  assert.equal(await old.service.stop(), 0);
  await until(async () => {
    try {
      await later.service.start();
      return true;
    } catch (error) {
      // Until five seconds after the last sign of life.
      if (/Stop them all/.test(String(error))) return false;
      throw error;
    }
  }, 60_000);
  load.targets = [later.service.url];
}

/** The new one is started beside the old one, which serves until it is stopped. */
async function roll(old: Installed, later: Installed, load: Load): Promise<void> {
  await later.service.start();
  load.targets = [old.service.url, later.service.url];
  await Promise.all([answersOf(load, old), answersOf(load, later)]);
  assert.equal(await old.service.stop(), 0);
  load.targets = [later.service.url];
}

/** An earlier program on a database of this version: it refuses, and changes nothing. */
async function assertRefused(old: Installed, database: Database): Promise<void> {
  const content = await contentOf(database);
  await assert.rejects(old.service.start(), /ended with 69:[^]*newer version/);
  assert.equal(await contentOf(database), content);
}

const firstCredit = BigInt(firstCreditCents) * microcentsPerCent;

for (const earlier of earlierPrograms)
  for (const kind of ['sqlite', 'postgres'] as const)
    test(`from ${earlier.revision} on ${kind}, with requests all the time, and back`, async (t) => {
      const database = kind === 'sqlite' ? sqliteDatabase(t) : await postgresDatabase();
      const port = await freePort();
      const old = await Installed.make(t, earlier, database, port);
      await old.service.start();
      const schema = await schemaOf(database);
      const isRolling = kind === 'postgres';
      const load = new Load(old.service.key, [old.service.url]);
      await answersOf(load, old);

      const backup = join(temporaryFolder(t), kind === 'sqlite' ? 'before.db' : 'before.dump');
      const acknowledged = load.answered;
      backUp(old, database, backup);
      await answersOf(load, old);

      const later = await Installed.make(t, ours, database, isRolling ? await freePort() : port);
      later.service.takesAccountOf(old.service);
      await (isRolling ? roll(old, later, load) : replace(t, old, later, load, database));
      await answersOf(load, later);
      assert.equal(await schemaOf(database), newest);
      // With the service running, as the documentation says.
      later.run('ledger', 'verify');
      await load.stop();
      const by = [...load.answeredBy].map(([, answers]) => answers).join(' and ');
      t.diagnostic(
        `${schema} to ${newest}, ${isRolling ? 'beside it' : 'one after the other'}: ${by} answers, ${load.refused} asked again, ` +
          `${Math.round(load.longestGapMs)} ms without an answer`,
      );
      assert.equal(await later.service.stop(), 0);
      later.run('ledger', 'verify');
      assert.equal(await balanceOf(database), firstCredit - load.cost);
      assert.equal(await requestsIn(database), BigInt(load.answered));

      if (schema !== newest) await assertRefused(old, database);

      // Back: the earlier program finds what it had, and goes on with it.
      const back = kind === 'sqlite' ? database : await postgresDatabase();
      const before = await Installed.make(t, earlier, back, port);
      before.service.takesAccountOf(old.service);
      const restoring = kind === 'sqlite' ? before : await Installed.make(t, ours, back, port);
      restoring.run('db', 'restore', backup, ...(kind === 'sqlite' ? ['--force'] : []));
      assert.equal(await schemaOf(back), schema);
      assert.ok((await requestsIn(back)) >= BigInt(acknowledged));
      await before.service.start();
      const again = new Load(old.service.key, [before.service.url]);
      await answersOf(again, before);
      await again.stop();
      assert.equal(await before.service.stop(), 0);
      before.run('ledger', 'verify');

      // And there again, with what has been charged since.
      const balance = await balanceOf(back);
      const last = await Installed.make(t, ours, back, port);
      last.service.takesAccountOf(old.service);
      await last.service.start();
      const more = new Load(old.service.key, [last.service.url]);
      await answersOf(more, last);
      await more.stop();
      assert.equal(await last.service.stop(), 0);
      last.run('ledger', 'verify');
      assert.equal(await balanceOf(back), balance - more.cost);

      if (kind === 'postgres') return;
      // What the restore has replaced is still there, and this version puts it back.
      const folder = dirname(database.address.slice('sqlite:'.length));
      const kept = readdirSync(folder).find((name) => /\.before-restore-[\dT.]+$/.test(name))!;
      last.run('db', 'restore', join(folder, kept), '--force');
      assert.equal(await balanceOf(database), firstCredit - load.cost);
    });

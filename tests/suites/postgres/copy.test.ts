/** `tokenhouse db copy`: a ledger moves from SQLite to PostgreSQL and back, whole, and whatever kills the command meanwhile. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { mulberry32 } from '../../support/random.ts';
import { mainFile } from '../../support/built.ts';
import { TestService, until } from '../../support/service.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { insertUsage, randomOf, randomRow } from '../../usage/ledger-of-rows.ts';
import { ask, asked, configOn, secret, serviceOn } from './replica-service.ts';
import { assertRight } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

interface Copied {
  readonly rows: number;
  readonly rows_copied_before: number;
  readonly usage_rows: number;
  readonly differences: readonly unknown[];
  readonly tables: readonly { readonly table: string; readonly rows: number; readonly sha256: string }[];
}

const fileOf = (service: TestService): string => join(service.folder, 'data', 'tokenhouse.db');

/** A service on a file; `TEST_DATABASE` is where its configuration looks, `TARGET` a place for copies. */
function onFile(t: TestContext, target: string): TestService {
  const service = new TestService({
    config: configOn(),
    environment: { TEST_DATABASE: 'sqlite:./data/tokenhouse.db', TARGET: target, TOKENHOUSE_SECRET: secret },
  });
  t.after(() => service.dispose());
  return service;
}

async function copied(service: TestService, ...words: string[]): Promise<Copied> {
  const { code, stdout, stderr } = await service.command('db', 'copy', '--to', 'env:TARGET', '--json', ...words);
  assert.equal(code, 0, stdout + stderr);
  return JSON.parse(stdout) as Copied;
}

async function refused(service: TestService, message: RegExp, ...words: string[]): Promise<void> {
  const { code, stdout, stderr } = await service.command('db', 'copy', ...words);
  assert.equal(code, 1, stdout + stderr);
  assert.match(stderr, message);
  assert.ok(!stderr.includes('    at '), stderr);
}

const oddTexts = [
  'quotes " \' ` and back\\slashes \\u0041 \\"',
  'lines\n\r\t\b\f\u0001\u001f\u007f\u0080\u2028',
  'ümläut 日本語 🙂 \u{10ffff} \ufeff e\u0301',
  '[1,"a",null]',
  '{"a": {}}',
  "'); drop table usage; --",
  'null',
  '',
  ' ',
];

/** Rows that no service would write in a test's time: months of requests, and texts and numbers at the edges of what fits. */
async function fill(file: string, requests: number): Promise<void> {
  const db = kyselyOn(openConnection(file));
  const random = randomOf(7);
  const accounts = Array.from({ length: 40 }, (_, at) => `acct_${at % 2 === 0 ? 'A' : 'a'}${at}-é`);
  await makeAccounts(
    db,
    accounts,
    accounts.map((accountId, at) => ({ id: `key_${at}`, accountId, userId: at % 3 === 0 ? null : `user_${at}` })),
  );
  const to = Date.now() - 60_000;
  const spans = accounts.map((accountId) => ({ accountId, from: to - 200 * 86_400_000, to }));
  const rows = Array.from({ length: requests }, (_, at) => {
    const number = at % accounts.length;
    return randomRow(random, spans[number]!, [`key_${number}`]);
  });
  await insertUsage(db, rows);
  for (const [at, text] of oddTexts.entries()) {
    await db
      .updateTable('account')
      .set({ name: text, legal_name: at % 2 === 0 ? null : text })
      .where('id', '=', accounts[at]!)
      .execute();
    await db
      .insertInto('limit_window')
      .values({
        subject: text,
        kind: text,
        length: at,
        starts_at: (-1n) ** BigInt(at) * (2n ** 63n - 1n),
        used: -(2n ** 63n),
      })
      .execute();
    await db
      .insertInto('idempotent_request')
      .values({
        account_id: text,
        key_hash: Uint8Array.from([at, 0, 255]),
        fingerprint: new Uint8Array(0),
        request_id: Uint8Array.of(at),
        public_id: text,
        owner: Uint8Array.of(),
        created_at: 0,
        bytes: 2 ** 40,
        sealed_answer: at % 3 === 0 ? null : new Uint8Array(200_000).fill(at),
      })
      .execute();
  }
  await db.destroy();
}

/** Where a copy is killed, by what the target has. */
const moments = [
  `select to_regclass('kysely_migration') is not null as is`,
  'select exists (select 1 from account) as is',
  'select exists (select 1 from api_key) as is',
  'select exists (select 1 from usage) as is',
  'select count(*) > 2000 as is from usage',
  'select count(*) > 6000 as is from usage',
  'select count(*) >= 12000 as is from usage',
  'select exists (select 1 from limit_window) as is',
  'select exists (select 1 from idempotent_request) as is',
  `select exists (select 1 from pg_stat_activity where query like 'fetch forward%') as is`,
];
const isNow = async (url: string, moment: string): Promise<boolean> =>
  // A table may not be there yet.
  await server.sql(url, moment).then(
    ([row]) => row!['is'] === true || row!['is'] === 't',
    () => false,
  );

const sumsOf = ({ tables }: Copied) => tables.map(({ table, rows, sha256 }) => [table, rows, sha256]);

test('a ledger that has been served from a file is copied, serves, bills and verifies on the server; and comes back the same', async (t) => {
  const url = await server.createDatabase();
  const service = await onFile(t, url).start();
  for (let at = 0; at < 5; at++) assert.equal((await service.chat(ask)).status, 200);
  await refused(service, /A service runs here.*--final/s, '--to', 'env:TARGET');
  const running = service.chat({ ...ask, messages: [{ role: 'user', content: 'paced' }] });
  await sleep(200);
  const first = await copied(service, '--final');
  assert.equal((await running).status, 200, 'what ran when the service was stopped ends first');
  assert.ok(service.hasEnded);
  assert.equal(first.usage_rows, 6);
  assert.deepEqual(first.differences, []);
  const { balanceMicrocents } = await service.usage();
  assert.equal(await service.stop(), 0);

  await refused(service, /is not empty/, '--to', 'env:TARGET');
  await refused(service, /is what the configuration uses already/, '--to', 'sqlite:./data/tokenhouse.db');
  await refused(service, /not an address of a database/, '--to', 'mysql://x');
  await refused(service, /password here ends up in/, '--to', 'postgres://u:p@127.0.0.1/x');

  const there = serviceOn(url, { environment: { TARGET: `sqlite:${join(service.folder, 'back', 'back.db')}` } });
  t.after(() => there.dispose());
  there.takesAccountOf(service);
  await there.start();
  assert.equal((await there.usage()).balanceMicrocents, balanceMicrocents);
  assert.equal((await asked(there)).status, 200, 'with the key of before');
  assert.ok((await there.usage()).balanceMicrocents < balanceMicrocents);
  await refused(there, /A service runs here/, '--to', 'env:TARGET');
  await there.stop();
  await assertRight(url, false);

  const back = await copied(there);
  assert.equal(back.usage_rows, 7);
  const again = new TestService({
    config: configOn(),
    environment: { TEST_DATABASE: `sqlite:${join(service.folder, 'back', 'back.db')}`, TOKENHOUSE_SECRET: secret },
  });
  t.after(() => again.dispose());
  await again.takesAccountOf(service).start();
  assert.equal((await again.usage()).requests.length, 7);
  assert.equal((await asked(again)).status, 200);
  await again.stop();
  await again.verify();
});

test('a ledger with a difference is copied with it, and the command says so', async (t) => {
  const service = await onFile(t, await server.createDatabase()).start();
  assert.equal((await service.chat(ask)).status, 200);
  await service.stop();
  const db = kyselyOn(openConnection(fileOf(service)));
  await db.updateTable('account').set({ available: 7n }).where('id', '=', service.accountId).execute();
  await db.destroy();
  const { differences } = await copied(service);
  const found = differences.map((difference) => String((difference as { readonly found: unknown }).found));
  assert.ok(found.includes('7'), found.join(', '));
});

test('killed ten times in the middle it goes on where it was; what comes out is the same, whatever texts and numbers there are', async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const [url, whole] = [await server.createDatabase(), await server.createDatabase()];
  const service = await onFile(t, url).start();
  await service.stop();
  await fill(fileOf(service), 12_000);

  const atOnce = onFile(t, whole);
  const uncut = await atOnce.command(
    'db',
    'copy',
    '--to',
    'env:TARGET',
    '--json',
    '--config',
    join(service.folder, 'tokenhouse.yaml'),
  );
  assert.equal(uncut.code, 0, uncut.stdout + uncut.stderr);

  for (const [number, moment] of moments.entries()) {
    const child = spawn(process.execPath, [mainFile, 'db', 'copy', '--to', 'env:TARGET'], {
      cwd: service.folder,
      env: { ...process.env, TEST_DATABASE: 'sqlite:./data/tokenhouse.db', TARGET: url, TOKENHOUSE_SECRET: secret },
      stdio: 'ignore',
    });
    const ended = new Promise<NodeJS.Signals | null>((resolve) =>
      child.once('close', (_code, signal) => resolve(signal)),
    );
    await until(async () => child.exitCode !== null || (await isNow(url, moment)), 60_000);
    await sleep(random() * 100);
    child.kill('SIGKILL');
    assert.equal(await ended, 'SIGKILL', `kill ${number + 1}, at ${moment}, came too late`);
    if (number !== 4) continue;
    const onIt = serviceOn(url);
    t.after(() => onIt.dispose());
    await assert.rejects(onIt.start(), /A copy into this database has not ended/, 'no service starts on half of it');
  }
  const resumed = await copied(service);
  assert.ok(resumed.rows_copied_before > 0);
  assert.deepEqual(sumsOf(resumed), sumsOf(JSON.parse(uncut.stdout) as Copied));

  // And back, with the order of texts and the forms of numbers of the server.
  const back = join(service.folder, 'back.db');
  const there = serviceOn(url, { environment: { TARGET: `sqlite:${back}` } });
  t.after(() => there.dispose());
  const returned = await copied(there);
  assert.deepEqual(sumsOf(returned), sumsOf(resumed));
  assert.ok(existsSync(back));
});

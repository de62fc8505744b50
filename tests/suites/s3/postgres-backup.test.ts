/** Backups of PostgreSQL in a bucket: pg_dump goes there as a stream, whole or not there, and is refused when it is not as it was sent. */
import { DeleteObjectCommand, GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';

import { mainFile } from '../../support/built.ts';
import { TestService, until } from '../../support/service.ts';
import { assertRight } from '../postgres/fixture.ts';
import { asked, configOn } from '../postgres/replica-service.ts';
import { PostgresServer, programsFirst } from '../postgres/server.ts';
import { proxyTo } from './proxy.ts';
import { S3Server } from './s3-server.ts';

let bucket: S3Server;
let server: PostgresServer;
before(async () => {
  bucket = await S3Server.start();
  server = await PostgresServer.start({ fsync: 'off' });
});
after(async () => {
  await server.dispose();
  await bucket.dispose();
});

const environmentOf = (url: string): Record<string, string> => ({
  ...programsFirst(),
  TEST_DATABASE: url,
  AWS_ACCESS_KEY_ID: bucket.accessKeyId,
  AWS_SECRET_ACCESS_KEY: bucket.secretAccessKey,
});

/** With a secret of its own, which goes with its backups. */
function serviceAt(t: TestContext, url: string, endpoint = bucket.url): TestService {
  const service = new TestService({
    config: configOn(`files: { endpoint: "${endpoint}" }\n`),
    environment: environmentOf(url),
    firstCreditCents: '500',
  });
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

const folderUrl = (name: string): string => `s3://${bucket.bucket}/${name}`;
const keysOf = async (name: string) => {
  const { objects, uploads } = await bucket.keys();
  const inside = (key: string) => key.startsWith(`${name}/`);
  return { objects: objects.filter(inside), uploads: uploads.filter(inside) };
};
const copiesIn = (service: TestService): readonly string[] =>
  readdirSync(join(service.folder, 'data')).filter((name) => name.startsWith('bucket-copy-'));

/** Rows of which nothing becomes smaller: 32 bytes each. */
const enlarge = (url: string, rows: number) =>
  server.sql(
    url,
    `create table ballast (bytes bytea); insert into ballast select sha256(n::text::bytea) from generate_series(1, ${rows}) as n`,
  );

const tablesIn = async (url: string): Promise<number> =>
  (await server.sql(url, `select 1 from pg_class where relnamespace = 'public'::regnamespace`)).length;

test('from a running service, in parts, to another database: the newest one is restored, with its keys and its money', async (t) => {
  const url = await server.createDatabase();
  const service = await serviceAt(t, url).start();
  await enlarge(url, 400_000);
  await run(service, 'db', 'backup', folderUrl('moved'));
  assert.equal((await asked(service)).status, 200);
  const made = JSON.parse(await run(service, 'db', 'backup', folderUrl('moved'), '--json')) as Record<string, unknown>;
  assert.match(String(made['file']), /^s3:\/\/files\/moved\/tokenhouse-\d{8}T\d{6}\.\d{3}\.dump$/);
  assert.ok(Number(made['bytes']) > 12_000_000, String(made['bytes']));
  assert.equal(made['usage_rows'], 1);
  const { objects, uploads } = await keysOf('moved');
  assert.deepEqual([objects.length, uploads.length], [6, 0]);
  assert.deepEqual(copiesIn(service), []);

  // Its checksum is one that other tools read.
  const Key = String(made['file']).replace(`s3://${bucket.bucket}/`, '');
  const text = async (key: string): Promise<Buffer> => {
    const { Body } = await bucket.client.send(new GetObjectCommand({ Bucket: bucket.bucket, Key: key }));
    return Buffer.from(await Body!.transformToByteArray());
  };
  const sha256 = createHash('sha256')
    .update(await text(Key))
    .digest('hex');
  assert.equal((await text(`${Key}.sha256`)).toString(), `${sha256}  ${Key.split('/').at(-1)}\n`);

  const other = await server.createDatabase();
  const restored = serviceAt(t, other).takesAccountOf(service);
  const said = await run(restored, 'db', 'restore', folderUrl('moved'));
  assert.ok(said.includes(String(made['file'])) && said.includes('1 request; verified'), said);
  assert.deepEqual(copiesIn(restored), []);
  await restored.start();
  assert.equal((await asked(restored)).status, 200);
  await restored.stop();
  await assertRight(other, false);
});

test('one object by its name: it is not overwritten without --force, and names of files of SQLite are refused', async (t) => {
  const service = await serviceAt(t, await server.createDatabase()).start();
  const url = folderUrl('named/mine.dump');
  await run(service, 'db', 'backup', url, '--no-secret');
  assert.deepEqual((await keysOf('named')).objects, ['named/mine.dump', 'named/mine.dump.sha256']);
  await refused(service, 1, /exists.*--force/, 'db', 'backup', url);
  await run(service, 'db', 'backup', url, '--no-secret', '--force');
  await refused(service, 1, /Write s3:\/\/bucket\/folder.*\.dump/, 'db', 'backup', folderUrl('named/mine.db'));
  const other = serviceAt(t, await server.createDatabase());
  await refused(other, 1, /none of them would work/, 'db', 'restore', url);
});

test('--keep removes what is older, with its secret and its checksum, and nothing that is not a backup', async (t) => {
  const service = await serviceAt(t, await server.createDatabase()).start();
  const foreign = ['kept/notes.txt', 'kept/tokenhouse-20200101T000000.000.db'];
  for (const Key of foreign) await bucket.client.send(new PutObjectCommand({ Bucket: bucket.bucket, Key, Body: 'x' }));
  // One that was cut off has no checksum, and is not counted.
  const cut = 'kept/tokenhouse-20300101T000000.000.dump';
  await bucket.client.send(new PutObjectCommand({ Bucket: bucket.bucket, Key: cut, Body: 'x' }));
  const files: string[] = [];
  for (let count = 0; count < 3; count++) {
    const said = await run(service, 'db', 'backup', folderUrl('kept'), '--keep', '2', '--json');
    files.push((JSON.parse(said) as { file: string }).file.replace(`s3://${bucket.bucket}/`, ''));
  }
  const expected = [...foreign, cut, ...files.slice(1).flatMap((file) => [file, `${file}.secret`, `${file}.sha256`])];
  assert.deepEqual([...(await keysOf('kept')).objects].toSorted(), expected.toSorted());
  const restored = serviceAt(t, await server.createDatabase());
  assert.ok((await run(restored, 'db', 'restore', folderUrl('kept'))).includes(files[2]!));
});

test('what is not as it was sent, or was not sent by us, is not restored', async (t) => {
  const service = await serviceAt(t, await server.createDatabase()).start();
  const url = folderUrl('spoilt/one.dump');
  await run(service, 'db', 'backup', url);
  const at = { Bucket: bucket.bucket, Key: 'spoilt/one.dump' };
  const { Body } = await bucket.client.send(new GetObjectCommand(at));
  const bytes = Buffer.from(await Body!.transformToByteArray());
  const put = (changed: Buffer) => bucket.client.send(new PutObjectCommand({ ...at, Body: changed }));
  const other = await server.createDatabase();
  const restored = serviceAt(t, other).takesAccountOf(service);
  const flipped = Buffer.from(bytes);
  flipped[bytes.length - 1]! ^= 1;
  await put(flipped);
  await refused(restored, 1, /is not as it was sent: its sha256/, 'db', 'restore', url);
  await put(bytes.subarray(0, bytes.length - 1_024));
  await refused(restored, 1, /is not as it was sent/, 'db', 'restore', url);
  await put(bytes);
  await bucket.client.send(new DeleteObjectCommand({ ...at, Key: `${at.Key}.sha256` }));
  await refused(restored, 1, /has no checksum/, 'db', 'restore', url);
  await refused(restored, 1, /There is no backup in s3:/, 'db', 'restore', folderUrl('spoilt'));
  assert.equal(await tablesIn(other), 0);
  assert.deepEqual(copiesIn(restored), []);
});

test('killed or stopped in the middle, or without its server: nothing has the name of a backup, and the next one is whole', async (t) => {
  const url = await server.createDatabase();
  const early = await serviceAt(t, url).start();
  await early.stop();
  await enlarge(url, 500_000);
  let [passed, limit] = [0, Infinity];
  const proxy = await proxyTo(bucket, (sent) => {
    passed = sent;
    if (sent > limit) proxy.hold();
  });
  const holdSoon = (): void => void (limit = passed + 8_000_000);
  const passOn = (): void => {
    limit = Infinity;
    proxy.passOn();
  };
  t.after(() => void proxy.listener.close());
  const service = serviceAt(t, url, proxy.url);
  mkdirSync(join(service.folder, 'data'));
  copyFileSync(join(early.folder, 'data', 'secret'), join(service.folder, 'data', 'secret'));
  const dumping = (): boolean =>
    spawnSync('ps', ['-eo', 'args'], { encoding: 'utf8' }).stdout.includes('pg_dump --format=custom');
  const begin = async (): Promise<ChildProcess> => {
    holdSoon();
    const { length: left } = (await keysOf('cut')).uploads;
    const command = spawn(process.execPath, [mainFile, 'db', 'backup', folderUrl('cut')], {
      cwd: service.folder,
      env: { ...process.env, ...environmentOf(url) },
      stdio: 'ignore',
    });
    t.after(() => command.kill('SIGKILL'));
    await until(async () => (await keysOf('cut')).uploads.length > left, 60_000);
    return command;
  };
  const end = (command: ChildProcess, signal: NodeJS.Signals): Promise<number | null> => {
    const ended = new Promise<number | null>((resolve) => command.once('close', resolve));
    command.kill(signal);
    return ended;
  };
  const archives = async (): Promise<readonly string[]> =>
    (await keysOf('cut')).objects.filter((key) => key.endsWith('.dump') || key.endsWith('.sha256'));

  await end(await begin(), 'SIGKILL');
  await until(() => !dumping(), 60_000);
  assert.deepEqual(await archives(), []);
  assert.equal((await keysOf('cut')).uploads.length, 1);

  passOn();
  const command = await begin();
  const stopped = end(command, 'SIGTERM');
  passOn();
  assert.equal(await stopped, 69);
  await until(() => !dumping(), 60_000);
  assert.deepEqual(await archives(), []);
  assert.equal((await keysOf('cut')).uploads.length, 1, 'the one of the process that was killed');
  assert.equal(copiesIn(service).length, 1, 'its folder too, which is empty, for a day');

  const made = JSON.parse(await run(service, 'db', 'backup', folderUrl('cut'), '--keep', '1', '--json')) as {
    readonly file: string;
  };
  assert.deepEqual(
    await archives(),
    [made.file, `${made.file}.sha256`].map((file) => file.replace('s3://files/', '')),
  );

  // The database goes away while it is read.
  holdSoon();
  const cut = service.command('db', 'backup', folderUrl('cut'));
  await until(async () => (await keysOf('cut')).uploads.length === 2, 60_000);
  await server.sql(
    url,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
  );
  passOn();
  const { code, stderr } = await cut;
  assert.equal(code, 69, stderr);
  assert.match(stderr, /pg_dump has failed|terminating connection|Connection terminated/);
  assert.equal((await archives()).length, 2);
  assert.equal((await keysOf('cut')).uploads.length, 1);

  const other = await server.createDatabase();
  const restored = serviceAt(t, other);
  assert.ok((await run(restored, 'db', 'restore', folderUrl('cut'))).includes(made.file));
  await assertRight(other, true);
});

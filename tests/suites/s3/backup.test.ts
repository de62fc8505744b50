/** Backups in a bucket of a real S3-compatible server: whole or not there, and refused when they are not as they were sent. */
import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { DatabaseSync } from '@photostructure/sqlite';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { TestService, scriptedModel } from '../../support/service.ts';
import { proxyTo } from './proxy.ts';
import { S3Server } from './s3-server.ts';

let server: S3Server;
before(async () => {
  server = await S3Server.start();
});
after(() => server.dispose());

interface Changes {
  readonly endpoint?: string;
  readonly secretAccessKey?: string;
}

function serviceOf(t: TestContext, { endpoint = server.url, secretAccessKey = server.secretAccessKey }: Changes = {}) {
  const service = new TestService({
    config: `${scriptedModel('- say: [ { text: "hello" } ]')}\nfiles: { endpoint: "${endpoint}" }`,
    environment: { AWS_ACCESS_KEY_ID: server.accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey },
  });
  t.after(() => service.dispose());
  return service;
}

async function run(service: TestService, ...args: string[]): Promise<string> {
  const result = await service.command(...args);
  assert.equal(result.code, 0, result.stdout + result.stderr);
  return result.stdout;
}

async function refused(service: TestService, code: number, message: RegExp, ...args: string[]): Promise<void> {
  const result = await service.command(...args);
  assert.equal(result.code, code, result.stdout + result.stderr);
  assert.match(result.stderr, message);
  assert.ok(!result.stderr.includes('    at '), result.stderr);
  assert.ok(!result.stderr.includes(server.secretAccessKey));
}

const folderUrl = (name: string): string => `s3://${server.bucket}/${name}`;
const keysOf = async (name: string) => {
  const { objects, uploads } = await server.keys();
  const inside = (key: string) => key.startsWith(`${name}/`);
  return { objects: objects.filter(inside), uploads: uploads.filter(inside) };
};
const ask = (service: TestService) => service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
const copiesIn = (service: TestService): readonly string[] =>
  readdirSync(join(service.folder, 'data')).filter((name) => name.startsWith('bucket-copy-'));

/** Random bytes, of which nothing becomes smaller, in a table of their own. */
function enlarge(service: TestService, bytes: number): void {
  const db = new DatabaseSync(join(service.folder, 'data', 'tokenhouse.db'));
  db.exec('create table ballast (bytes blob)');
  db.prepare('insert into ballast values (?)').run(randomBytes(bytes));
  db.close();
}

test('from a running service, in parts, to another place: the newest one is restored, with its keys and its money', async (t) => {
  const service = await serviceOf(t).start();
  await service.stop();
  enlarge(service, 12_000_000);
  await service.start();
  await run(service, 'db', 'backup', folderUrl('moved'));
  assert.equal((await ask(service)).status, 200);
  const made = JSON.parse(await run(service, 'db', 'backup', folderUrl('moved'), '--json')) as Record<string, unknown>;
  assert.match(String(made['file']), /^s3:\/\/files\/moved\/tokenhouse-\d{8}T\d{6}\.\d{3}\.db$/);
  assert.ok(Number(made['bytes']) > 12_000_000);
  assert.equal(made['usage_rows'], 1);
  const { objects, uploads } = await keysOf('moved');
  assert.deepEqual([objects.length, uploads.length], [4, 0]);
  assert.deepEqual(copiesIn(service), []);

  const other = serviceOf(t).takesAccountOf(service);
  const said = await run(other, 'db', 'restore', folderUrl('moved'));
  assert.ok(said.includes(String(made['file'])) && said.includes('1 request; verified'), said);
  assert.deepEqual(copiesIn(other), []);
  await other.start();
  assert.equal((await ask(other)).status, 200);
  await other.verify();
});

test('one object by its name: it is not overwritten without --force, and its secret can stay at home', async (t) => {
  const service = await serviceOf(t).start();
  const url = folderUrl('named/mine.db');
  await run(service, 'db', 'backup', url, '--no-secret');
  assert.deepEqual((await keysOf('named')).objects, ['named/mine.db']);
  await refused(service, 1, /exists.*--force/, 'db', 'backup', url);
  await run(service, 'db', 'backup', url, '--no-secret', '--force');
  await refused(serviceOf(t).takesAccountOf(service), 1, /none of them would work/, 'db', 'restore', url);
  await service.stop();
  await run(service, 'db', 'restore', url, '--force');
});

test('--keep removes what is older, with its secret, and nothing that is not a backup', async (t) => {
  const service = await serviceOf(t).start();
  const foreign = [
    'kept/notes.txt',
    'kept/tokenhouse-20200101T000000.000.db.txt',
    'kept/deep/tokenhouse-20200101T000000.000.db',
  ];
  for (const Key of foreign) await server.client.send(new PutObjectCommand({ Bucket: server.bucket, Key, Body: 'x' }));
  const files: string[] = [];
  for (let count = 0; count < 3; count++) {
    const said = await run(service, 'db', 'backup', folderUrl('kept'), '--keep', '2', '--json');
    files.push((JSON.parse(said) as { file: string }).file.replace(`s3://${server.bucket}/`, ''));
  }
  const expected = [...foreign, ...files.slice(1).flatMap((file) => [file, `${file}.secret`])];
  assert.deepEqual([...(await keysOf('kept')).objects].toSorted(), expected.toSorted());
  await refused(service, 1, /--keep goes with a folder/, 'db', 'backup', join(service.folder, 'a.db'), '--keep', '2');
});

test('what is not as it was sent, or was not sent by us, is not restored, and changes nothing', async (t) => {
  const service = await serviceOf(t).start();
  const url = folderUrl('spoilt/one.db');
  await run(service, 'db', 'backup', url);
  await service.stop();
  const file = join(service.folder, 'data', 'tokenhouse.db');
  const original = readFileSync(file);
  const at = { Bucket: server.bucket, Key: 'spoilt/one.db' };
  const { Body, Metadata } = await server.client.send(new GetObjectCommand(at));
  const bytes = Buffer.from(await Body!.transformToByteArray());
  const put = (changed: Buffer, metadata: Record<string, string>) =>
    server.client.send(new PutObjectCommand({ ...at, Body: changed, Metadata: metadata }));

  const flipped = Buffer.from(bytes);
  flipped[bytes.length - 1]! ^= 1;
  await put(flipped, Metadata!);
  await refused(service, 1, /is not as it was sent: its sha256/, 'db', 'restore', url, '--force');
  await put(bytes.subarray(0, bytes.length - 4_096), Metadata!);
  await refused(service, 1, /is not as it was sent/, 'db', 'restore', url, '--force');
  await put(bytes, {});
  await refused(service, 1, /has no checksum/, 'db', 'restore', url, '--force');
  await refused(service, 1, /There is no s3:/, 'db', 'restore', folderUrl('spoilt/two.db'), '--force');
  await refused(service, 1, /There is no backup in s3:/, 'db', 'restore', folderUrl('spoilt'), '--force');
  assert.ok(readFileSync(file).equals(original));
  assert.deepEqual(copiesIn(service), []);
  await put(bytes, Metadata!);
  await run(service, 'db', 'restore', url, '--force');
});

test('who may not, and what is not there, is said in words', async (t) => {
  const service = await serviceOf(t, { secretAccessKey: 'a wrong secret' }).start();
  await refused(service, 69, /files cannot be used \(SignatureDoesNotMatch\)/, 'db', 'backup', folderUrl('denied'));
  const allowed = await serviceOf(t).start();
  await refused(allowed, 69, /nowhere cannot be used \(NoSuchBucket\)/, 'db', 'backup', 's3://nowhere/x');
  await refused(allowed, 1, /Write s3:\/\/bucket\/folder/, 'db', 'backup', 's3:///x');
  assert.deepEqual(await keysOf('denied'), { objects: [], uploads: [] });
  assert.deepEqual([...copiesIn(service), ...copiesIn(allowed)], []);
});

test('the server is killed in the middle: no backup has a name, nothing is restored, and later both work', async (t) => {
  let limit = Infinity;
  const kills: Promise<void>[] = [];
  const kill = () => {
    if (kills.length === 0) kills.push(server.stop());
  };
  const { listener, url } = await proxyTo(server, (sent, received) => {
    if (Math.max(sent, received) > limit) kill();
  });
  t.after(() => void listener.close());
  const service = await serviceOf(t, { endpoint: url }).start();
  await service.stop();
  enlarge(service, 20_000_000);
  limit = 8_000_000;
  await refused(service, 69, /The bucket files cannot be used/, 'db', 'backup', folderUrl('killed'));
  assert.equal(kills.length, 1, 'in the middle');
  await kills.pop();
  const again = async () => {
    limit = Infinity;
    server.run();
    await server.answers();
  };
  await again();
  assert.deepEqual(
    (await keysOf('killed')).objects.filter((key) => key.endsWith('.db')),
    [],
  );
  assert.deepEqual(copiesIn(service), []);

  const said = await run(service, 'db', 'backup', folderUrl('killed'), '--keep', '1');
  assert.match(said, /verified/);
  // What the interrupted one had left of its secret is gone too.
  assert.equal((await keysOf('killed')).objects.length, 2);

  const { listener: second, url: secondUrl } = await proxyTo(server, (_sent, received) => {
    if (received > 8_000_000) kill();
  });
  t.after(() => void second.close());
  const reader = serviceOf(t, { endpoint: secondUrl });
  await refused(reader, 69, /The bucket files cannot be used/, 'db', 'restore', folderUrl('killed'));
  assert.equal(kills.length, 1, 'in the middle');
  await kills.pop();
  assert.ok(!existsSync(join(reader.folder, 'data', 'tokenhouse.db')));
  assert.deepEqual(copiesIn(reader), []);
  await again();
  await run(serviceOf(t), 'db', 'restore', folderUrl('killed'));
});

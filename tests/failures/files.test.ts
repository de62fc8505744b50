/** Faults of the process, the disk and the clock while files are stored (reliability S1, S3, S5). */
import assert from 'node:assert/strict';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { FolderBytes } from '../../src/inference/files/folder-bytes.ts';
import { Files } from '../../src/inference/files/files.ts';
import type { FileRepositories, UploadFacts } from '../../src/inference/files/files.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import {
  askFiles,
  fileNames,
  part,
  sendUpload,
  upload,
  uploadBody,
  uploadRequest,
} from '../inference/http/file-requests.ts';
import { RawConnection, requestBytes } from '../inference/http/raw.ts';
import { temporaryFolder } from '../support/folder.ts';
import { canCause } from '../support/machine.ts';
import { mulberry32 } from '../support/random.ts';
import { TestService, scriptedModel, until } from '../support/service.ts';
import type { TestServiceOptions } from '../support/service.ts';

const config = scriptedModel('- say: [ { text: "hello" } ]');

async function startService(t: TestContext, options: Partial<TestServiceOptions> = {}): Promise<TestService> {
  const service = new TestService({ config, ...options });
  t.after(() => service.dispose());
  return await service.start();
}

const namesBelow = (folder: string): readonly string[] =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => /[0-9a-f]{32}/.test(name))
    : [];
const storedOf = ({ folder }: TestService): readonly string[] => namesBelow(join(folder, 'data', 'files'));

test('S1: kill -9 at random moments of uploads: what was acknowledged is whole, nothing else is there', async (t) => {
  const service = await startService(t);
  const random = mulberry32(7);
  const acknowledged = new Map<string, number>();
  for (let round = 0; round < 8; round++) {
    let isOver = false;
    const clients = Array.from({ length: 4 }, async () => {
      while (!isOver) {
        const bytes = Math.floor(random() * 2_000_000);
        try {
          const answer = await sendUpload(service, uploadBody(Buffer.alloc(bytes, 'a'), 'a.txt'));
          if (answer.status === 200) acknowledged.set(String(answer.json()['id']), bytes);
        } catch {
          // The process is gone.
        }
      }
    });
    const target = acknowledged.size + 1 + Math.floor(random() * 4);
    await until(() => acknowledged.size >= target, 60_000);
    // In the middle of one that will never end, too.
    const connection = await RawConnection.open(service.url);
    connection.write(
      requestBytes(service.url, uploadRequest(service, Buffer.alloc(0), [['Content-Length', '900000']])),
    );
    connection.write(part('file', 'x'.repeat(300_000), 'never.txt'));
    await until(() => storedOf(service).some((name) => name.endsWith('.part')), 60_000);
    await service.stop('SIGKILL');
    isOver = true;
    await Promise.all(clients);
    connection.close();
    await service.start();
    const { data } = (await askFiles(service)).json() as { data: { id: string; bytes: number }[] };
    const there = new Map(data.map(({ id, bytes }) => [id, bytes]));
    for (const [id, bytes] of acknowledged) assert.equal(there.get(id), bytes, 'an acknowledged file is lost');
    // A file whose answer the kill has swallowed may be there; it is whole.
    const stored = storedOf(service);
    assert.deepEqual(
      stored.map((name) => `file-${name.slice(-32)}`).toSorted(),
      [...there.keys()].toSorted(),
      'bytes without a file, or a file without bytes',
    );
    for (const name of stored) {
      const { size } = statSync(join(service.folder, 'data', 'files', name));
      assert.equal(size, there.get(`file-${name.slice(-32)}`));
    }
  }
  await service.verify();
});

test('S3: the disk is full: 500 with Retry-After, nothing is left, and with room again all goes on', async (t) => {
  if (!canCause(t, 'mount')) return;
  const service = await startService(t, {
    within: [
      'unshare',
      '-rm',
      'sh',
      '-c',
      'mkdir -p data/files && chmod 700 data && mount -t tmpfs -o size=3m tmpfs data/files && exec "$@"',
      'sh',
    ],
  });
  const folder = join('/proc', String(service.pid), 'root', service.folder, 'data', 'files');
  const id = await upload(service, Buffer.alloc(1_000_000, 'a'), 'first.txt');
  for (let count = 0; count < 3; count++) {
    const answer = await sendUpload(service, uploadBody(Buffer.alloc(5_000_000, 'b'), 'too large.txt'));
    assertEnvelope(answer, 'internal_error');
    assert.equal(answer.headers['retry-after'], '1');
    await until(() => namesBelow(folder).length === 1, 60_000);
  }
  assert.deepEqual(await fileNames(service), ['first.txt']);
  assert.equal((await askFiles(service, `/${id}/content`)).body.length, 1_000_000);
  const ballast = join(folder, 'ballast');
  const descriptor = openSync(ballast, 'w');
  try {
    for (;;) writeSync(descriptor, Buffer.alloc(4_096));
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
  }
  closeSync(descriptor);
  assertEnvelope(await sendUpload(service, uploadBody('small', 'small.txt')), 'internal_error');
  const body = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
  assert.equal((await service.chat(body)).status, 200, 'what needs no file goes on');
  unlinkSync(ballast);
  await upload(service, 'small', 'small.txt');
  assert.deepEqual(await fileNames(service), ['small.txt', 'first.txt']);
});

test('the folder is no folder: uploads fail in words, everything else goes on', async (t) => {
  const service = await startService(t);
  const folder = join(service.folder, 'data', 'files');
  rmSync(folder, { recursive: true, force: true });
  writeFileSync(folder, '');
  const answer = await sendUpload(service, uploadBody('x', 'x.txt'));
  assertEnvelope(answer, 'internal_error');
  assert.ok(service.log.some((line) => line['event'] === 'file_bytes_failed'));
  unlinkSync(folder);
  await upload(service, 'x', 'x.txt');
});

/** The real parts in this process, with a clock of its own and repositories that can fail. */
async function parts(
  t: TestContext,
  around: (repositories: FileRepositories) => FileRepositories = (repositories) => repositories,
) {
  const folder = temporaryFolder(t);
  mkdirSync(folder, { recursive: true });
  const connection = openConnection(join(folder, 'test.db'));
  const db = kyselyOn(connection);
  await migrate(db, 'sqlite');
  connection.exec(
    "insert into account (id, kind, name, status, available, credit_limit, version, created_at) values ('a', 0, '', 'active', 0, 0, 1, 0)",
  );
  let now = 1_800_000_000_000;
  const files = new Files({
    repositories: around(repositoriesOn(db)),
    bytes: new FolderBytes(join(folder, 'files')),
    bounds: { filesMax: 10, bytesMax: 1_000_000 },
    log: () => undefined,
    now: () => now,
  });
  t.after(async () => {
    await files.close();
    await db.destroy();
  });
  const add = (facts: Partial<UploadFacts> = {}) =>
    files.upload(
      'a',
      100_000,
      (async function* () {
        yield await Promise.resolve(Buffer.from('hello'));
      })(),
      () => Promise.resolve({ name: 'a.txt', purpose: null, expiresAfterMs: undefined, ...facts }),
      new AbortController().signal,
    );
  return { files, folder, add, pass: (ms: number) => (now += ms), stored: () => namesBelow(join(folder, 'files')) };
}

test('an expired file is gone at its time, and its bytes with the next sweep', async (t) => {
  const { files, add, pass, stored } = await parts(t);
  const kept = await add();
  const expiring = await add({ expiresAfterMs: 3_600_000 });
  pass(3_599_999);
  await files.sweep();
  assert.ok(await files.find('a', expiring.id));
  pass(1);
  assert.equal(await files.find('a', expiring.id), undefined);
  const listed = await files.list('a', { order: 'newest', limit: 10 });
  assert.deepEqual(
    listed.files.map(({ id }) => id),
    [kept.id],
  );
  assert.equal(stored().length, 2);
  await files.sweep();
  assert.deepEqual(
    stored().map((name) => name.slice(-32)),
    [kept.id],
  );
});

test('the database fails at each of its steps: nothing half is left, and nothing acknowledged is lost', async (t) => {
  const steps = ['beginFile', 'finishFile', 'leaveFile', 'forgetFiles', 'unreadyFiles'] as const;
  // Before the statement, and after it, when its answer is lost (reliability D5).
  for (const step of steps)
    for (const when of ['before', 'after'] as const) {
      let isFailing = true;
      const { files, add, stored } = await parts(t, (repositories) => ({
        ...repositories,
        [step]: async (request: never) => {
          if (isFailing && when === 'before') throw new StoreError('failed', 'lost');
          const result = await (repositories[step] as (request: never) => Promise<unknown>)(request);
          if (isFailing) throw new StoreError('failed', 'lost');
          return result;
        },
      }));
      const added = await add().catch(() => undefined);
      const removed = added === undefined ? false : await files.remove('a', added.id).catch(() => undefined);
      await files.sweep();
      isFailing = false;
      await files.sweep();
      const { files: listed } = await files.list('a', { order: 'newest', limit: 10 });
      assert.deepEqual(
        stored().map((name) => name.slice(-32)),
        listed.map(({ id }) => id),
        `${step}, ${when}: every file has its bytes, and there are no others`,
      );
      if (removed === true) assert.deepEqual(listed, [], `${step}, ${when}`);
      if (added !== undefined && removed === undefined && when === 'before')
        assert.equal(listed.length, 1, `${step}, ${when}: a deletion that failed`);
    }
});

/** Files and stored items on PostgreSQL: the same answers as on SQLite, bounds that hold for several replicas, and uploads that the others leave alone. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { FolderBytes } from '../../../src/inference/files/folder-bytes.ts';
import { Files } from '../../../src/inference/files/files.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { customer as customerOnSqlite, openStore, temporaryFolder } from '../../store/fixture.ts';
import { mulberry32 } from '../../support/random.ts';
import { until } from '../../support/service.ts';
import { customer, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const accounts = ['acct_a', 'acct_b'];
const idOf = (number: number): string => number.toString(16).padStart(32, '0');

/** Two stores that are asked the same must answer the same. */
async function twins(t: TestContext): Promise<readonly [Repositories, Repositories]> {
  const one = await openReplica(t, await server.databaseWithTables());
  const other = await openStore(t, join(temporaryFolder(t), 'x.db'));
  for (const id of accounts) {
    await customer(one.store, id, 0n);
    await customerOnSqlite(other, id, 0n);
  }
  return [one.store.repositories, other.repositories];
}

test('any mix of questions about files is answered as on SQLite', async (t) => {
  const stores = await twins(t);
  const seed = Number(process.env['TOKENHOUSE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TOKENHOUSE_SEED=${seed}`);
  const random = mulberry32(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  let made = 0;
  for (let step = 0; step < 150; step++) {
    const accountId = accounts[below(2)]!;
    const id = idOf(below(Math.max(made, 1)));
    const now = 1_000 + step;
    const cursor = below(3) === 0 ? { createdAt: 1_000 + below(150), id } : undefined;
    const row = { id, accountId, name: 'ü\u{1F600}.txt', mediaType: 'text/plain', bytes: below(50) };
    const begun = {
      id: idOf(made),
      accountId,
      bytesMax: 1 + below(100),
      at: now,
      bounds: { filesMax: 8, bytesMax: 500 },
    };
    const expiresAt = below(3) === 0 ? now + below(100) : null;
    const finished = { ...row, purpose: below(2) === 0 ? null : 'batch', createdAt: now, expiresAt };
    const listed = {
      accountId,
      now,
      order: below(2) === 0 ? ('newest' as const) : ('oldest' as const),
      limit: 1 + below(4),
      ...(below(3) === 0 ? { purpose: 'batch' } : {}),
      ...(below(3) === 0 ? { ids: [id, idOf(below(30))] } : {}),
      ...(cursor === undefined ? {} : below(2) === 0 ? { after: cursor } : { before: cursor }),
    };
    const dice = below(100);
    const ask = async (repositories: Repositories): Promise<unknown> => {
      if (dice < 25) return await repositories.beginFile(begun);
      if (dice < 50) return await repositories.finishFile(finished);
      if (dice < 60) return await repositories.getFile({ accountId, id, now });
      if (dice < 80) return await repositories.listFiles(listed);
      if (dice < 90) return await repositories.leaveFile({ accountId, id, now });
      if (dice < 95) return await repositories.unreadyFiles({ now, limit: 5 });
      return await repositories.forgetFiles({ ids: [id] });
    };
    const [is, should] = [await ask(stores[0]), await ask(stores[1])];
    assert.deepEqual(is, should, `step ${step}`);
    if (dice < 25 && is === true) made++;
  }
  assert.ok(made > 5);
});

test('any mix of questions about kept items is answered as on SQLite', async (t) => {
  const stores = await twins(t);
  const seed = Number(process.env['TOKENHOUSE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TOKENHOUSE_SEED=${seed}`);
  const random = mulberry32(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  for (let step = 0; step < 100; step++) {
    const accountId = accounts[below(2)]!;
    const dice = below(100);
    const items = Array.from({ length: 1 + below(4) }, () => ({
      accountId,
      id: `msg_${below(60)}`,
      keptAt: 1_000 + step,
      body: JSON.stringify({ text: 'ü\u{1F600}"\\\0'.repeat(1 + below(5)), step }),
    }));
    const ids = Array.from({ length: below(2) === 0 ? 5 : 700 }, () => `msg_${below(60)}`);
    const facts = { keptAfter: 1_000 + below(step + 1), bytesMax: 1 + below(2_000) };
    const bounds = { keptBefore: 1_000 + below(step + 1) - 100, accountBytesMax: below(1_500), rowsMax: 100 };
    const ask = async (repositories: Repositories): Promise<unknown> => {
      if (dice < 50) return await repositories.keepItems({ items });
      if (dice < 85) {
        const found = await repositories.findKeptItems({ accountId, ids, ...facts });
        return found === 'too-large' ? found : found.toSorted(([one], [other]) => (one < other ? -1 : 1));
      }
      if (dice < 97) return await repositories.tidyKeptItems({ ...bounds, accountIds: [accountId] });
      return await repositories.deleteKeptItems({ accountId });
    };
    assert.deepEqual(await ask(stores[0]), await ask(stores[1]), `step ${step}`);
  }
});

test('the bounds of an account hold for uploads that begin at two replicas at once', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = [await openReplica(t, url), await openReplica(t, url)] as const;
  for (const id of accounts) await customer(replicas[0].store, id, 0n);
  const begin = (number: number, accountId: string, bounds: { filesMax: number; bytesMax: number }) =>
    replicas[number % 2]!.store.repositories.beginFile({ id: idOf(number), accountId, bytesMax: 10, at: 0, bounds });
  const numbers = Array.from({ length: 60 }, (_, number) => number);
  const byCount = await Promise.all(
    numbers.map((number) => begin(number, 'acct_a', { filesMax: 7, bytesMax: 10_000 })),
  );
  assert.equal(byCount.filter(Boolean).length, 7);
  const byBytes = await Promise.all(
    numbers.map((number) => begin(100 + number, 'acct_b', { filesMax: 1000, bytesMax: 95 })),
  );
  assert.equal(byBytes.filter(Boolean).length, 9);
});

test('what arrives at a replica is left alone by the others, until that one is gone', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 0n);
  const folder = temporaryFolder(t);
  const log = (event: string, reason: string): void => assert.fail(`${event}: ${reason}`);
  const filesOf = ({ store }: typeof one): Files =>
    new Files({
      repositories: store.repositories,
      bytes: new FolderBytes(folder),
      bounds: { filesMax: 10, bytesMax: 10_000 },
      log,
    });
  const [ofOne, ofTwo] = [filesOf(one), filesOf(two)];
  let isHeld = true;
  const source = (async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from('first ');
    while (isHeld) await sleep(5);
    yield Buffer.from('last');
  })();
  const facts = { name: 'a.txt', purpose: null, expiresAfterMs: undefined };
  const { signal } = new AbortController();
  const uploading = ofOne.upload('acct_a', 100, source, () => Promise.resolve(facts), signal);
  await until(async () => (await server.sql(url, 'select 1 from file')).length === 1, 30_000);
  for (let times = 0; times < 3; times++) await ofTwo.sweep();
  isHeld = false;
  const file = await uploading;
  const found = await ofTwo.find('acct_a', `file-${file.id}`);
  assert.deepEqual(found, file);
  const text: Buffer[] = [];
  for await (const chunk of (await ofTwo.read(found!, signal))!) text.push(chunk as Buffer);
  assert.equal(Buffer.concat(text).toString(), 'first last');

  // One that dies leaves an upload behind, which nobody sees, and the next sweep of another takes.
  await one.store.repositories.beginFile({
    id: idOf(1),
    accountId: 'acct_a',
    bytesMax: 10,
    at: 0,
    bounds: { filesMax: 10, bytesMax: 10_000 },
  });
  await ofTwo.sweep();
  assert.equal((await server.sql(url, 'select 1 from file')).length, 2);
  await one.store.close();
  await ofTwo.sweep();
  assert.deepEqual(await server.sql(url, 'select id from file'), [{ id: file.id }]);
});

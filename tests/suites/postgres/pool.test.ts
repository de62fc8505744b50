/**
 * The connections of the repositories, which answers everything but money: whatever becomes of one of them, from its first statement
 * on, its place is free again, and nothing has to be restarted (reliability D3, D5).
 */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import { kyselyOn, kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { PoolDriver } from '../../../src/store/postgres/pool-driver.ts';
import { until, type TestService } from '../../support/service.ts';
import { assertRight } from './fixture.ts';
import { PgBouncer } from './pgbouncer.ts';
import { report } from '../../support/workers.ts';
import { ask, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

const longMs = 60_000;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

async function wireOf(t: TestContext): Promise<{ readonly url: string; readonly wire: Wire }> {
  const url = await server.createDatabase();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  return { url, wire };
}

const one = sql<{ one: bigint }>`select 1 as one`;

test('a connection that breaks while it is greeted gives its place back', async (t) => {
  const { url, wire } = await wireOf(t);
  const db = kyselyOnPostgres({ url: wire.url(url) }, 3);
  t.after(() => db.destroy());
  for (const greeting of ['synchronous_commit', 'jit', 'synchronous_commit', 'jit', 'synchronous_commit']) {
    wire.loseAnswerTo = greeting;
    await assert.rejects(one.execute(db));
  }
  assert.equal(wire.lost, 5);
  assert.equal((await one.execute(db)).rows[0]!.one, 1n);
});

test('a server that is silent while it greets, or answers nothing later, keeps no connection for good', async (t) => {
  const { url, wire } = await wireOf(t);
  wire.breaksAfterLoss = false;
  const db = kyselyOn(
    new PoolDriver({ address: { url: wire.url(url) }, connections: 1, statementMs: 2_000, connectMs: 2_000 }),
  );
  t.after(() => db.destroy());
  wire.loseAnswerTo = 'jit';
  await assert.rejects(one.execute(db));
  assert.equal((await one.execute(db)).rows[0]!.one, 1n);
  // The driver gives up an answer and goes on: the next user of the connection would wait behind it.
  wire.loseAnswerTo = 'lost for good';
  await assert.rejects(sql`select 'lost for good'`.execute(db));
  assert.equal((await one.execute(db)).rows[0]!.one, 1n);
  assert.equal(wire.lost, 2);
});

test('a transaction whose connection breaks says why it broke, and not that it cannot be rolled back any more', async (t) => {
  const db = kyselyOnPostgres({ url: await server.createDatabase() }, 1);
  t.after(() => db.destroy());
  const ended = sql`select pg_terminate_backend(pg_backend_pid())`;
  await assert.rejects(
    db.transaction().execute((inside) => ended.execute(inside)),
    { code: '57P01' },
  );
  assert.equal((await one.execute(db)).rows[0]!.one, 1n);
});

test('a transaction whose end is unknown is never given to somebody else', async (t) => {
  const { url, wire } = await wireOf(t);
  const db = kyselyOnPostgres({ url: wire.url(url) }, 1);
  t.after(() => db.destroy());
  await sql`create table note (said text)`.execute(db);
  wire.loseAnswerTo = 'commit';
  await assert.rejects(db.transaction().execute((writing) => sql`insert into note values ('kept')`.execute(writing)));
  const { rows } = await sql<{ said: string; inTransaction: boolean }>`
    select said, now() <> statement_timestamp() as "inTransaction" from note`.execute(db);
  assert.deepEqual(rows, [{ said: 'kept', inTransaction: false }]);
});

test('a pool closes in its time, also while somebody waits for a server that does not answer', async (t) => {
  const { url, wire } = await wireOf(t);
  wire.breaksAfterLoss = false;
  const db = kyselyOnPostgres({ url: wire.url(url) }, 1);
  await one.execute(db);
  wire.loseAnswerTo = 'never answered';
  const waiting = assert.rejects(sql`select 'never answered'`.execute(db));
  await until(() => wire.lost === 1);
  await db.destroy();
  await waiting;
});

interface Scene {
  readonly service: TestService;
  readonly managementKey: string;
}

async function sceneOn(t: TestContext, url: string): Promise<Scene> {
  const service = serviceOn(url);
  t.after(() => service.dispose());
  await service.start();
  const { accountId } = service;
  const input = { kind: 'create_key', accountId, name: 'viewer', expiresAt: undefined, role: 'viewer' } as const;
  const made = await report(service, input);
  const scene = { service, managementKey: made.key };
  await until(() => isWell(scene), longMs);
  return scene;
}

/** What needs the repositories: a request with an idempotency key, and a page of the account API. */
async function queryStatuses({ service, managementKey }: Scene): Promise<readonly number[]> {
  const asked = [
    service.chat(ask, { headers: { 'idempotency-key': crypto.randomUUID() } }),
    fetch(`${service.accountUrl}/v1/credits`, { headers: { authorization: `Bearer ${managementKey}` } }),
    fetch(`${service.url}/readyz`),
  ];
  return await Promise.all(
    asked.map(async (answer) => {
      const { status, body } = await answer;
      await body?.cancel();
      return status;
    }),
  );
}

const isWell = async (scene: Scene): Promise<boolean> => (await queryStatuses(scene)).every((status) => status === 200);

/** For a while, whatever comes back. */
async function askOften(scene: Scene, forMs: number): Promise<readonly number[]> {
  const from = performance.now();
  const ready: number[] = [];
  while (performance.now() - from < forMs) {
    const statuses = await Promise.all(Array.from({ length: 4 }, () => queryStatuses(scene)));
    ready.push(...statuses.map((each) => each[2]!));
    await sleep(100);
  }
  return ready;
}

/** Three seconds without one failure: what had begun before may still fail once. */
const staysWell = (scene: Scene): Promise<void> =>
  until(async () => (await isWell(scene)) && (await askOften(scene, 3_000)).every((status) => status === 200), longMs);

test('a real pooler whose server is away for 15 s: not ready meanwhile, all well after it, and a stop in order', async (t) => {
  const { url, wire } = await wireOf(t);
  const pooler = await PgBouncer.start(Number(new URL(wire.url(url)).port));
  t.after(() => pooler.close());
  const scene = await sceneOn(t, pooler.url(url));
  wire.cut();
  const ready = await askOften(scene, 15_000);
  assert.ok(ready.includes(503), `readyz said ${[...new Set(ready)].join(', ')}`);
  wire.mend();
  await staysWell(scene);
  assert.equal(await scene.service.stop(), 0);
  await assertRight(url, false);
});

test('answers of the database that are lost one by one: all well after it, without a restart', async (t) => {
  const { url, wire } = await wireOf(t);
  const scene = await sceneOn(t, wire.url(url));
  wire.loseEach = 7;
  // As many as that take 10 s of a quick machine.
  await until(async () => {
    await askOften(scene, 2_000);
    return wire.lost > 20;
  }, longMs);
  wire.loseEach = undefined;
  await staysWell(scene);
  assert.equal(await scene.service.stop(), 0);
  await assertRight(url, false);
});

test('a stop while the database is away ends in order and in time', async (t) => {
  const { url, wire } = await wireOf(t);
  const scene = await sceneOn(t, wire.url(url));
  wire.cut();
  await askOften(scene, 2_000);
  const from = performance.now();
  assert.equal(await scene.service.stop(), 0);
  t.diagnostic(`stopped after ${(performance.now() - from).toFixed(0)} ms`);
});

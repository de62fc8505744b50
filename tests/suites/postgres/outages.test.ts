/**
 * What becomes of answers whose replica loses its database, for a moment or for longer than the others wait (reliability D3;
 * docs/money.md, "The table of endings" and "Fencing").
 */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { until, type TestService } from '../../support/service.ts';
import { assertRight } from './fixture.ts';
import { ask, asked, serviceOn, stream } from './replica-service.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

const longMs = 60_000;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

interface Scene {
  readonly url: string;
  readonly wire: Wire;
  /** On the wire. */
  readonly service: TestService;
  /** Beside it, on the database itself. */
  readonly other: TestService;
}

async function sceneOf(t: TestContext): Promise<Scene> {
  const url = await server.createDatabase();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const [service, other] = [serviceOn(wire.url(url)), serviceOn(url)];
  for (const each of [service, other]) t.after(() => each.dispose());
  await service.start();
  Object.assign(other, { key: service.key, accountId: service.accountId });
  await other.start();
  for (const each of [service, other]) assert.equal((await asked(each)).status, 200);
  return { url, wire, service, other };
}

/** An answer of a word a second; resolves when it has begun. */
async function begin(service: TestService, url: string): Promise<{ readonly text: Promise<string> }> {
  const answer = await service.chat(stream('twenty seconds'));
  assert.equal(answer.status, 200);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 1, longMs);
  return { text: answer.text() };
}

/** What all requests have cost, less what was paid back. */
async function paidOf(url: string): Promise<bigint> {
  const [row] = await server.sql(
    url,
    `select ((select sum(cost) from usage) - (select coalesce(sum(amount), 0) from transfer where kind = 'refund'))::text as paid`,
  );
  return BigInt(String(row!['paid']));
}

const rowsOf = (url: string, endings: string) =>
  server.sql(url, `select ending, cost > 0 as paid from usage where ending in (${endings}) order by ending`);

const finished = /"finish_reason":"stop".*data: \[DONE\]\n\n$/s;
const notRecorded = /"code":"internal_error".*data: \[DONE\]\n\n$/s;

test('an outage in the middle of an answer: nothing is admitted meanwhile, the answer is whole and charged', async (t) => {
  const { url, wire, service, other } = await sceneOf(t);
  // Nobody is there who could give it up, however long the machine takes.
  assert.equal(await other.stop(), 0);
  const { text } = await begin(service, url);
  const cutAtMs = performance.now();
  wire.cut();
  await until(async () => (await service.chat(ask)).status === 500, longMs);
  t.diagnostic(`refused after ${(performance.now() - cutAtMs).toFixed(0)} ms`);
  // Once it has refused, it refuses until the database is back.
  for (const refused of await Promise.all(Array.from({ length: 5 }, () => service.chat(ask)))) {
    assert.equal(refused.status, 500);
    assert.equal(refused.headers.get('retry-after'), '1');
  }
  wire.mend();
  assert.match(await text, finished);
  await until(async () => (await service.chat(ask)).status === 200, longMs);
  const [row] = await server.sql(
    url,
    `select count(*)::int as n from usage where ending = 'finished' and cost > 0 and total_ms > 5000`,
  );
  assert.deepEqual(row, { n: 1 });
  await assertRight(url);
});

test('an outage at the end of the answer: its client learns that it pays nothing, and pays nothing', async (t) => {
  const { url, wire, service } = await sceneOf(t);
  const answer = await service.chat(stream('slow'));
  let text = '';
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of answer.body!) text += decoder.decode(bytes, { stream: true });
  })();
  await until(() => text.includes('nine'), longMs);
  const before = await paidOf(url);
  wire.cut();
  await reading;
  assert.match(text, notRecorded);
  wire.mend();
  // Whatever became durable of it, and whichever process wrote that: there is one row, and what it costs is paid back.
  await until(async () => (await service.chat(ask)).status === 200, longMs);
  const [mine] = await server.sql(
    url,
    `select count(*)::int as n from usage where hold > 0 and public_id = '${answer.headers.get('x-request-id')}'`,
  );
  assert.deepEqual(mine, { n: 1 });
  const others = await server.sql(
    url,
    `select coalesce(sum(cost), 0)::text as cost from usage where started_at > (select max(started_at) from usage where public_id = '${answer.headers.get('x-request-id')}')`,
  );
  await until(async () => (await paidOf(url)) === before + BigInt(String(others[0]!['cost'])), longMs);
  await assertRight(url);
});

test('an outage that is longer than the others wait: what ran was given up by them, so its answer cannot be charged, and ends as lost', async (t) => {
  const { url, wire, service, other } = await sceneOf(t);
  const { text } = await begin(service, url);
  wire.cut();
  // The others give it up, with all that it had leased.
  await until(async () => (await server.sql(url, 'select 1 from replica')).length === 1, longMs);
  await until(async () => (await rowsOf(url, `'crashed'`)).length === 1, longMs);
  await until(
    async () =>
      (await server.sql(url, 'select 1 from credit_lease where replica_id not in (select id from replica)')).length ===
      0,
    longMs,
  );
  assert.equal((await asked(other)).status, 200);
  assert.equal((await service.chat(ask)).status, 500);
  wire.mend();
  assert.match(await text, notRecorded);
  assert.deepEqual(await rowsOf(url, `'lost', 'crashed'`), [{ ending: 'crashed', paid: false }]);
  // It goes on under another name.
  await until(async () => (await server.sql(url, 'select 1 from replica')).length === 2, longMs);
  await until(async () => (await service.chat(ask)).status === 200, longMs);
  await assertRight(url);
});

test('a database that is stopped for 30 s: all replicas refuse, no replica expires by it, and what outlasts it is charged', async (t) => {
  const { url, service, other } = await sceneOf(t);
  const both = [service, other];
  const lives = async (): Promise<readonly unknown[]> =>
    (await server.sql(url, `select encode(id, 'hex') as id from replica order by 1`)).map(({ id }) => id);
  const before = await lives();
  const answers = await Promise.all(both.map((each) => each.chat(stream('longer'))));
  const texts = answers.map((answer) => answer.text());
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 2, longMs);
  const ending = await Promise.all(both.map((each) => each.chat(stream('slow'))));
  const lost = ending.map((answer) => answer.text());
  const pausedAtMs = performance.now();
  server.pause();
  const statuses = new Map<number, number>();
  try {
    await until(
      async () => (await Promise.all(both.map((each) => each.chat(ask)))).every(({ status }) => status === 500),
      longMs,
    );
    while (performance.now() - pausedAtMs < 30_000) {
      for (const each of both) {
        const { status } = await each.chat(ask);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
      await sleep(250);
    }
    for (const text of await Promise.all(lost)) assert.match(text, notRecorded);
  } finally {
    server.unpause();
  }
  assert.deepEqual([...statuses.keys()], [500]);
  for (const each of both) await until(async () => (await each.chat(ask)).status === 200, longMs);
  for (const text of await Promise.all(texts)) assert.match(text, finished);
  assert.deepEqual(await lives(), before);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 0, longMs);
  const idsOf = (of: readonly Response[]): string =>
    of.map(({ headers }) => `'${headers.get('x-request-id')}'`).join(', ');
  const whole = await server.sql(
    url,
    `select ending, cost > 0 as paid from usage where public_id in (${idsOf(answers)})`,
  );
  assert.deepEqual(
    whole,
    both.map(() => ({ ending: 'finished', paid: true })),
  );
  // A statement that was sent before the pause may be carried out after it: then it is paid back.
  await until(async () => {
    const [row] = await server.sql(
      url,
      `select ((select coalesce(sum(cost), 0) from usage where public_id in (${idsOf(ending)}))
         - (select coalesce(sum(amount), 0) from transfer join usage on reference = encode(request_id, 'hex')
            where kind = 'refund' and public_id in (${idsOf(ending)})))::text as unpaid`,
    );
    return row!['unpaid'] === '0';
  }, longMs);
  await assertRight(url);
});

/** The whole program on PostgreSQL: it answers, its commands work, and the ledger is consistent, also after kill -9. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { until, type TestService } from '../../support/service.ts';
import { assertRight } from './fixture.ts';
import { ask, asked, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

function replicaOn(t: TestContext, url: string): TestService {
  const service = serviceOn(url);
  t.after(() => service.dispose());
  return service;
}

test('a service answers from PostgreSQL, its commands work beside it and without it, and the ledger verifies', async (t) => {
  const url = await server.createDatabase();
  const service = await replicaOn(t, url).start();
  for (let count = 0; count < 5; count++) {
    const answer = await asked(service, { ...ask, stream: count % 2 === 0 });
    assert.equal(answer.status, 200);
    await answer.text();
  }
  const { requests, balanceMicrocents } = await service.usage();
  assert.equal(requests.length, 5);
  const spent = requests.reduce((sum, one) => sum + one.cost_microcents, 0);
  assert.ok(spent > 0);
  assert.equal(balanceMicrocents, 500_000_000 - spent);
  await service.verify();
  const said = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await service.command(...words);
    assert.equal(code, 0, `${words.join(' ')}: ${stdout}${stderr}`);
    return stdout + stderr;
  };
  assert.match(await said('doctor'), /postgres:\/\/127\.0\.0\.1.*right: /s);
  assert.match(await said('db', 'status'), /in use by 1 replicas/);
  assert.match(await said('credits', 'show'), new RegExp(service.accountId));
  assert.match(await said('db', 'backup', 'x.dump'), /x\.dump: .* 5 requests; verified/);

  assert.equal(await service.stop(), 0);
  assert.deepEqual(await server.sql(url, 'select 1 from credit_lease union all select 1 from replica'), []);
  await assertRight(url, false);
  await said('keys', 'create', '--name', 'another');
  await said('credits', 'grant', '--cents', '100');
  await service.verify();
  await service.start();
  assert.equal((await asked(service)).status, 200);
  await service.verify();

  // A newer version brings the tables up to date beside it: it goes on, and cannot be started again.
  await server.sql(url, `insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01')`);
  assert.equal((await asked(service)).status, 200);
  assert.equal(await service.stop(), 0);
  await assert.rejects(service.start(), /written by a newer version of Tokenhouse/);
});

test('three replicas that start at once make one account, serve its key, and one may be killed', async (t) => {
  const url = await server.createDatabase();
  const starting = [1, 2, 3].map(() => {
    const replica = replicaOn(t, url);
    replica.key = 'unknown';
    return replica;
  });
  await Promise.all(starting.map((replica) => replica.start()));
  const accounts = await server.sql(url, 'select id from account where kind = 0');
  assert.equal(accounts.length, 1);
  const shownKey = (): string | undefined =>
    /tkh_[0-9A-Za-z]{20,}(?=\s)/.exec(starting.map(({ output }) => output).join('\n'))?.[0];
  await until(() => shownKey() !== undefined, 30_000); // printed after the lines that a start waits for
  const key = shownKey()!;
  for (const replica of starting) {
    replica.key = key;
    await until(async () => (await replica.chat(ask)).status === 200, 30_000); // who has not made it hears of it
  }
  const [one, two, three] = starting as [TestService, TestService, TestService];
  const answers = await Promise.all(starting.flatMap((replica) => Array.from({ length: 10 }, () => asked(replica))));
  assert.deepEqual(
    answers.map(({ status }) => status),
    answers.map(() => 200),
  );
  const running = asked(one, { ...ask, messages: [{ role: 'user', content: 'slow' }] }).catch(() => undefined);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 1, 30_000);
  await one.stop('SIGKILL');
  await running;
  assert.equal((await asked(two)).status, 200);
  // I6: within ten seconds nothing of the dead one is left, and the ledger says what it was running.
  await until(async () => (await server.sql(url, 'select 1 from replica')).length === 2, 30_000);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 0, 30_000);
  const crashed = await server.sql(url, `select cost from usage where ending = 'crashed'`);
  assert.deepEqual(crashed, [{ cost: '0' }]);
  assert.equal((await asked(three)).status, 200);
  await two.verify();
  assert.equal(await two.stop(), 0);
  assert.equal(await three.stop(), 0);
  assert.deepEqual(await server.sql(url, 'select 1 from credit_lease'), []);
  await assertRight(url, false);
});

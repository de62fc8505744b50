/** Idempotency keys on several replicas: a twin elsewhere waits and is given the answer, and the claim of a dead one is taken over. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test, type TestContext } from 'node:test';
import { testClaims } from '../../store/claims.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { assertRight, customer, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

testClaims(async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  const other = await openReplica(t, url);
  await customer(store, 'acct_a', 0n);
  const { repositories, ledger } = store;
  return { repositories, ledger, owner: ledger.replicaId, otherOwner: other.store.ledger.replicaId };
});

const model = scriptedModel(
  `- { when: { last_text: slow }, say: [{ text: "one two three four five six" }], pace_ms: 1000 }
- { say: [{ text: "one two three" }] }`,
  { settings: noFeatures },
);

async function replicas(t: TestContext): Promise<readonly [TestService, TestService, string]> {
  const url = await server.databaseWithTables();
  const made = [1, 2].map(() => {
    const service = new TestService({
      config: `storage: env:TEST_DATABASE\n${model}`,
      environment: { TEST_DATABASE: url, TOKENHOUSE_SECRET: 'a secret of thirty-two characters' },
    });
    t.after(() => service.dispose());
    return service;
  });
  const [first, second] = made as [TestService, TestService];
  await first.start();
  second.key = first.key;
  second.accountId = first.accountId;
  await second.start();
  return [first, second, url];
}

const said = (text: string, stream: boolean) => ({
  model: 'demo',
  stream,
  messages: [{ role: 'user', content: text }],
});
const waitMs = 60_000;
const options = { timeout: 300_000 };

for (const stream of [false, true]) {
  test(
    `a twin on another replica waits for the answer and is given it, ${stream ? 'streamed' : 'whole'}`,
    options,
    async (t) => {
      const [first, second, url] = await replicas(t);
      const headers = { 'idempotency-key': randomUUID() };
      const running = first.chat(said('slow', stream), { headers });
      await until(async () => (await server.sql(url, 'select 1 from idempotent_request')).length === 1, waitMs);
      const twin = await second.chat(said('slow', stream), { headers });
      assert.equal(twin.status, 200);
      const answer = await running;
      assert.equal(twin.headers.get('idempotent-replayed'), 'true');
      assert.equal(twin.headers.get('x-request-id'), answer.headers.get('x-request-id'));
      assert.equal(await twin.text(), await answer.text());
      const other = await second.chat(said('hello', stream), { headers });
      assert.equal(other.status, 422);
      const { requests } = await first.usage();
      assert.deepEqual(
        requests.map(({ ending }) => ending),
        ['finished'],
      );
      await assertRight(url);
    },
  );
}

test(
  'the replica that runs a request is killed: another one takes it over, and it is charged once',
  options,
  async (t) => {
    const [first, second, url] = await replicas(t);
    const headers = { 'idempotency-key': randomUUID() };
    const cut = first
      .chat(said('slow', true), { headers })
      .then((answer) => answer.text())
      .catch(() => '');
    await until(async () => (await server.sql(url, 'select 1 from idempotent_request')).length === 1, waitMs);
    const twin = second.chat(said('slow', true), { headers });
    await first.stop('SIGKILL');
    assert.ok(!(await cut).includes('[DONE]'));
    const answer = await twin;
    assert.equal(answer.status, 200);
    assert.match(await answer.text(), /six.*\[DONE\]/s);
    const { requests } = await second.usage();
    assert.equal(requests.filter(({ ending }) => ending === 'finished').length, 1);
    assert.ok(requests.every(({ ending, cost_microcents: cost }) => ending === 'finished' || cost === 0));
    await assertRight(url);
  },
);

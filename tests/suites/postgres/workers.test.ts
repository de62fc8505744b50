/** `server.workers` on PostgreSQL: each worker is a replica, and the parent one that answers no requests. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { until } from '../../support/service.ts';
import { replaced, workersOf } from '../../app/workers/workers.ts';
import { assertRight } from './fixture.ts';
import { ask, asked, serviceOn, stream, report } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const longMs = 60_000;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test(
  'two workers serve, charge and stop as one service; one that is killed comes back',
  { timeout: 300_000 },
  async (t) => {
    const url = await server.createDatabase();
    const service = serviceOn(url, { workers: 2 });
    t.after(() => service.dispose());
    await service.start();
    const replicas = async () => (await server.sql(url, 'select 1 from replica')).length;
    assert.equal(await replicas(), 3);
    const answers = await Promise.all(Array.from({ length: 40 }, () => asked(service)));
    for (const answer of answers) assert.equal(answer.status, 200, await answer.text());
    await assertRight(url);

    const made = await report(service, {
      kind: 'create_key',
      accountId: service.accountId,
      name: 'x',
      expiresAt: undefined,
    });
    const streams = await Promise.all(
      Array.from({ length: 8 }, () => asked(service, stream('endless'), { key: made.key })),
    );
    await report(service, { kind: 'revoke_key', keyId: made.keyId });
    for (const answer of streams)
      assert.match(await answer.text(), /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/s);
    for (let index = 0; index < 8; index++) {
      const refused = await service.chat(ask, { key: made.key, headers: { connection: 'close' } });
      assert.equal(refused.status, 401, await refused.text());
    }

    const [one] = workersOf(service);
    const killing = replaced(service, one!, 2);
    // A connection that was kept to the killed one ends with it, and a client sends again.
    const answer = await asked(service).catch(() => asked(service));
    assert.equal(answer.status, 200, await answer.text());
    await killing;
    await until(async () => (await replicas()) === 3, longMs);
    assert.equal(await service.stop(), 0);
    await until(async () => (await replicas()) === 0, longMs);
    await assertRight(url);
    const { requests } = await service.usage();
    assert.equal(requests.filter(({ ending }) => ending === 'finished').length, 41);
  },
);

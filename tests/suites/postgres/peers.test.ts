/** What replicas tell each other (docs/decisions/039-fleets-of-replicas.md): messages in the database, and the whole program. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pg from 'pg';
import { openPostgresStore, type PostgresStore } from '../../../src/store/postgres/store.ts';
import { figure, hasHeardAll } from '../../support/workers.ts';
import { TestService, until } from '../../support/service.ts';
import { answeredBy, namedPrompt, TwoServers } from '../../support/two-servers.ts';
import { secret } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const longMs = 60_000;
let server: PostgresServer;
const opened: (() => unknown)[] = [];
before(async () => {
  server = await PostgresServer.start();
  opened.push(() => server.dispose());
});
after(async () => {
  for (const close of opened.toReversed()) await close();
});

async function storeOn(url: string): Promise<PostgresStore> {
  const store = await openPostgresStore({ address: { url }, shown: url });
  opened.push(() => store.close());
  return store;
}

test('each replica reads what the others have sent since it read last, once and in their order', async () => {
  const url = await server.databaseWithTables();
  const [one, two, three] = [await storeOn(url), await storeOn(url), await storeOn(url)];
  const read = async (store: PostgresStore, text?: string): Promise<readonly string[]> =>
    (await store.peers.exchange(text)).map((message) => message.text);
  assert.deepEqual(await read(one, 'one 1'), []);
  assert.deepEqual(await read(one, 'one 2'), []);
  assert.deepEqual(await read(two, 'two 1'), ['one 1', 'one 2']);
  assert.deepEqual(await read(two), []);
  assert.deepEqual((await read(three)).toSorted(), ['one 1', 'one 2', 'two 1']);
  const [message] = await one.peers.exchange('one 3');
  assert.deepEqual(message, { from: Buffer.from(two.ledger.replicaId).toString('hex'), text: 'two 1' });
  assert.deepEqual(await read(three), ['one 3']);

  // All at once, a hundred times: each message reaches each of the others once.
  const seen = await Promise.all(
    [one, two, three].map(async (store, index) => {
      const texts: string[] = [];
      for (let turn = 0; turn < 100; turn++) texts.push(...(await read(store, `${index}.${turn}`)));
      return { store, texts, own: `${index}.` };
    }),
  );
  for (const { store, texts, own } of seen) {
    const all = [...texts, ...(await read(store))].filter((text) => text.includes('.'));
    const expected = [0, 1, 2].flatMap((index) => Array.from({ length: 100 }, (_, turn) => `${index}.${turn}`));
    assert.deepEqual(all.toSorted(), expected.filter((text) => !text.startsWith(own)).toSorted());
    for (const sender of ['0.', '1.', '2.']) {
      const turns = all.filter((text) => text.startsWith(sender)).map((text) => Number(text.slice(2)));
      assert.deepEqual(
        turns,
        turns.toSorted((a, b) => a - b),
        'in the order of their sender',
      );
    }
  }
});

test('what is old is not read, and its sender deletes it', async () => {
  const url = await server.databaseWithTables();
  const [one, two] = [await storeOn(url), await storeOn(url)];
  await one.peers.exchange('early');
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  opened.push(() => client.end());
  await client.query('update peer_message set sent_at = sent_at - 6000');
  assert.deepEqual(await two.peers.exchange(undefined), []);
  const count = async (): Promise<unknown> =>
    (await client.query<{ n: string }>('select count(*) as n from peer_message')).rows[0]?.n;
  assert.equal(await count(), '1', 'another replica leaves it for a minute');
  await one.peers.exchange(undefined);
  assert.equal(await count(), '0');
  await one.peers.exchange('of one that has ended');
  await client.query('update peer_message set sent_at = sent_at - 61000');
  await two.peers.exchange(undefined);
  assert.equal(await count(), '0');
});

test('two replicas route a prompt to where its beginning is, and know what fails at the other', async () => {
  const url = await server.databaseWithTables();
  const servers = await TwoServers.start();
  opened.push(() => servers.close());
  const replica = (): TestService => {
    const service = new TestService({
      config: `storage: env:TEST_DATABASE\n${servers.model}`,
      environment: { TEST_DATABASE: url, TOKENHOUSE_SECRET: secret },
      firstCreditCents: '500',
    });
    opened.push(() => service.dispose());
    return service;
  };
  const [one, two] = [replica(), replica()];
  await one.start();
  Object.assign(two, { key: one.key, accountId: one.accountId });
  await two.start();

  // The first of each replica goes to the first server, and the next to the second, unless it knows better.
  const names = ['amber', 'birch', 'cedar', 'dune'];
  const homes = new Map<string, number>();
  for (const name of names) homes.set(name, await answeredBy(servers, one, name));
  assert.deepEqual([...new Set(homes.values())].toSorted(), [0, 1], 'both servers have some');
  const salts = (): readonly string[] =>
    servers.servers.flatMap(({ exchanges }) =>
      exchanges.flatMap(({ body }) => /"cache_salt":"[^"]+"/.exec(body) ?? []),
    );
  await hasHeardAll(two, (turn) => answeredBy(servers, one, `noise-${turn}`));
  for (const name of names.toReversed())
    assert.equal(await answeredBy(servers, two, name), homes.get(name), `${name} stays where it is`);
  assert.equal(new Set(salts()).size, 1, 'both replicas use the same part of a server’s cache for an account');

  // One server fails, which one replica finds out; the other leaves it out without having failed there.
  const isLeftOut = async (): Promise<boolean> =>
    (await figure(two, 'tokenhouse_backend_ejected', { backend: 'server-0' })) === 1;
  const [there] = names.filter((name) => homes.get(name) === 0);
  servers.failing[0] = true;
  await until(async () => {
    // Its beginning is there, so it is tried there first.
    await answeredBy(servers, one, there!);
    return await isLeftOut();
  }, longMs);
  // It is back, and the only one.
  servers.failing[0] = false;
  servers.failing[1] = true;
  await until(async () => {
    const answer = await two.chat(namedPrompt('anything'));
    await answer.arrayBuffer();
    return !(await isLeftOut());
  }, longMs);
});

/**
 * What others change reaches every follower: each change once, also when calls are lost and connections break (money,
 * "Revocation").
 */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import pg from 'pg';
import type { Change, Feed, FollowedRepositories } from '../../../src/store/feed.ts';
import type { PostgresStore } from '../../../src/store/postgres/store.ts';
import { uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

/** Notes what it receives, and can fail. */
class Notes {
  readonly heard: Change[] = [];
  loads = 0;
  failures = 0;

  loadAll(repositories: FollowedRepositories): Promise<void> {
    this.loads++;
    return repositories.loadKeys({}).then(() => {});
  }

  follow(changes: readonly Change[]): Promise<void> {
    if (this.failures > 0) {
      this.failures--;
      return Promise.reject(new Error('the test wants it to fail'));
    }
    this.heard.push(...changes);
    return Promise.resolve();
  }

  get refs(): readonly string[] {
    return this.heard.map(({ ref }) => ref);
  }
}

interface Following {
  readonly store: PostgresStore;
  readonly notes: Notes;
  readonly feed: Feed;
}

async function following(t: TestContext, url: string): Promise<Following> {
  const { store } = await openReplica(t, url);
  const notes = new Notes();
  const feed = await store.follow(notes);
  t.after(() => feed.close());
  return { store, notes, feed };
}

async function clientOf(t: TestContext, url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  t.after(() => client.end());
  return client;
}

const record = (client: pg.Client, ref: string) =>
  client.query(`insert into change (id, at, kind, ref) values ($1, 0, 'key_models', $2)`, [uuid(), ref]);

/** More than the service promises on a machine that is busy with other things. */
const longMs = 30_000;

test('a change is found however late its transaction is committed, and never one that is not', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port, { isDeaf: true });
  t.after(() => wire.close());
  const [near, deaf] = [await following(t, url), await following(t, wire.url(url))];
  const [early, late, undone] = [await clientOf(t, url), await clientOf(t, url), await clientOf(t, url)];
  for (const client of [late, undone]) await client.query('begin');
  await record(late, 'late');
  await record(undone, 'undone');
  // Others go on meanwhile, and what they change is looked at.
  for (let number = 1; number <= 5; number++) {
    await record(early, `early-${number}`);
    await until(() => [near, deaf].every(({ notes }) => notes.heard.length === number), longMs);
  }
  await undone.query('rollback');
  await late.query('commit');
  await until(() => [near, deaf].every(({ notes }) => notes.refs.includes('late')), longMs);
  for (const { notes, feed } of [near, deaf]) {
    assert.equal(await feed.catchUp(), true);
    assert.deepEqual(notes.refs.toSorted(), ['early-1', 'early-2', 'early-3', 'early-4', 'early-5', 'late']);
    assert.equal(notes.loads, 1);
  }
  assert.ok(wire.callsLost > 0, 'the deaf one had calls that it did not hear');
});

test('of changes that many make at once, each is found exactly once', async (t) => {
  const url = await server.databaseWithTables();
  const { notes, feed } = await following(t, url);
  const clients = await Promise.all(Array.from({ length: 6 }, () => clientOf(t, url)));
  const made: string[] = [];
  await Promise.all(
    clients.map(async (client, writer) => {
      for (let number = 0; number < 40; number++) {
        const ref = `${writer}-${number}`;
        await client.query('begin');
        await record(client, ref);
        if (number % 3 === writer % 3) await new Promise((resolve) => setTimeout(resolve, 15));
        const isKept = number % 4 > 0;
        await client.query(isKept ? 'commit' : 'rollback');
        if (isKept) made.push(ref);
      }
    }),
  );
  await until(() => notes.heard.length >= made.length, longMs);
  assert.equal(await feed.catchUp(), true);
  assert.deepEqual(notes.refs.toSorted(), made.toSorted());
});

test('the time of a change is the database’s, whatever its writer says', async (t) => {
  const url = await server.databaseWithTables();
  await following(t, url);
  await record(await clientOf(t, url), 'x');
  const [row] = await server.sql(
    url,
    `select abs(at - extract(epoch from now()) * 1000) < 60000 as "isNow" from change`,
  );
  assert.equal(row?.['isNow'], true);
});

test('what could not be followed is followed by the next look; nobody learns that all is well before', async (t) => {
  const url = await server.databaseWithTables();
  const { notes, feed } = await following(t, url);
  notes.failures = 3;
  await record(await clientOf(t, url), 'x');
  await until(() => notes.heard.length > 0, longMs);
  assert.equal(notes.failures, 0);
  assert.deepEqual(notes.refs, ['x']);
  notes.failures = Infinity;
  await record(await clientOf(t, url), 'y');
  await until(() => feed.isStale, longMs);
  assert.equal(await feed.catchUp(), false);
  notes.failures = 0;
  await until(() => !feed.isStale, longMs);
  assert.deepEqual(notes.refs, ['x', 'y']);
});

test('a connection that breaks loses no change; a server that was started anew has everything read again', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const { notes, feed } = await following(t, wire.url(url));
  for (let number = 1; number <= 3; number++) {
    wire.cut();
    await record(await clientOf(t, url), `cut-${number}`);
    await until(() => feed.isStale, longMs);
    assert.equal(await feed.catchUp(), false);
    wire.mend();
    await until(() => !feed.isStale, longMs);
    assert.equal(notes.refs.at(-1), `cut-${number}`);
  }
  assert.deepEqual(notes.refs, ['cut-1', 'cut-2', 'cut-3']);
  assert.equal(notes.loads, 1);
  await server.kill();
  await until(() => feed.isStale, longMs);
  await server.resume();
  await until(() => !feed.isStale, longMs);
  assert.equal(notes.loads, 2);
  await record(await clientOf(t, url), 'after');
  await until(() => notes.refs.includes('after'), longMs);
});

test('a server that is silent makes the feed stale, and the first answer mends it', async (t) => {
  const url = await server.databaseWithTables();
  const { notes, feed } = await following(t, url);
  server.pause();
  try {
    await until(() => feed.isStale, longMs);
    assert.equal(await feed.catchUp(), false);
  } finally {
    server.unpause();
  }
  await until(() => !feed.isStale, longMs);
  await record(await clientOf(t, url), 'x');
  await until(() => notes.refs.includes('x'), longMs);
});

test('a dump of another server brings changes of transactions that are yet to come; they are not looked at', async (t) => {
  const url = await server.databaseWithTables();
  const { notes, feed } = await following(t, url);
  await server.sql(
    url,
    `insert into change (id, at, kind, ref, tx) values ('\\x01', 0, 'key_models', 'other', txid_current() + 1000000)`,
  );
  await record(await clientOf(t, url), 'own');
  await until(() => notes.refs.includes('own'), longMs);
  assert.equal(await feed.catchUp(), true);
  assert.deepEqual(notes.refs, ['own']);
});

/** As if they had been made two hours ago. */
const age = (url: string) => server.sql(url, 'update change set at = at - 7200000');
const changesIn = async (url: string): Promise<readonly string[]> =>
  (await server.sql(url, 'select ref from change order by ref')).map(({ ref }) => String(ref));

test('old changes are deleted; who looks hears of each once, and who was away for longer reads everything anew', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const [near, away] = [await following(t, url), await following(t, wire.url(url))];
  const client = await clientOf(t, url);
  await record(client, 'before');
  await until(() => [near, away].every(({ notes }) => notes.refs.includes('before')), longMs);

  // Nobody is away: both know what is deleted.
  await age(url);
  await record(client, 'young');
  await until(() => [near, away].every(({ notes }) => notes.refs.includes('young')), longMs);
  await near.store.tidy();
  assert.deepEqual(await changesIn(url), ['young']);
  await record(client, 'next');
  await until(() => [near, away].every(({ notes }) => notes.refs.includes('next')), longMs);
  for (const { notes, feed } of [near, away]) {
    assert.equal(await feed.catchUp(), true);
    assert.deepEqual(notes.refs, ['before', 'young', 'next']);
    assert.equal(notes.loads, 1);
  }

  // One is away, and what it has missed is gone when it comes back: until all is read, it knows that it does not know.
  wire.cut();
  await until(() => away.feed.isStale, longMs);
  await record(client, 'missed');
  await age(url);
  await record(client, 'also missed');
  await near.store.tidy();
  assert.deepEqual(await changesIn(url), ['also missed']);
  assert.equal(away.feed.isStale, true);
  wire.mend();
  await until(() => !away.feed.isStale, longMs);
  assert.equal(away.notes.loads, 2);
  assert.ok(!away.notes.refs.includes('missed'));
  await record(client, 'again');
  await until(() => [near, away].every(({ notes }) => notes.refs.includes('again')), longMs);
  assert.deepEqual(near.notes.refs, ['before', 'young', 'next', 'missed', 'also missed', 'again']);
  assert.deepEqual([near.notes.loads, away.notes.loads], [1, 2]);
});

test('a change that is committed long after it was made, and deleted at once, is read by everybody', async (t) => {
  const url = await server.databaseWithTables();
  const { store, notes, feed } = await following(t, url);
  const [late, client] = [await clientOf(t, url), await clientOf(t, url)];
  await late.query('begin');
  await record(late, 'late');
  await late.query('update change set at = at - 7200000');
  // What is younger than a transaction that still runs stays, however old it says that it is.
  await record(client, 'other');
  await age(url);
  await store.tidy();
  assert.deepEqual(await changesIn(url), ['other']);
  await until(() => notes.refs.includes('other'), longMs);
  await late.query('commit');
  await store.tidy();
  assert.deepEqual(await changesIn(url), []);
  await until(() => notes.refs.includes('late') || notes.loads > 1, longMs);
  assert.equal(await feed.catchUp(), true);
  await record(client, 'after');
  await until(() => notes.refs.includes('after'), longMs);
});

test('a round of deleting is bounded, and rows of another server go without making anybody late', async (t) => {
  const url = await server.databaseWithTables();
  const { store, notes, feed } = await following(t, url);
  await server.sql(
    url,
    `insert into change (id, at, kind, ref) select decode(lpad(to_hex(n), 32, '0'), 'hex'), 0, 'key_models', n::text from generate_series(1, 2500) as n`,
  );
  // As a dump brings them: the transaction and the mark of a server that has had more of them.
  await server.sql(url, 'update change set tx = txid_current() + 1000000 where ref = $$7$$');
  await server.sql(url, 'update change_pruned set tx = txid_current() + 1000000');
  await until(() => notes.heard.length >= 2499, longMs);
  await age(url);
  const left: number[] = [];
  for (let round = 0; round < 3; round++) {
    await store.tidy();
    left.push((await changesIn(url)).length);
  }
  assert.deepEqual(left, [1500, 500, 0]);
  assert.equal(await feed.catchUp(), true);
  await record(await clientOf(t, url), 'own');
  await until(() => notes.refs.includes('own'), longMs);
  assert.equal(notes.loads, 1);
});

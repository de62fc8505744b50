/**
 * Every call of every family of operations goes wrong, in each way in which a server and its wire can: the caller hears a code of the
 * store or is served, asks again, and then the rows are those of a run without faults, the ledger is right, and nothing is kept.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../../../src/store/database.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openPostgresStore, type PostgresStore } from '../../../src/store/postgres/store.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { MemoryBalances } from '../../store/fixture.ts';
import { comparedTables, uncomparedColumns } from '../../store/story-rows.ts';
import { ask, play, Stage, type Story } from '../../store/stage.ts';
import { stories } from '../../store/stories.ts';
import { until } from '../../support/service.ts';
import { FaultyWire, wireFaults, type WireFault } from './faulty-wire.ts';
import { PostgresServer } from './server.ts';

/** `all`: every call in every way. Otherwise every other call loses its answer, and the others go wrong in the other ways, which take turns. */
const isWhole = process.env['TOKENHOUSE_TEST_NTH_CALL'] === 'all';

function waysOf(call: number): readonly WireFault[] {
  if (isWhole) return wireFaults;
  const [first, ...others] = wireFaults;
  return [call % 2 === 1 ? first : others[(call / 2) % others.length]!];
}

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

class Scenery {
  readonly store: PostgresStore;
  readonly free: MemoryBalances;
  readonly wire: FaultyWire;
  /** Beside the wire. */
  readonly db: Kysely<Database>;
  /** Locks that the store has while it does nothing, such as that of its presence. */
  readonly #locks: number;
  #runs = 0;

  constructor(store: PostgresStore, free: MemoryBalances, wire: FaultyWire, db: Kysely<Database>, locks: number) {
    this.store = store;
    this.free = free;
    this.wire = wire;
    this.db = db;
    this.#locks = locks;
  }

  static async open(): Promise<Scenery> {
    const url = await server.databaseWithTables();
    const wire = await FaultyWire.open(server.port);
    const free = new MemoryBalances();
    const store = await openPostgresStore({ address: { url: wire.url(url) }, shown: 'the test', free });
    const db = kyselyOnPostgres({ url }, 1);
    return new Scenery(store, free, wire, db, await locksIn(db));
  }

  /** The rows after a run of the story in which a call fails. */
  async run(story: Story, fault: WireFault | undefined, call: number): Promise<readonly string[]> {
    const { store, free, wire, db } = this;
    const quiet = (): Promise<void> => until(async () => (await locksIn(db)) <= this.#locks, 10_000);
    // A session whose connection broke has its locks until the server notices: till then its work is being done elsewhere.
    const stage = new Stage(store, free, `ab${String(++this.#runs).padStart(4, '0')}`, { pause: quiet });
    for (const step of story.before) await ask(step, stage);
    wire.arm(fault, call);
    try {
      await play(story, stage);
    } finally {
      wire.disarm();
    }
    await quiet();
    assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
    return await rowsOf(db, stage.tag);
  }

  /** Ends the store, with which everything that it had leased goes back. */
  async close(): Promise<void> {
    await this.store.close();
    const { rows } = await sql`select 1 from credit_lease union all select 1 from budget_lease`.execute(this.db);
    await this.db.destroy();
    this.wire.close();
    assert.deepEqual(rows, []);
  }
}

/** Texts of all rows with the tag in them. */
async function rowsOf(db: Kysely<Database>, tag: string): Promise<readonly string[]> {
  const left = sql.raw(`'{${uncomparedColumns.join(',')}}'::text[]`);
  const texts = comparedTables.map(
    (name) =>
      sql`select ${sql.lit(name)} || ' ' || (to_jsonb(of_table) - ${left})::text as text from ${sql.table(name)} of_table`,
  );
  const { rows } = await sql<{ readonly text: string }>`
    select replace(text, ${tag}, '#') as text from (${sql.join(texts, sql` union all `)}) texts
    where text like ${`%${tag}%`} order by 1`.execute(db);
  return rows.map(({ text }) => text);
}

/** Locks of transactions that nobody ends, and advisory ones. */
async function locksIn(db: Kysely<Database>): Promise<number> {
  const { rows } = await sql<{ readonly count: number }>`
    select count(*)::int as count from pg_locks left join pg_stat_activity using (pid)
    where pid <> pg_backend_pid() and pg_locks.database = (select oid from pg_database where datname = current_database())
      and (locktype = 'advisory' or state like 'idle in transaction%')`.execute(db);
  return rows[0]!.count;
}

// Stories with a database for each run take minutes here: on SQLite they are always played.
for (const story of stories.filter(({ isAlone = false }) => isWhole || !isAlone)) {
  test(story.name, async (t) => {
    let scenery = await Scenery.open();
    const rows = await scenery.run(story, undefined, 0);
    let met = 0;
    let isOver = false;
    let call = 0;
    while (!isOver) {
      call++;
      for (const fault of waysOf(call)) {
        // Otherwise all runs are on one store, whose pool and sessions have met all earlier faults.
        if (story.isAlone === true) {
          await scenery.close();
          scenery = await Scenery.open();
        }
        const found = await scenery.run(story, fault, call).catch((error: unknown) => error);
        assert.deepEqual(found, rows, `${fault} at call ${call}`);
        if (scenery.wire.hasFailed) met++;
        else isOver = true;
      }
    }
    await scenery.close();
    t.diagnostic(`${met} faults before call ${call}`);
  });
}

/**
 * Every statement of every family of operations goes wrong on SQLite, in each way in which it can, and the process dies before and after
 * each: then the caller asks again, or the next process goes on, and the rows are those of a run without faults, and the ledger is right.
 */
import assert from 'node:assert/strict';
import { copyFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { closeConnection, openConnection, type Connection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { MemoryBalances, temporaryFolder } from '../../store/fixture.ts';
import { openInProcess } from '../../store/sqlite-in-process.ts';
import { ask, Stage, type Story } from '../../store/stage.ts';
import { rowsIn } from '../../store/story-rows.ts';
import { stories } from '../../store/stories.ts';

/** `full-undone`: with the error, SQLite has rolled back the transaction itself. */
const faults = ['dies-after', 'dies-before', 'busy', 'full', 'full-undone', 'broken', 'read-only'] as const;
type Fault = (typeof faults)[number];

const errors = {
  busy: ['database is locked', 5],
  full: ['database or disk is full', 13],
  'full-undone': ['database or disk is full', 13],
  broken: ['disk I/O error', 10],
  'read-only': ['attempt to write a readonly database', 8],
} as const;

/** `all`: every statement in every way. Otherwise each in one way; they take turns. */
const isWhole = process.env['TOKENHOUSE_TEST_NTH_CALL'] === 'all';
const waysOf = (statement: number): readonly Fault[] => (isWhole ? faults : [faults[statement % faults.length]!]);

type Statement = ReturnType<Connection['prepare']>;

class Scenery {
  readonly #folder: string;
  #file: string;
  #free = new MemoryBalances();
  #open: ReturnType<typeof openInProcess>;
  #lives = 1;
  #runs = 0;
  #fault: Fault | undefined;
  #left = 0;
  #isDead = false;
  hasFailed = false;

  constructor(folder: string, template: string) {
    this.#folder = folder;
    this.#file = join(folder, '1.db');
    copyFileSync(template, this.#file);
    this.#open = this.#opened();
  }

  #opened(): ReturnType<typeof openInProcess> {
    this.#isDead = false;
    this.#free = new MemoryBalances();
    return openInProcess(this.#file, this.#free, {
      met: (connection) => this.#met(connection),
      onFatal: () => (this.#isDead = true),
    });
  }

  /** The properties of a connection cannot be replaced. */
  #met(connection: Connection): Connection {
    connection.exec('pragma synchronous = off'); // no power is lost here
    const prepare = (sql: string): Statement => {
      const statement = connection.prepare(sql);
      const met =
        <Value>(work: (...given: never[]) => Value) =>
        (...given: never[]): Value =>
          this.#carryOut(connection, sql, () => work(...given));
      return {
        run: met((...given) => statement.run(...given)),
        all: met((...given) => statement.all(...given)),
        get: met((...given) => statement.get(...given)),
        columns: () => statement.columns(),
      } as unknown as Statement;
    };
    return new Proxy(connection, {
      get: (_target, name) => {
        if (name === 'prepare') return prepare;
        const value: unknown = Reflect.get(connection, name);
        return typeof value === 'function' ? (value.bind(connection) as unknown) : value;
      },
    });
  }

  #carryOut<Value>(connection: Connection, sql: string, work: () => Value): Value {
    if (this.#isDead) throw new Error('its process has died');
    // To undo needs no lock and no space.
    if (this.#fault === undefined || /^rollback\b/.test(sql) || --this.#left !== 0) return work();
    this.hasFailed = true;
    if (this.#fault === 'dies-after' || this.#fault === 'dies-before') {
      if (this.#fault === 'dies-after') work();
      this.#isDead = true;
      throw new Error('its process has died');
    }
    if (this.#fault === 'full-undone' && connection.isTransaction) connection.exec('rollback');
    const [message, errcode] = errors[this.#fault];
    throw Object.assign(new Error(message), { code: 'ERR_SQLITE_ERROR', errcode });
  }

  /** What a process that is gone leaves: its files as they are. */
  #restart(): void {
    const before = this.#file;
    this.#file = join(this.#folder, `${++this.#lives}.db`);
    for (const ending of ['', '-wal'])
      if (existsSync(before + ending)) copyFileSync(before + ending, this.#file + ending);
    this.#isDead = false;
    this.#fault = undefined;
    this.#open.close();
    this.#open = this.#opened();
  }

  /** The rows after a run of the story in which a statement fails. */
  async run(story: Story, fault: Fault | undefined, statement: number): Promise<readonly string[] | 'crashed'> {
    const tag = `ab${String(++this.#runs).padStart(4, '0')}`;
    const newStage = (): Stage => new Stage(this.#open.store, this.#free, tag, { isOver: () => this.#isDead });
    let stage = newStage();
    for (const step of story.before) await ask(step, stage);
    Object.assign(this, { hasFailed: false });
    this.#left = statement;
    this.#fault = fault;
    let hasDied = false;
    for (const step of story.steps) {
      try {
        await ask(step, stage);
      } catch (error) {
        if (!this.#isDead) throw error;
        hasDied = true;
        this.#restart();
        stage = newStage();
        if (story.isOfProcess === true) break;
        await ask(step, stage, { isAgain: true });
      }
    }
    // In what it did beside the last step.
    if (this.#isDead) this.#restart();
    this.#fault = undefined;
    assert.deepEqual((await verifyLedger(this.#open.db, { owned: false })).differences, []);
    return hasDied && story.isOfProcess === true ? 'crashed' : await rowsIn(this.#open.db, tag);
  }

  close(): void {
    this.#open.close();
  }
}

for (const story of stories)
  test(story.name, async (t) => {
    const template = join(temporaryFolder(t), 'template.db');
    const connection = openConnection(template);
    await migrate(kyselyOn(connection), 'sqlite');
    closeConnection(connection);
    let scenery = new Scenery(temporaryFolder(t), template);
    const rows = await scenery.run(story, undefined, 0);
    let [statement, met] = [0, 0];
    for (let isOver = false; !isOver;) {
      // Stories with a database for each run would take minutes.
      statement += story.isAlone === true && !isWhole ? 41 : 1;
      for (const fault of waysOf(statement)) {
        if (story.isAlone === true) {
          scenery.close();
          scenery = new Scenery(temporaryFolder(t), template);
        }
        const found = await scenery.run(story, fault, statement).catch((error: unknown) => error);
        if (found !== 'crashed') assert.deepEqual(found, rows, `${fault} at statement ${statement}`);
        if (scenery.hasFailed) met++;
        else isOver = true;
      }
    }
    scenery.close();
    t.diagnostic(`${met} faults before statement ${statement}`);
  });

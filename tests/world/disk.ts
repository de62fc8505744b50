/** The database's file, as the processes of a world see it: its writes fail, take long, or are the last that a process does. */
import { DatabaseSync } from '@photostructure/sqlite';
import { copyFileSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

import type { Owner, Scheduler } from './scheduler.ts';

/** What befalls a statement: an error of SQLite, or the death of the process before or after it. */
export type Mishap = 'busy' | 'full' | 'broken' | 'dies-before' | 'dies-after';

/** Thrown out of the statement at which the process died; nothing of the process runs after it. */
class Died extends Error {
  override readonly name = 'Died';
}

const errors = {
  busy: { message: 'database is locked', errcode: 5 },
  full: { message: 'database or disk is full', errcode: 13 },
  broken: { message: 'disk I/O error', errcode: 10 },
} as const;

/** The tables that requests, batches, payments and their accounts are written to. */
export const written = [
  ...['usage', 'open_request', 'transfer', 'account', 'budget_balance', 'change', 'idempotent_request'],
  ...['batch', 'batch_line', 'file', 'topup', 'payment', 'payment_event', 'demo_payment_object'],
] as const;

/** When a mishap comes, as `plan` counts it. */
interface When {
  readonly until: number;
  readonly times?: number;
  readonly near?: string;
  readonly after?: number;
  readonly again?: number;
}

type Connection = InstanceType<typeof DatabaseSync>;
type Statement = ReturnType<Connection['prepare']>;

class MetConnection extends DatabaseSync {
  meet: <Value>(sql: string, work: () => Value) => Value = (_, work) => work();

  override exec(sql: string): void {
    this.meet(sql, () => super.exec(sql));
  }

  override prepare(sql: string): Statement {
    const statement = super.prepare(sql);
    if (!isWriting(sql)) return statement;
    // The methods of a statement cannot be replaced.
    const met =
      <Value>(work: (...given: never[]) => Value) =>
      (...given: never[]): Value =>
        this.meet(sql, () => work(...given));
    return {
      run: met((...given) => statement.run(...given)),
      all: met((...given) => statement.all(...given)),
      get: met((...given) => statement.get(...given)),
      columns: () => statement.columns(),
    } as unknown as Statement;
  }
}

export class Disk {
  readonly #scheduler: Scheduler;
  /** The folder of all processes; each has its own below it. */
  readonly #folder: string;
  #lives = 0;
  #open: Connection[] = [];
  /** The process that runs. */
  owner: Owner | undefined;
  #mishap: Mishap | undefined;
  /** Statements that write to a table until it is about to happen, then any that write, then how often; all counted down. */
  #near: RegExp | undefined;
  #after = 0;
  #until = 0;
  #times = 0;
  #again: When | undefined;
  slowMs = 0;
  writes = 0;
  /** Statements that met one, and times at which all were slow. */
  mishaps = 0;
  /** Called when a statement is the last of its process. */
  died: () => void = () => {};

  constructor(scheduler: Scheduler, folder: string) {
    this.#scheduler = scheduler;
    this.#folder = folder;
  }

  /** The folder of the process that runs, or ran last. */
  get folder(): string {
    return join(this.#folder, String(this.#lives));
  }

  get file(): string {
    return join(this.folder, 'data', 'tokenhouse.db');
  }

  /**
   * After so many statements that write to a table, if one is given, and so many that write anything, the next `times` of them fail. Processes
   * that follow one that died die there too, `again` times.
   */
  plan(mishap: Mishap, when: When): void {
    this.#mishap = mishap;
    this.#again = (when.again ?? 0) > 0 ? { ...when, again: when.again! - 1 } : undefined;
    this.#near =
      when.near === undefined
        ? undefined
        : new RegExp(`^\\s*(?:insert (?:or \\w+ )?into|update|delete from) "?${when.near}\\b`, 'i');
    this.#after = when.after ?? 0;
    this.#until = when.until;
    this.#times = when.times ?? 1;
  }

  heal(): void {
    this.#mishap = undefined;
    this.slowMs = 0;
  }

  /** How long an answer of a thread takes. */
  delayMs(thread: string): number {
    const { random } = this.#scheduler;
    return random() * (thread === 'ledger-worker' ? 0.6 : 0.2) + (this.slowMs > 0 ? random() * this.slowMs : 0);
  }

  /** What a killed process leaves: the files as they are at this moment, in a folder of their own, and no locks. */
  crash(): void {
    const before = this.folder;
    this.#lives++;
    copyFolder(before, this.folder);
    for (const one of this.#open) if (one.isOpen) one.close();
    this.#open = [];
    rmSync(before, { recursive: true });
  }

  /** After an orderly end. */
  rest(): void {
    for (const one of this.#open) if (one.isOpen) one.close();
    this.#open = [];
  }

  /** A connection of a process. */
  open(owner: Owner, file: string, options: object): Connection {
    // Everything is in one thread here: to wait for another's lock would be to wait for ever.
    const connection = new MetConnection(file, { ...options, timeout: 0 } as never);
    connection.meet = (sql, work) => this.#meet(owner, sql, work);
    this.#open.push(connection);
    return connection;
  }

  #meet<Value>(owner: Owner, sql: string, work: () => Value): Value {
    if (owner.isDead) throw new Died();
    if (!isWriting(sql) || owner !== this.owner) return work();
    this.writes++;
    const mishap = this.#mishap;
    if (mishap === undefined) return work();
    if (this.#near !== undefined) {
      if (this.#near.test(sql) && this.#after-- <= 0) this.#near = undefined;
      else return work();
    }
    if (this.#until-- > 0) return work();
    this.mishaps++;
    if (--this.#times <= 0) this.#mishap = undefined;
    this.#scheduler.note(`disk: ${mishap} at ${sql.trim().slice(0, 30).replace(/\s+/g, ' ')}`);
    if (mishap === 'dies-before' || mishap === 'dies-after') {
      if (mishap === 'dies-after') work();
      this.died();
      if (this.#again !== undefined) this.plan(mishap, this.#again);
      throw new Died();
    }
    const { message, errcode } = errors[mishap];
    throw Object.assign(new Error(message), { code: 'ERR_SQLITE_ERROR', errcode });
  }
}

/** What a process that was killed leaves; `cpSync` looks at every file several times. */
export function copyFolder(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) copyFolder(source, target);
    else if (!/\.(?:lock|sock|db-shm)$/.test(entry.name)) copyFileSync(source, target);
  }
}

const isWriting = (sql: string): boolean => /^\s*(?:insert|update|delete|replace|begin|commit|with)\b/i.test(sql);

import type { Kysely } from 'kysely';
import { withDeadline } from '../../platform/deadline.ts';
import type { Database } from '../database.ts';
import type { Change, Feed, FollowedRepositories, Follows } from '../feed.ts';
import { repositoriesOn } from '../repositories/repositories.ts';
import { Session, type PostgresAddress } from './connection.ts';
import { kyselyOnSession } from './dialect.ts';
import { readChanges } from './statements.ts';

/** The channel that the trigger on `change` notifies. A notification only triggers the next poll earlier. */
const changeChannel = 'tokenhouse_change';
const lookEveryMs = 250;
/** If the last successful poll is older, nothing is admitted from memory. */
const staleAfterMs = 1_000;
const answerTimeoutMs = 1_000;
/** Timeout of each statement that reads changes. */
const readTimeoutMs = 5_000;

export interface PostgresFeedOptions {
  readonly address: PostgresAddress;
  readonly follower: Follows;
  readonly log: (level: 'info' | 'warn', message: string) => void;
}

interface ChangeRow {
  /** The transactions that were visible to the poll. */
  readonly snapshot: string;
  /** When the server was started. */
  readonly server: string;
  /** Whether later changes may have been deleted. */
  readonly isLate: boolean | null;
  readonly kind: string | null;
  readonly ref: string | null;
}

/** `silent`: the failure to receive changes has been logged. */
type State = 'heard' | 'silent' | 'closed';

/** The last successful poll. */
interface Look {
  /** The snapshot up to which all changes are in force here. */
  readonly snapshot: string;
  readonly server: string;
  /** When it began: everything durable by then is in force. */
  readonly begunMs: number;
}

/**
 * Polls for changes a few times a second, and immediately when the database notifies. Correctness depends on polling alone, so lost
 * notifications are harmless. Each poll passes its snapshot to the next, so every change is found by exactly one successful poll, and what
 * a failed one found is found again.
 */
export class PostgresFeed implements Feed {
  readonly isShared = true;
  readonly #follower: Follows;
  readonly #log: PostgresFeedOptions['log'];
  readonly #session: Session;
  readonly #db: Kysely<Database>;
  readonly #repositories: FollowedRepositories;
  #timer: NodeJS.Timeout | undefined;
  #state: State = 'heard';
  #good: Look | undefined;
  #last: Promise<boolean> = Promise.resolve(true);
  /** A poll that has not begun. */
  #next: Promise<boolean> | undefined;
  /** The error of the last failed poll. */
  #failure: unknown;

  constructor({ address, follower, log }: PostgresFeedOptions) {
    this.#follower = follower;
    this.#log = log;
    this.#session = new Session({
      address,
      onConnect: async (client) => {
        await client.query(`listen ${changeChannel}`);
      },
      onNotification: () => void this.#look(),
    });
    this.#db = kyselyOnSession(this.#session, readTimeoutMs);
    this.#repositories = repositoriesOn(this.#db);
  }

  /** Resolves when everything is loaded. Rejects if that failed. */
  async start(): Promise<void> {
    if (!(await this.#look())) throw this.#failure;
    this.#timer = setInterval(() => {
      if (this.isStale) this.#report();
      void this.#look();
    }, lookEveryMs);
    this.#timer.unref();
  }

  get isStale(): boolean {
    return performance.now() - (this.#good?.begunMs ?? -Infinity) > staleAfterMs;
  }

  freshen(): Promise<boolean> {
    // If the database is slow, a poll in progress suffices.
    return withDeadline(
      this.#last.then(() => !this.isStale || this.#look()),
      staleAfterMs,
      () => false,
    );
  }

  catchUp(): Promise<boolean> {
    return withDeadline(this.#look(), staleAfterMs, () => false);
  }

  async close(): Promise<void> {
    this.#state = 'closed';
    clearInterval(this.#timer);
    await this.#last;
    await this.#session.close();
    await this.#db.destroy();
  }

  /** Polls one at a time; all callers that arrive before the next one begins share it. */
  #look(): Promise<boolean> {
    if (this.#next !== undefined) return this.#next;
    const turn = this.#last.then(() => {
      this.#next = undefined;
      return this.#state === 'closed' ? false : this.#follow();
    });
    this.#next = this.#last = turn;
    return turn;
  }

  async #follow(): Promise<boolean> {
    const begunMs = performance.now();
    try {
      const { rows } = await this.#session.query<ChangeRow>(
        readChanges,
        [this.#good?.snapshot ?? null],
        answerTimeoutMs,
      );
      const { snapshot, server, isLate } = rows[0]!;
      // Another server, or the same one after a crash or a restore, may have lost changes.
      if (server !== this.#good?.server || isLate === true) await this.#follower.loadAll(this.#repositories);
      else {
        const changes = rows.filter((row): row is ChangeRow & Change => row.kind !== null);
        if (changes.length > 0) await this.#follower.follow(changes, this.#repositories);
      }
      this.#good = { snapshot, server, begunMs };
      if (this.#state === 'silent') {
        this.#state = 'heard';
        this.#log('info', 'changes of keys and prices are heard of again');
      }
      return true;
    } catch (error) {
      this.#failure = error; // the next poll tries again
      return false;
    }
  }

  #report(): void {
    if (this.#state !== 'heard') return;
    this.#state = 'silent';
    const reason = this.#failure instanceof Error ? this.#failure.message : 'no answer';
    this.#log('warn', `changes of keys and prices are not heard of, so new requests are refused: ${reason}`);
  }
}

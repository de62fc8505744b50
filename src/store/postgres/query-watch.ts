import { CompiledQuery, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { PoolDriver } from './pool-driver.ts';

const lookEveryMs = 1_000;
/** A first look that takes longer than this counts as none; connecting and greeting have bounds of their own. */
const answerTimeoutMs = 3_000;

/**
 * Whether the repositories' connections answer, by asking through them once a second. The ledger and the feed have connections of
 * their own, so that both may be well while every query of the repositories fails.
 */
export class QueryWatch {
  readonly #db: Kysely<Database>;
  readonly #pool: PoolDriver;
  readonly #timer: NodeJS.Timeout;
  #isLooking = false;
  #isAnswering = true;

  constructor(db: Kysely<Database>, pool: PoolDriver) {
    this.#db = db;
    this.#pool = pool;
    this.#timer = setInterval(() => void this.#look(), lookEveryMs);
    this.#timer.unref();
  }

  get isAnswering(): boolean {
    return this.#isAnswering;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    // Reports have all of them: a look would only wait. They are given up in time, and silence for longer is none of theirs.
    if (this.#pool.isBusy) {
      if (this.#pool.silentMs > this.#pool.lentMsMax) this.#isAnswering = false;
      return;
    }
    this.#isLooking = true;
    const timer = setTimeout(() => (this.#isAnswering = false), answerTimeoutMs);
    try {
      await this.#db.executeQuery(CompiledQuery.raw('select 1'));
      this.#isAnswering = true;
    } catch {
      this.#isAnswering = this.#isAnswering && this.#pool.isBusy;
    } finally {
      clearTimeout(timer);
      this.#isLooking = false;
    }
  }
}

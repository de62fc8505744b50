import { CompiledQuery, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { PoolDriver } from './pool-driver.ts';

const lookEveryMs = 1_000;
/** A first probe that takes longer counts as unanswered; connecting and setup have separate limits. */
const answerTimeoutMs = 3_000;

/**
 * Monitors whether the repositories' connections answer, by a query through them once a second. The ledger and the feed have separate
 * connections, so both may be well while every query of the repositories fails.
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
    // All connections run reports, so a probe would only wait. Reports time out, so a longer silence has another cause.
    if (this.#pool.isBusy) {
      if (this.#pool.silentMs > this.#pool.acquiredMsMax) this.#isAnswering = false;
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

import type { Session } from './connection.ts';
import { returnShares } from './limit-statements.ts';
import { beat, declareDead, recordCrashes, register, returnLeases } from './statements.ts';

export const heartbeatEveryMs = 250;
/** Older beats are a dead replica's (money, "BACK / REAP"). */
const deadAfterMs = 5_000;
/** Clocks do not pass quite alike. */
const safetyMs = 500;
const reapEveryMs = 500;
const answerTimeoutMs = 1_000;

export interface MembershipOptions {
  /** A connection for nothing else, so that beats wait for nobody. */
  readonly session: Session;
  readonly newId: () => Uint8Array;
  /** Declared dead while it was not heard of: it goes on under another id, and owns nothing. */
  readonly onExpired: (id: Uint8Array) => void;
  /** After each beat that was heard: what time it was in the database, after it was asked at `askedMs` (`performance.now()`). */
  readonly onHeartbeat: (databaseMs: number, askedMs: number) => void;
}

interface HeartbeatRow {
  readonly beat: bigint;
}

/** This process among the others on the database: says that it lives, and takes back what the dead have left. */
export class Membership {
  readonly #options: MembershipOptions;
  #id: Uint8Array;
  #timer: NodeJS.Timeout | undefined;
  #heartbeating: Promise<void> = Promise.resolve();
  #heardMs = 0;
  /** When the last beat was sent that was heard. */
  #heartbeatMs = 0;
  /** Since when beats were heard without a gap. */
  #steadySinceMs = 0;
  #reapedMs = 0;
  #closed = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#id = options.newId();
  }

  /** Made anew at each start and each rebirth: the fence of everything that is leased. */
  get id(): Uint8Array {
    return this.#id;
  }

  /** Until then nobody declares this replica dead, whatever becomes of it; by `performance.now()`. */
  get safeUntilMs(): number {
    return this.#heartbeatMs + deadAfterMs - safetyMs;
  }

  async start(): Promise<void> {
    this.#heartbeatMs = performance.now();
    await this.#register(this.#id, 10_000);
    this.#heardMs = this.#steadySinceMs = performance.now();
    this.#schedule();
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#heartbeating = this.#beat()
        .catch(() => {}) // the next beat tries again, on another connection
        .finally(() => this.#schedule());
    }, heartbeatEveryMs);
    this.#timer.unref();
  }

  async #beat(): Promise<void> {
    const { session, newId, onExpired, onHeartbeat } = this.#options;
    let askedMs = performance.now();
    const { rows } = await session.query<HeartbeatRow>(beat, [this.#id], answerTimeoutMs);
    const nowMs = performance.now();
    if (rows[0] === undefined) {
      const id = newId();
      askedMs = performance.now();
      await this.#register(id, answerTimeoutMs);
      this.#id = id;
      onExpired(id);
    } else {
      onHeartbeat(Number(rows[0].beat), askedMs);
    }
    if (nowMs - this.#heardMs > deadAfterMs / 2) this.#steadySinceMs = nowMs;
    this.#heardMs = nowMs;
    this.#heartbeatMs = askedMs;
    if (nowMs - this.#reapedMs > reapEveryMs) {
      this.#reapedMs = nowMs;
      await this.#reap(nowMs);
    }
  }

  async #register(id: Uint8Array, timeoutMs: number): Promise<void> {
    const { session, onHeartbeat } = this.#options;
    const askedMs = performance.now();
    const { rows } = await session.query<HeartbeatRow>(register, [id], timeoutMs);
    onHeartbeat(Number(rows[0]!.beat), askedMs);
  }

  /**
   * After a database was away, everybody's beat is old: so nobody is declared dead by one that has not itself been in
   * contact for as long.
   */
  async #reap(nowMs: number): Promise<void> {
    const { session } = this.#options;
    if (nowMs - this.#steadySinceMs >= deadAfterMs) await session.query(declareDead, [deadAfterMs], answerTimeoutMs);
    await session.query(returnLeases, [], answerTimeoutMs);
    await session.query(returnShares, [], answerTimeoutMs);
    await session.query(recordCrashes, [], answerTimeoutMs);
  }

  /** Leaves: what it had goes back at once. Without an answer, the others do it when its beat is old. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#heartbeating;
    const { session } = this.#options;
    try {
      await session.query({ text: 'delete from replica where id = $1' }, [this.#id], answerTimeoutMs);
      await session.query(returnLeases, [], answerTimeoutMs);
      await session.query(returnShares, [], answerTimeoutMs);
      await session.query(recordCrashes, [], answerTimeoutMs);
    } catch {
      // No database: whoever finds the old beat does it.
    }
    await session.close();
  }
}

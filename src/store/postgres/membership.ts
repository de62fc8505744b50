import type { Session } from './connection.ts';
import { returnShares } from './limit-statements.ts';
import { heartbeat, deleteExpired, recordCrashes, register, returnLeases } from './statements.ts';

export const heartbeatEveryMs = 250;
/** A replica with an older heartbeat has expired (money, "BACK / REAP"). */
const expiredAfterMs = 5_000;
/** Clocks run at slightly different speeds. */
const safetyMs = 500;
const reapEveryMs = 500;
const answerTimeoutMs = 1_000;

export interface MembershipOptions {
  /** A dedicated connection, so that heartbeats never wait. */
  readonly session: Session;
  readonly newId: () => Uint8Array;
  /** Called when it has expired while out of contact: it continues under another id, and owns nothing. */
  readonly onExpired: (id: Uint8Array) => void;
  /** Called after each answered heartbeat with the database's time, for a query sent at `askedMs` (`performance.now()`). */
  readonly onHeartbeat: (databaseMs: number, askedMs: number) => void;
}

interface HeartbeatRow {
  readonly heartbeat_at: bigint;
}

/** This process's membership among the replicas on the database: sends heartbeats, and reclaims what expired replicas have left. */
export class Membership {
  readonly #options: MembershipOptions;
  #id: Uint8Array;
  #timer: NodeJS.Timeout | undefined;
  #heartbeating: Promise<void> = Promise.resolve();
  #heardMs = 0;
  /** When the last answered heartbeat was sent. */
  #heartbeatMs = 0;
  /** Since when heartbeats have been answered without a gap. */
  #steadySinceMs = 0;
  #reapedMs = 0;
  #closed = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#id = options.newId();
  }

  /** Generated anew for each epoch, at the start and after it has expired: the fencing token of all leases. */
  get id(): Uint8Array {
    return this.#id;
  }

  /** Until then this replica cannot expire, even if it fails; by `performance.now()`. */
  get safeUntilMs(): number {
    return this.#heartbeatMs + expiredAfterMs - safetyMs;
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
      this.#heartbeating = this.#heartbeat()
        .catch(() => {}) // the next heartbeat tries again, on another connection
        .finally(() => this.#schedule());
    }, heartbeatEveryMs);
    this.#timer.unref();
  }

  async #heartbeat(): Promise<void> {
    const { session, newId, onExpired, onHeartbeat } = this.#options;
    let askedMs = performance.now();
    const { rows } = await session.query<HeartbeatRow>(heartbeat, [this.#id], answerTimeoutMs);
    const nowMs = performance.now();
    if (rows[0] === undefined) {
      const id = newId();
      askedMs = performance.now();
      await this.#register(id, answerTimeoutMs);
      this.#id = id;
      onExpired(id);
    } else {
      onHeartbeat(Number(rows[0].heartbeat_at), askedMs);
    }
    if (nowMs - this.#heardMs > expiredAfterMs / 2) this.#steadySinceMs = nowMs;
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
    onHeartbeat(Number(rows[0]!.heartbeat_at), askedMs);
  }

  /**
   * Expires other replicas and reclaims what they had. After a database outage all heartbeats are old, so a replica expires others only
   * once it has itself been in contact for that long.
   */
  async #reap(nowMs: number): Promise<void> {
    const { session } = this.#options;
    if (nowMs - this.#steadySinceMs >= expiredAfterMs)
      await session.query(deleteExpired, [expiredAfterMs], answerTimeoutMs);
    await session.query(returnLeases, [], answerTimeoutMs);
    await session.query(returnShares, [], answerTimeoutMs);
    await session.query(recordCrashes, [], answerTimeoutMs);
  }

  /** Leaves and returns everything immediately. Without an answer, the others reclaim it when the heartbeat is old. */
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
      // No database: the replica that finds the old heartbeat does it.
    }
    await session.close();
  }
}

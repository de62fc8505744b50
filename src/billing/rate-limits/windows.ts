import { crc32 } from 'node:zlib';

import type { LimitName } from '../../store/limit-leases.ts';
import type { WindowCount, WindowStore } from '../../store/repositories/limit-windows.ts';
import { nameOf } from './counts.ts';

export interface WindowsOptions {
  readonly store: WindowStore;
  /** Monotonic milliseconds since 1970. */
  readonly now: () => number;
  /** Called when counts could not be written, and again when they could; meanwhile they are kept in memory. */
  readonly kept?: (isKept: boolean) => void;
}

/** If the process is killed, at most this much time of counting is lost. */
const writeAfterMs = 500;
const writtenAtOnceMax = 500;
const sweepEveryMs = 60_000;

interface Count {
  readonly subject: string;
  readonly kind: WindowCount['kind'];
  readonly lengthMs: number;
  startsAt: number;
  used: number;
  /** The part of `used` that the store does not have yet. */
  unwritten: number;
}

/**
 * Usage in fixed windows (money.md, "Limits across replicas"). A subject's windows begin at times derived from its id, so they are the same
 * after a restart and on every replica, and do not all begin together. Counting is immediate, in memory; the store follows in batches. For
 * one process that counts alone; several on one database use `LeasedLimits`.
 */
export class Windows {
  readonly #options: WindowsOptions;
  readonly #counts = new Map<string, Count>();
  /** Counts that have unwritten changes. */
  readonly #changed = new Set<Count>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;
  #sweptMs = 0;
  #isKept = true;

  constructor(options: WindowsOptions) {
    this.#options = options;
  }

  /** Counts in memory: at most one per subject that was busy in the last window and minute. */
  get size(): number {
    return this.#counts.size;
  }

  /** Loads what an earlier process counted in windows that are not over. */
  async load(): Promise<void> {
    const at = this.#options.now();
    for (let after: WindowCount | undefined; ;) {
      const page = await this.#options.store.load({ at, ...(after === undefined ? {} : { after }) });
      for (const { subject, kind, lengthMs, startsAt, used } of page) {
        const rule = { subject, kind, lengthMs };
        if (startsAt !== windowStart(subject, lengthMs, at)) continue;
        this.#counts.set(nameOf(rule), { ...rule, startsAt, used, unwritten: 0 });
      }
      after = page.at(-1);
      if (after === undefined) return;
    }
  }

  /** The usage in the current window. */
  used(rule: LimitName): number {
    const count = this.#counts.get(nameOf(rule));
    return count?.startsAt === this.startOf(rule) ? count.used : 0;
  }

  /** When the current window began. */
  startOf({ subject, lengthMs }: LimitName): number {
    return windowStart(subject, lengthMs, this.#options.now());
  }

  /** Milliseconds until the next window begins, more than 0. */
  restMs(rule: LimitName): number {
    return this.startOf(rule) + rule.lengthMs - this.#options.now();
  }

  /** Counts in the current window, and returns when it began. */
  add(rule: LimitName, amount: number): number {
    if (rule.kind === 'running') throw new Error('what runs has no window');
    const startsAt = this.startOf(rule);
    const name = nameOf(rule);
    let count = this.#counts.get(name);
    if (count === undefined) {
      const { subject, kind, lengthMs } = rule;
      count = { subject, kind, lengthMs, startsAt, used: 0, unwritten: 0 };
      this.#counts.set(name, count);
    } else if (count.startsAt !== startsAt) {
      count.startsAt = startsAt;
      count.used = 0;
      count.unwritten = 0;
    }
    // Only what was counted here before can be taken back.
    const change = Math.max(amount, -count.used);
    count.used += change;
    count.unwritten += change;
    this.#changed.add(count);
    this.#timer ??= setTimeout(() => void this.write(), writeAfterMs).unref();
    return startsAt;
  }

  /** Makes the counts so far durable. Never rejects: failed writes are retried with the next counts. */
  async write(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    this.#writing = this.#write().finally(() => (this.#writing = undefined));
    await this.#writing;
  }

  async #write(): Promise<void> {
    this.#sweep();
    while (this.#changed.size > 0) {
      const counts = [...this.#changed].slice(0, writtenAtOnceMax);
      const changes = counts.map((count) => {
        this.#changed.delete(count);
        const { subject, kind, lengthMs, startsAt, unwritten } = count;
        count.unwritten = 0;
        return { subject, kind, lengthMs, startsAt, used: unwritten };
      });
      try {
        await this.#options.store.add(changes);
        if (!this.#isKept) this.#options.kept?.(true);
        this.#isKept = true;
      } catch {
        for (const [index, count] of counts.entries()) this.#unwrite(count, changes[index]!);
        if (this.#isKept) this.#options.kept?.(false);
        this.#isKept = false;
        this.#timer ??= setTimeout(() => void this.write(), 2 * writeAfterMs).unref();
        return;
      }
    }
  }

  #unwrite(count: Count, change: WindowCount): void {
    if (count.startsAt !== change.startsAt) return;
    count.unwritten += change.used;
    this.#changed.add(count);
  }

  #sweep(): void {
    const now = this.#options.now();
    if (now - this.#sweptMs < sweepEveryMs) return;
    this.#sweptMs = now;
    for (const [name, count] of this.#counts) {
      if (now < count.startsAt + count.lengthMs) continue;
      this.#counts.delete(name);
      this.#changed.delete(count);
    }
  }
}

/** Gives the same result in each process and after each restart. */
export function windowStart(subject: string, lengthMs: number, nowMs: number): number {
  const offset = crc32(subject) % lengthMs;
  return Math.floor((nowMs - offset) / lengthMs) * lengthMs + offset;
}

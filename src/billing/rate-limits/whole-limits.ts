import type { LimitName } from '../../store/limit-leases.ts';
import type { Claim, LimitCounts, LimitRule, Taken, Taking } from './counts.ts';
import type { Windows } from './windows.ts';

/** Counts every limit in the only process that has requests, in memory; the windows' counts outlive the process. */
export class WholeLimits implements LimitCounts {
  readonly #windows: Windows;
  /** Running requests by subject. */
  readonly #running = new Map<string, number>();

  constructor(windows: Windows) {
    this.#windows = windows;
  }

  take<Of extends Claim>(claims: readonly Of[]): Taking<Of> {
    const lacking = claims.filter(({ rule, amount }) => this.used(rule) + amount > rule.limit);
    if (lacking.length > 0) return { lacking };
    const taken = claims.map(({ rule, amount }) => ({ rule, amount, startsAt: this.add(rule, amount), epoch: 0 }));
    return { taken };
  }

  end({ rule, amount, startsAt }: Taken, change: number): void {
    if (rule.kind === 'running') this.add(rule, -amount);
    else if (change > 0 || (change < 0 && startsAt === this.startOf(rule))) this.add(rule, change);
  }

  used(rule: LimitName): number {
    return rule.kind === 'running' ? (this.#running.get(rule.subject) ?? 0) : this.#windows.used(rule);
  }

  restMs(rule: LimitRule): number {
    return this.#windows.restMs(rule);
  }

  /** Counts a change, and returns when the current window began. */
  protected add(rule: LimitName, change: number): number {
    if (rule.kind !== 'running') return this.#windows.add(rule, change);
    const now = this.used(rule) + change;
    if (now > 0) this.#running.set(rule.subject, now);
    else this.#running.delete(rule.subject);
    return 0;
  }

  protected startOf(rule: LimitName): number {
    return rule.kind === 'running' ? 0 : this.#windows.startOf(rule);
  }
}

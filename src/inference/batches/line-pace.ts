import type { ApiError } from '../../platform/errors.ts';
import type { LineEnding } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import type { LineOutcome } from './line.ts';

/** How often a line is tried whose model or backend fails. */
const triesMax = 3;
const retryMs = 1_000;
/** How long an account waits after a line found no credit. */
const noCreditMs = 5_000;
/** The same while its other requests hold credit. */
const heldCreditMs = 1_000;

type Ending<Of = LineEnding> = Of extends LineEnding ? Omit<Of, 'batchId' | 'line' | 'owner'> : never;

/** What a line that found too little credit has to know of all processes. */
export interface CreditUse {
  /** Other requests of the account run, so what they hold may come back. */
  readonly isHeld: boolean;
  /** A line of its batch has said already that there is no credit. */
  readonly isReported: boolean;
}

/** Decides which batches may begin lines now, and what becomes of a line that failed. */
export class LinePace {
  readonly #now: () => number;
  /** When a batch, or any batch of an account, may begin its next line. */
  readonly #restUntil = new Map<string, number>();
  /** How many lines of an account may run here, after one of them found too little credit beside the others; absent: any number. */
  readonly #allowances = new Map<string, number>();
  #turns = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Drops what is known of accounts without an open batch, and waits that are over. */
  forget(accounts: ReadonlySet<string>): void {
    const now = this.#now();
    for (const [id, until] of this.#restUntil) if (now >= until) this.#restUntil.delete(id);
    for (const id of this.#allowances.keys()) if (!accounts.has(id)) this.#allowances.delete(id);
  }

  /** Whether it has been told to wait. */
  rests({ id, accountId }: Pick<BatchRow, 'id' | 'accountId'>): boolean {
    return this.#now() < Math.max(this.#restUntil.get(id) ?? 0, this.#restUntil.get(accountId) ?? 0);
  }

  /** Lets a batch, or all batches of an account, wait. */
  rest(id: string, ms: number): void {
    this.#restUntil.set(id, Math.max(this.#restUntil.get(id) ?? 0, this.#now() + ms));
  }

  /** One batch of each account, then the second ones, and so on; another account is first each time. */
  inTurn(batches: readonly BatchRow[]): readonly BatchRow[] {
    const now = this.#now();
    const byAccount = new Map<string, BatchRow[]>();
    for (const batch of batches) {
      if (now >= batch.expiresAt || this.rests(batch)) continue;
      byAccount.set(batch.accountId, [...(byAccount.get(batch.accountId) ?? []), batch]);
    }
    const accounts = [...byAccount.values()];
    if (accounts.length === 0) return [];
    const first = this.#turns++ % accounts.length;
    const turned = [...accounts.slice(first), ...accounts.slice(0, first)];
    const longest = Math.max(...turned.map(({ length }) => length));
    return Array.from({ length: longest }, (_, place) => turned.flatMap((own) => own.slice(place, place + 1))).flat();
  }

  /** How many lines a batch may begin. `running`: lines of its account that run. */
  linesMax({ accountId }: BatchRow, running: number): number {
    return Math.max(0, (this.#allowances.get(accountId) ?? Infinity) - running);
  }

  /** `running`: lines of the account that run here, this one included. `credit`: known for a line that found too little. */
  endingOf(outcome: LineOutcome, batch: BatchRow, tries: number, running: number, credit?: CreditUse): Ending {
    const allowance = this.#allowances.get(batch.accountId);
    if (outcome.kind === 'answered') {
      if (allowance !== undefined) this.#allowances.set(batch.accountId, allowance + 1);
      return { state: 'completed' };
    }
    const { error, result, isStopped } = outcome;
    const again = (ms: number, failures = tries): Ending => ({
      state: 'waiting',
      tries: failures,
      notBefore: this.#now() + ms,
    });
    // A batch that is over prints it as cancelled or expired.
    if (isStopped) return again(0);
    if (credit !== undefined) {
      this.#allowances.set(batch.accountId, Math.max(1, Math.floor(Math.min(allowance ?? Infinity, running) / 2)));
      // What others hold comes back in part: only a line that ran alone has found no credit. Replicas must not all try at the same moments.
      this.rest(batch.accountId, (credit.isHeld ? heldCreditMs : noCreditMs) * (0.5 + Math.random()));
      // One line says so; the others wait for credit.
      return credit.isHeld || credit.isReported ? again(0) : { state: 'errored', result };
    }
    if (isPassing(error)) {
      const ms = (error.retryAfterSeconds ?? 1) * 1_000;
      if (error.code !== 'backend_at_capacity') this.rest(batch.id, ms);
      return again(ms);
    }
    if (error.status < 500 || tries + 1 >= triesMax) return { state: 'errored', result };
    return again(retryMs * 2 ** tries, tries + 1);
  }
}

/** Nothing is wrong with the line, and nothing was tried: it waits as long as its batch has time. */
const isPassing = ({ status, type, code, retryAfterSeconds }: ApiError): boolean =>
  status === 429 || type === 'routing_error' || (code === 'internal_error' && retryAfterSeconds !== undefined);

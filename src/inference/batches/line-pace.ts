import type { ApiError } from '../../platform/errors.ts';
import type { LineEnding } from '../../store/repositories/batch-lines.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';
import type { LineOutcome } from './line.ts';

/** How often a line is tried whose model or backend fails. */
const triesMax = 3;
const retryMs = 1_000;
/** How long a batch waits after a line found no credit. */
const noCreditMs = 5_000;
/** The same while other lines of the account hold credit. Each try counts towards the account's requests a minute. */
const heldCreditMs = 1_000;

type Ending<Of = LineEnding> = Of extends LineEnding ? Omit<Of, 'batchId' | 'line' | 'owner'> : never;

/** Decides which batches may begin lines now, and what becomes of a line that failed. */
export class LinePace {
  readonly #now: () => number;
  /** When a batch may begin its next line. */
  readonly #restUntil = new Map<string, number>();
  /** How many lines of an account may run, after one of them found too little credit beside the others; absent: any number. */
  readonly #allowances = new Map<string, number>();
  /** Accounts of which a line has ended without credit since one was charged. */
  readonly #broke = new Set<string>();
  #turns = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Drops what is known of batches that are over. */
  forget(open: ReadonlySet<string>): void {
    for (const id of this.#restUntil.keys()) if (!open.has(id)) this.#restUntil.delete(id);
    if (open.size > 0) return;
    this.#broke.clear();
    this.#allowances.clear();
  }

  /** Whether it has been told to wait. */
  rests({ id }: Pick<BatchRow, 'id'>): boolean {
    return this.#now() < (this.#restUntil.get(id) ?? 0);
  }

  rest({ id }: Pick<BatchRow, 'id'>, ms: number): void {
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

  /** `running`: lines of the account that run here, this one included. */
  endingOf(outcome: LineOutcome, batch: BatchRow, tries: number, running: number): Ending {
    const allowance = this.#allowances.get(batch.accountId);
    if (outcome.kind === 'answered') {
      this.#broke.delete(batch.accountId);
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
    if (error.status === 402) {
      // What other lines hold comes back in part: only one that ran alone has found no credit.
      if (running > 1) {
        this.#allowances.set(batch.accountId, Math.max(1, Math.floor(Math.min(allowance ?? Infinity, running) / 2)));
        this.rest(batch, heldCreditMs);
        return again(heldCreditMs);
      }
      this.#allowances.set(batch.accountId, 1);
      this.rest(batch, noCreditMs);
      // One line says so; the others wait for credit.
      if (this.#broke.has(batch.accountId)) return again(0);
      this.#broke.add(batch.accountId);
      return { state: 'errored', result };
    }
    if (isPassing(error)) {
      const ms = (error.retryAfterSeconds ?? 1) * 1_000;
      if (error.code !== 'backend_at_capacity') this.rest(batch, ms);
      return again(ms);
    }
    if (error.status < 500 || tries + 1 >= triesMax) return { state: 'errored', result };
    return again(retryMs * 2 ** tries, tries + 1);
  }
}

/** Nothing is wrong with the line, and nothing was tried: it waits as long as its batch has time. */
const isPassing = ({ status, type, code, retryAfterSeconds }: ApiError): boolean =>
  status === 429 || type === 'routing_error' || (code === 'internal_error' && retryAfterSeconds !== undefined);

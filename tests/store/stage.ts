/** How stories (stories.ts) are played: each step is asked until it is answered, with the same ids, as its caller does. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AccountLedger, Transfer, UsageRow } from '../../src/store/ledger.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { StoreError, type StoreErrorCode } from '../../src/store/store-error.ts';
import { usage, type MemoryBalances } from './fixture.ts';

export interface StoryStore {
  readonly ledger: AccountLedger;
  readonly repositories: Repositories;
}

export type Step = (stage: Stage) => Promise<unknown>;

export interface Story {
  readonly name: string;
  /** Is about the whole database: it needs one of its own. */
  readonly isAlone?: boolean;
  /** Is about what a process has begun: the next one ends it in another way. */
  readonly isOfProcess?: boolean;
  /** What was there before, which nothing interrupts. */
  readonly before: readonly Step[];
  readonly steps: readonly Step[];
}

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;
/** Noon of a day that is over. */
export const at = Math.floor(Date.now() / dayMs) * dayMs - dayMs / 2;

/** One run of a story: what it makes has the tag in its ids, so that its rows can be told from those of other runs. */
export class Stage {
  readonly store: StoryStore;
  readonly free: MemoryBalances;
  /** Six hex digits. */
  readonly tag: string;
  /** Whether the step has been asked before, and it is not known what came of that. */
  isAgain = false;
  readonly #held = new Map<string, bigint>();
  readonly #settled = new Set<string>();

  /** Whether the process that plays has died. */
  readonly isOver: () => boolean;

  /** Before a step is asked again. */
  readonly pause: (tries: number) => Promise<unknown>;

  constructor(
    store: StoryStore,
    free: MemoryBalances,
    tag: string,
    { isOver = (): boolean => false, pause = (tries: number): Promise<unknown> => sleep(tries) } = {},
  ) {
    this.store = store;
    this.free = free;
    this.tag = tag;
    this.isOver = isOver;
    this.pause = pause;
  }

  get account(): string {
    return this.name('acct');
  }

  name(kind: string): string {
    return `${kind}_${this.tag}`;
  }

  /** 32 hex digits, as of files and batches. */
  hex(number: number): string {
    return `${this.tag}${String(number).padStart(26, '0')}`;
  }

  /** A UUIDv7 of that time. */
  id(number: number, ms = at): Uint8Array {
    const time = ms.toString(16).padStart(12, '0');
    return Uint8Array.from(Buffer.from(`${time}70008000${this.tag}${String(number).padStart(6, '0')}`, 'hex'));
  }

  /** 32 bytes. */
  hash(number: number): Uint8Array {
    return Uint8Array.from(Buffer.from(this.hex(number).repeat(2), 'hex'));
  }

  /** As billing does: from memory, else of the store. */
  async hold(microcents: bigint, balances: readonly string[] = [this.account]): Promise<void> {
    for (const balanceId of balances) {
      if (!this.free.reserve(balanceId, microcents))
        assert.equal(
          await this.store.ledger.leases.lease(balanceId, microcents),
          microcents,
          `${balanceId} has credit`,
        );
      this.#held.set(balanceId, this.heldOf(balanceId) + microcents);
    }
  }

  heldOf(balanceId: string): bigint {
    return this.#held.get(balanceId) ?? 0n;
  }

  usage(number: number, costMicrocents: bigint, changes: Partial<UsageRow> = {}): UsageRow {
    const named = { requestId: this.id(number), publicId: this.name('req'), keyId: this.name('key') };
    return usage(this.account, costMicrocents, { ...named, startedAt: at, endedAt: at, ...changes });
  }

  /** Settles, and frees what was held beyond the cost. */
  async settle(row: UsageRow, balances: readonly string[] = [row.accountId]): Promise<void> {
    assert.equal(await this.store.ledger.settle(row), 'billed');
    const id = Buffer.from(row.requestId).toString('hex');
    if (this.#settled.has(id)) return;
    this.#settled.add(id);
    for (const balanceId of balances) {
      if (this.heldOf(balanceId) < row.holdMicrocents) continue; // held by a process that is gone
      this.free.credit(balanceId, row.holdMicrocents - row.costMicrocents);
      this.#held.set(balanceId, this.heldOf(balanceId) - row.holdMicrocents);
    }
  }

  transfer(number: number, amountMicrocents: bigint, changes: Partial<Transfer> = {}): Transfer {
    const sides = { debitAccount: systemAccounts.promo, creditAccount: this.account };
    const ids = { id: this.id(number), idempotencyKey: `${this.name('transfer')}:${number}`, reference: null };
    return { ...ids, ...sides, amountMicrocents, kind: 'grant', by: 'test', at, ...changes };
  }
}

/** What a caller of the store may be told while it fails, and asks again after. */
const passing: readonly StoreErrorCode[] = ['busy', 'full', 'failed'];
const triesMax = 12;

/** Asks a step until it is answered. */
export async function ask(step: Step, stage: Stage, { isAgain = false } = {}): Promise<void> {
  stage.isAgain = isAgain;
  for (let tries = 1; ; tries++) {
    try {
      await step(stage);
      return;
    } catch (error) {
      const isPassing = error instanceof StoreError && passing.includes(error.code);
      if (!isPassing || tries === triesMax || stage.isOver()) throw error;
      stage.isAgain = true;
      await stage.pause(tries);
    }
  }
}

export async function play(story: Story, stage: Stage): Promise<void> {
  for (const step of story.steps) await ask(step, stage);
}

/** What a call without an answer has made is in the way of the same call: so it was made. */
export const once =
  (step: Step): Step =>
  async (stage) => {
    try {
      return await step(stage);
    } catch (error) {
      if (!stage.isAgain || !(error instanceof StoreError) || error.code !== 'conflict') throw error;
      return undefined;
    }
  };

/** Of each call: what it records is of the call. */
export const changeId = (): Uint8Array => crypto.getRandomValues(new Uint8Array(16));

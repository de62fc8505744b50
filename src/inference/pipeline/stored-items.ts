import { setImmediate as nextTurn } from 'node:timers/promises';

import type { AnswerFormat, ResponseHead } from '../dialects/dialect.ts';
import type { TakeBatch } from '../../generation/event.ts';
import { ApiError } from '../../platform/errors.ts';
import { Fold } from '../../generation/fold.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { KeptItem } from '../../store/repositories/stored-items.ts';
import { StoreError } from '../../store/store-error.ts';
import type { Order } from './order.ts';

const dayMs = 86_400_000;
/** Larger items are not kept: an answer of 65,536 tokens takes a quarter of this. */
const itemBytesMax = 1_048_576;
/** Bytes of the items that one request may reference; more than a window of a million tokens. They are parsed on the main thread. */
const foundBytesMax = 8_388_608;
/** Bytes parsed without yielding to others. */
const parsedAtOnce = 524_288;
/** Bytes kept per account; the oldest items are evicted. */
export const accountBytesMax = 268_435_456;
/** Rows that one round of tidying deletes. */
const tidiedRowsMax = 10_000;
/** Bytes of items that may wait for the database; further items are not kept. */
const waitingBytesMax = 33_554_432;
/** Items in one write to the database. */
const writtenAtOnce = 256;
/** How long an answer waits for its items to be kept. */
const keepTimeoutMs = 2_000;

export interface KeptItemsOptions {
  readonly repositories: Pick<Repositories, 'keepItems' | 'findKeptItems' | 'tidyKeptItems'>;
  /** 0: nothing is kept, and kept items are deleted. A reload changes it. */
  keepDays: number;
  readonly now: () => number;
  /** Reports items of an answer that could not be kept, or old ones not deleted. */
  readonly failed: (what: 'keep' | 'tidy', code: string) => void;
}

interface Waiting {
  readonly items: readonly KeptItem[];
  readonly bytes: number;
  readonly done: () => void;
}

/**
 * The output of answers, for later requests of the same account that reference it by id (contracts decision 2).
 *
 * A failure to keep items never fails an answer: it is complete and charged by then. A client that references a missing item gets a clear
 * error, and can send the item instead.
 */
export class KeptItems {
  readonly #options: KeptItemsOptions;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #isWriting = false;
  /** Accounts that may have exceeded their bytes since the last tidying. */
  #grown = new Set<string>();

  constructor(options: KeptItemsOptions) {
    this.#options = options;
  }

  get isOn(): boolean {
    return this.#options.keepDays > 0;
  }

  set keepDays(days: number) {
    this.#options.keepDays = days;
  }

  /** Returns the kept items with these ids, parsed. Throws if they are too large for one request. */
  async find(accountId: string, ids: readonly string[]): Promise<ReadonlyMap<string, unknown>> {
    const found = new Map<string, unknown>();
    if (!this.isOn) return found;
    const rows = await this.#options.repositories.findKeptItems({
      accountId,
      ids,
      keptAfter: this.#keptAfter(),
      bytesMax: foundBytesMax,
    });
    if (rows === 'too-large') {
      throw new ApiError(
        'request_body_too_large',
        `The items that the request refers to have more than ${foundBytesMax} bytes together.`,
      );
    }
    let parsed = 0;
    for (const [id, body] of rows) {
      found.set(id, JSON.parse(body));
      parsed += body.length;
      if (parsed < parsedAtOnce) continue;
      parsed = 0;
      await nextTurn();
    }
    return found;
  }

  /** Resolves when they are durable, or when that takes too long or fails, which only `failed` reports. */
  async keep(accountId: string, items: ReadonlyMap<string, unknown>): Promise<void> {
    const keptAt = this.#options.now();
    const rows: KeptItem[] = [];
    let bytes = 0;
    for (const [id, item] of items) {
      const body = JSON.stringify(item);
      const size = Buffer.byteLength(body);
      if (size > itemBytesMax) {
        this.#options.failed('keep', 'too_large');
        continue;
      }
      rows.push({ accountId, id, keptAt, body });
      bytes += size;
    }
    if (rows.length === 0) return;
    if (this.#waitingBytes + bytes > waitingBytesMax) {
      this.#options.failed('keep', 'busy');
      return;
    }
    this.#grown.add(accountId);
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        // The write continues in the background.
        this.#options.failed('keep', 'slow');
        resolve();
      }, keepTimeoutMs);
      this.#waitingBytes += bytes;
      this.#waiting.push({ items: rows, bytes, done: resolve });
      void this.#write();
    });
    clearTimeout(timer);
  }

  /** Deletes items that are too old or exceed the bounds. Rounds do not overlap if the caller awaits them. */
  async tidy(): Promise<void> {
    const accountIds = [...this.#grown];
    this.#grown = new Set();
    try {
      const keptBefore = this.isOn ? this.#keptAfter() : this.#options.now();
      await this.#options.repositories.tidyKeptItems({
        keptBefore,
        accountIds,
        accountBytesMax,
        rowsMax: tidiedRowsMax,
      });
    } catch (error) {
      for (const accountId of accountIds) this.#grown.add(accountId);
      this.#options.failed('tidy', codeOf(error));
    }
  }

  #keptAfter(): number {
    return this.#options.now() - this.#options.keepDays * dayMs;
  }

  /** One write at a time: items that arrive meanwhile share the next one, because each write costs a disk sync. */
  async #write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      while (this.#waiting.length > 0) {
        const group = this.#waiting.splice(0, writtenAtOnce);
        try {
          await this.#options.repositories.keepItems({ items: group.flatMap(({ items }) => items) });
        } catch (error) {
          this.#options.failed('keep', codeOf(error));
        }
        for (const { bytes, done } of group) {
          this.#waitingBytes -= bytes;
          done();
        }
      }
    } finally {
      this.#isWriting = false;
    }
  }
}

const codeOf = (error: unknown): string => (error instanceof StoreError ? error.code : 'unexpected');

/**
 * Stores the items of an answer between its settlement and its last batch, so that no client sees the end before they are stored. Nothing
 * is stored under zero data retention, whatever the request says.
 */
export function keepingItems(
  order: Pick<Order, 'account' | 'request'> & { readonly format: Pick<AnswerFormat, 'itemsOf'> },
  head: ResponseHead,
  items: KeptItems,
  deliver: TakeBatch,
): TakeBatch {
  const { itemsOf } = order.format;
  if (itemsOf === undefined || !order.request.retain || !items.isOn) return deliver;
  const fold = new Fold();
  return (batch) => {
    fold.read(batch);
    // The usage comes with the last batch, which `run` delivers once the charge is durable.
    if (batch.at(-1)?.type !== 'usage') return deliver(batch);
    return items.keep(order.account.id, itemsOf(fold.generation(), head)).then(() => deliver(batch));
  };
}

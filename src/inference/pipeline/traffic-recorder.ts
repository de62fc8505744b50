import type { Receipt } from '../../billing/hold.ts';
import type { Tier } from '../../generation/tier.ts';
import { blocksOf, hashOf } from '../routing/prompt-prefixes.ts';
import type { Order } from './order.ts';

/** What is recorded, until when. */
export interface TrafficRecording {
  /** In milliseconds since 1970. */
  readonly untilMs: number;
  /** Absent: of all models. */
  readonly model?: string | undefined;
  /** Part of every hash; the same in all processes that record together. */
  readonly salt: number;
}

/** A request without its content, its key, its account or its id. */
export interface RecordedRequest {
  readonly atMs: number;
  readonly model: string;
  /** A salted hash of its account. */
  readonly account: number;
  readonly tier: Tier;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Characters of the prompt; 0 under zero data retention. */
  readonly characters: number;
  /** Salted hashes of the prompt up to the end of each of its blocks, each of 32 bits in base64. */
  readonly blocks: string;
}

/** A part of what one process has recorded. */
export interface RecordedPage {
  readonly requests: readonly RecordedRequest[];
  /** The first request of the next part; null: there is none. */
  readonly next: number | null;
  /** Whether requests are missing because there was no room for them. */
  readonly isFull: boolean;
}

/** 27 MB of requests, and 32 MB of blocks: 5,000 prompts of 100,000 tokens, or 125,000 of 4,000. */
const recordedRequestsMax = 200_000;
const recordedBlocksMax = 8_000_000;
/** Time from the end of a recording until it is forgotten. */
const keptMs = 24 * 3_600_000;
const pageRequestsMax = 5_000;
const pageBlocksMax = 100_000;

interface Row extends Omit<RecordedRequest, 'blocks'> {
  /** Where its blocks end; they begin where those of the row before end. */
  readonly blocksEnd: number;
}

interface Recorded extends TrafficRecording {
  readonly rows: Row[];
  readonly blocks: Int32Array;
  readonly forget: NodeJS.Timeout;
  isFull: boolean;
}

/**
 * Keeps what a simulation of the traffic needs, in memory, while an operator has it recorded: times, lengths, and salted hashes that say
 * which prompts begin alike. A prompt under zero data retention has no hashes. Off, it does nothing.
 */
export class TrafficRecorder {
  #recorded: Recorded | undefined;

  /** Forgets what was recorded before, and begins. */
  record(recording: TrafficRecording): void {
    this.forget();
    const keptForMs = Math.max(0, recording.untilMs - Date.now()) + keptMs;
    const forget = setTimeout(() => this.forget(), keptForMs);
    forget.unref();
    this.#recorded = { ...recording, rows: [], blocks: new Int32Array(recordedBlocksMax), forget, isFull: false };
  }

  forget(): void {
    clearTimeout(this.#recorded?.forget);
    this.#recorded = undefined;
  }

  /** A request has ended. Called when its client has its answer. */
  ended(order: Order, receipt: Receipt): void {
    if (this.#recorded !== undefined) add(this.#recorded, order, receipt);
  }

  /** A part of what was recorded, from this request on; `undefined`: nothing is recorded. */
  page(from: number): RecordedPage | undefined {
    if (this.#recorded === undefined) return undefined;
    const { rows, blocks, isFull } = this.#recorded;
    const requests: RecordedRequest[] = [];
    const blocksFrom = endOf(rows, from);
    let next = from;
    for (; next < rows.length && requests.length < pageRequestsMax; next++) {
      const { blocksEnd, ...row } = rows[next]!;
      if (requests.length > 0 && blocksEnd - blocksFrom > pageBlocksMax) break;
      const own = blocks.subarray(endOf(rows, next), blocksEnd);
      const bytes = Buffer.from(own.buffer, own.byteOffset, own.byteLength);
      requests.push({ ...row, blocks: bytes.toString('base64') });
    }
    return { requests, next: next < rows.length ? next : null, isFull };
  }
}

const endOf = (rows: readonly Row[], index: number): number => rows[index - 1]?.blocksEnd ?? 0;

function add(recorded: Recorded, order: Order, receipt: Receipt): void {
  const { rows, blocks, salt, model, untilMs } = recorded;
  const { startedAt, promptTokens, cachedTokens, completionTokens } = receipt;
  // One that no server has read is no work for any.
  if (recorded.isFull || startedAt >= untilMs || promptTokens === 0) return;
  if (model !== undefined && model !== order.model.id) return;
  const { hashes, characters } = blocksOf(order.request, salt);
  const from = endOf(rows, rows.length);
  if (rows.length >= recordedRequestsMax || from + hashes.length > blocks.length) {
    // What comes later is left out, so that no time lacks only its long prompts.
    recorded.isFull = true;
    return;
  }
  blocks.set(hashes, from);
  rows.push({
    atMs: startedAt,
    model: order.model.id,
    account: hashOf(order.account.id, salt),
    tier: order.tier,
    promptTokens,
    cachedTokens,
    completionTokens,
    characters,
    blocksEnd: from + hashes.length,
  });
}

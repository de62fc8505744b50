import { IdleSlots } from '../../src/inference/pipeline/idle-slots.ts';
import { mulberry32 } from '../../tests/support/random.ts';
import { EventQueue } from './event-queue.ts';
import { answerTokenMs, promptTokensPerMs, slotsPerServer, type Queued } from './queue-orders.ts';
import { queueOrders } from './queue-orders.ts';
import type { TracedRequest } from './trace.ts';

/** From the moment a line is told to stop until its slot is free: a server looks for aborted requests between two steps. */
const releaseMs = 50;
/** Between a slot that became free and the lines that the runner claims for it. */
const claimMs = 5;
/** Between two waves. */
const waveMs = 30_000;

interface Figures {
  readonly firstTokens: readonly number[];
  /** Slot time in milliseconds. */
  readonly idle: number;
  readonly sold: number;
  readonly thrownAway: number;
}

/** How batches get slots: as the service gives them, or as requests of the last class that wait like all others. */
type Seller = 'nobody' | 'idle slots' | keyof typeof queueOrders;

/**
 * Plays a trace as the only traffic, and beside batches without an end in each order. A line is a request of the trace, drawn at random. Under
 * the orders that know nothing of idle slots, a client keeps as many lines open as there are slots.
 */
export function compareBatches(trace: readonly TracedRequest[], servers: number): string {
  const sellers: readonly Seller[] = [
    'nobody',
    'idle slots',
    'tiers, promoted when starved',
    'first come, first served',
  ];
  const rows = sellers.map((seller) => {
    const { firstTokens, idle, sold, thrownAway } = new Play(trace, servers, seller).run();
    const sorted = firstTokens.toSorted((a, b) => a - b);
    const at = (part: number): string => `${(sorted[Math.floor(sorted.length * part)]! / 1_000).toFixed(3)} s`;
    const percent = (part: number): string => `${(100 * part).toFixed(1)} %`;
    const cells = [seller, at(0.5), at(0.99), ...[sold + thrownAway, sold].map((part) => percent(part / idle))];
    return `| ${cells.join(' | ')} |`;
  });
  return [
    '| batches get | first token p50 | p99 | of the idle slots used | by lines that were answered |',
    '|-|-:|-:|-:|-:|',
    ...rows,
  ].join('\n');
}

/** The same requests, of which every fifth comes at the beginning of its half-minute: all of a wave at the same moment. */
export const inWaves = (trace: readonly TracedRequest[]): readonly TracedRequest[] =>
  trace
    .map((request, at) => (at % 5 === 0 ? { ...request, atMs: Math.floor(request.atMs / waveMs) * waveMs } : request))
    .toSorted((a, b) => a.atMs - b.atMs);

class Play {
  readonly #trace: readonly TracedRequest[];
  readonly #slots: number;
  readonly #seller: Seller;
  readonly #events = new EventQueue();
  readonly #random = mulberry32(11);
  readonly #lines = new Set<object>();
  readonly #firstTokens: number[] = [];
  readonly #idle: IdleSlots;
  readonly #endMs: number;
  readonly #order: Queued;
  #nowMs = 0;
  readonly #count = { requests: 0, waiting: 0 };
  readonly #time = { idle: 0, sold: 0, thrownAway: 0, seenMs: 0 };
  #claiming = false;

  constructor(trace: readonly TracedRequest[], servers: number, seller: Seller) {
    this.#trace = trace;
    this.#endMs = trace.at(-1)!.atMs;
    this.#slots = servers * slotsPerServer;
    this.#seller = seller;
    const order = seller === 'nobody' || seller === 'idle slots' ? 'fair, by tiers' : seller;
    this.#order = queueOrders[order]!(() => this.#nowMs);
    this.#idle = new IdleSlots(
      () => ({
        slots: this.#slots,
        running: this.#count.requests + this.#lines.size,
        waiting: this.#count.waiting,
        mayStart: false,
      }),
      () => this.#nowMs,
    );
  }

  run(): Figures {
    for (const request of this.#trace) this.#at(request.atMs, () => this.#arrived(request));
    if (this.#seller === 'idle slots') {
      // As the service does: after a slot was given back, and every second.
      for (let atMs = 0; atMs < this.#endMs; atMs += 1_000) this.#at(atMs, () => this.#claimSoon());
    } else if (this.#seller !== 'nobody') {
      for (let line = 0; line < this.#slots; line++) this.#at(0, () => this.#lineWaits());
    }
    this.#events.run();
    return { firstTokens: this.#firstTokens, ...this.#time };
  }

  readonly #isFree = (): boolean => this.#count.requests + this.#lines.size < this.#slots;

  get #isOver(): boolean {
    return this.#nowMs >= this.#endMs;
  }

  #at(atMs: number, happens: () => unknown): void {
    this.#events.add(atMs, () => {
      // What comes after the last arrival is not counted: there are only lines then.
      const untilMs = Math.min(atMs, this.#endMs);
      const passedMs = Math.max(0, untilMs - this.#time.seenMs);
      this.#time.seenMs += passedMs;
      this.#time.idle += passedMs * (this.#slots - this.#count.requests);
      this.#nowMs = atMs;
      happens();
    });
  }

  #arrived(request: TracedRequest): void {
    const atMs = this.#nowMs;
    this.#idle.arrived(atMs);
    let isStarted = false;
    this.#count.waiting++;
    const start = (): void => {
      isStarted = true;
      this.#count.waiting--;
      this.#count.requests++;
      const firstMs = request.promptTokens / promptTokensPerMs;
      this.#firstTokens.push(this.#nowMs - atMs + firstMs);
      this.#at(this.#nowMs + firstMs + request.answerTokens * answerTokenMs, () => {
        this.#count.requests--;
        this.#slotGivenBack();
      });
    };
    this.#order.ask(
      { request, account: `account_${Math.floor(this.#random() * 200)}`, tier: 'default' },
      this.#isFree,
      start,
    );
    if (!isStarted && this.#seller === 'idle slots') this.#idle.release(() => true);
  }

  #slotGivenBack(): void {
    this.#order.offer();
    if (this.#seller === 'idle slots') this.#claimSoon();
  }

  #claimSoon(): void {
    if (this.#claiming || this.#isOver) return;
    this.#claiming = true;
    this.#at(this.#nowMs + claimMs, () => {
      this.#claiming = false;
      for (let left = this.#idle.free; left > 0; left--) this.#lineStarts(this.#drawn());
    });
  }

  #drawn(): TracedRequest {
    return this.#trace[Math.floor(this.#random() * this.#trace.length)]!;
  }

  #lineWaits(): void {
    const request = this.#drawn();
    this.#order.ask({ request, account: 'batch', tier: 'batch' }, this.#isFree, () => this.#lineStarts(request));
  }

  #lineStarts({ promptTokens, answerTokens }: TracedRequest): void {
    const startedMs = this.#nowMs;
    const line = {};
    let isRunning = true;
    this.#lines.add(line);
    const ended = (as: 'sold' | 'thrownAway'): void => {
      keeps();
      isRunning = false;
      this.#lines.delete(line);
      this.#time[as] += Math.max(0, Math.min(this.#nowMs, this.#endMs) - startedMs);
      this.#slotGivenBack();
      if (this.#seller !== 'idle slots' && !this.#isOver) this.#lineWaits();
    };
    const keeps = this.#idle.sold(this, () =>
      this.#at(this.#nowMs + releaseMs, () => isRunning && ended('thrownAway')),
    );
    this.#at(
      startedMs + promptTokens / promptTokensPerMs + answerTokens * answerTokenMs,
      () => isRunning && ended('sold'),
    );
  }
}

import { withDeadline } from '../deadline.ts';
import type { Collector, Exported } from './collector.ts';
import { exportRequest } from './otlp-common.ts';
import type { Origin } from './otlp-common.ts';
import { writeSpans } from './otlp-spans.ts';
import type { SpanRecord } from './otlp-spans.ts';
import { ProtobufWriter } from './protobuf.ts';
import type { SpanSink } from './request-trace.ts';
import type { TraceContext } from './trace-context.ts';

/** Counts of spans since the start. */
export interface SpanCounts {
  readonly sent: number;
  readonly dropped: number;
}

interface Spans {
  readonly bytes: Buffer;
  readonly count: number;
}

/** Maximum bytes of encoded spans that wait or are being sent; further spans are dropped and counted. */
export const waitingBytesMax = 4 * 1024 * 1024;
const batchBytesMax = 256 * 1024;
/** How long spans wait for others; a full batch does not wait. */
const gatherMs = 1_000;
const triesMax = 5;
const pauses = { firstMs: 1_000, mostMs: 30_000 } as const;

/**
 * Sends spans in batches, one after the other. A collector that is slow, unreachable or faulty costs only spans: no caller waits,
 * the queue is bounded, and `close` ends in time.
 */
export class SpanExporter implements SpanSink {
  readonly #collector: Pick<Collector, 'post'>;
  readonly #origin: Origin;
  readonly #onOutcome: (exported: Exported) => void;
  readonly #waiting: Spans[] = [];
  readonly #writer = new ProtobufWriter();
  #waitingBytes = 0;
  #sent = 0;
  #dropped = 0;
  #state: 'gathering' | 'sending' | 'closing' = 'gathering';
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> = Promise.resolve();
  #pauseMs: number = pauses.firstMs;
  /** Ends the pause before another try. */
  #wake = (): void => {};

  /** `onOutcome` is called after every post. */
  constructor(collector: Pick<Collector, 'post'>, origin: Origin, onOutcome: (exported: Exported) => void) {
    this.#collector = collector;
    this.#origin = origin;
    this.#onOutcome = onOutcome;
  }

  get counts(): SpanCounts {
    return { sent: this.#sent, dropped: this.#dropped };
  }

  take(trace: TraceContext, spans: readonly SpanRecord[]): void {
    this.#writer.reset();
    if (this.#state !== 'closing') writeSpans(this.#writer, trace, spans);
    const { length } = this.#writer;
    if (length === 0 || this.#waitingBytes + length > waitingBytesMax) {
      this.#dropped += spans.length;
      return;
    }
    this.#waiting.push({ bytes: this.#writer.finish(), count: spans.length });
    this.#waitingBytes += length;
    if (this.#state === 'gathering') this.#sendSoon();
  }

  /** Sends what is waiting, within this time, and drops the rest. */
  async close(limitMs: number): Promise<void> {
    const isSending = this.#state === 'sending';
    this.#state = 'closing';
    clearTimeout(this.#timer);
    this.#wake();
    if (!isSending) this.#sending = this.#sendAll();
    await withDeadline(this.#sending, limitMs, () => {});
    for (const { count } of this.#waiting.splice(0)) this.#dropped += count;
  }

  #sendSoon(): void {
    if (this.#waiting.length === 0) return;
    if (this.#waitingBytes >= batchBytesMax) this.#send();
    else this.#timer ??= setTimeout(() => this.#send(), gatherMs).unref();
  }

  #send(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#state = 'sending';
    this.#sending = this.#sendAll().then(() => {
      if (this.#state !== 'sending') return;
      this.#state = 'gathering';
      this.#sendSoon();
    });
  }

  /** Sends everything that waits now, and what arrives meanwhile as long as it fills batches. */
  async #sendAll(): Promise<void> {
    do {
      const batch = this.#waiting.splice(0, this.#batchLength());
      const bytes = batch.reduce((sum, spans) => sum + spans.bytes.length, 0);
      const count = batch.reduce((sum, spans) => sum + spans.count, 0);
      if (count > 0) await this.#deliver(batch, count);
      this.#waitingBytes -= bytes;
    } while (this.#waiting.length > 0 && (this.#state === 'closing' || this.#waitingBytes >= batchBytesMax));
  }

  #batchLength(): number {
    let bytes = 0;
    const beyond = this.#waiting.findIndex((spans) => (bytes += spans.bytes.length) > batchBytesMax);
    return beyond < 0 ? this.#waiting.length : Math.max(1, beyond);
  }

  async #deliver(batch: readonly Spans[], count: number): Promise<void> {
    const body = exportRequest(
      this.#origin,
      batch.map(({ bytes }) => bytes),
    );
    for (let tries = 1; ; tries++) {
      const exported = await this.#collector.post('/v1/traces', body);
      this.#onOutcome(exported);
      if (exported.type === 'accepted') {
        const rejected = Math.min(exported.rejected, count);
        this.#sent += count - rejected;
        this.#dropped += rejected;
        this.#pauseMs = pauses.firstMs;
        return;
      }
      if (exported.type === 'refused' || tries === triesMax || this.#isClosing()) {
        this.#dropped += count;
        return;
      }
      await this.#pause(Math.max(exported.afterMs, this.#pauseMs));
      this.#pauseMs = Math.min(2 * this.#pauseMs, pauses.mostMs);
    }
  }

  #isClosing(): boolean {
    return this.#state === 'closing';
  }

  #pause(ms: number): Promise<void> {
    if (this.#isClosing()) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms).unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

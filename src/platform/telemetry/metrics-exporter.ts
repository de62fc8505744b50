import { withDeadline } from '../deadline.ts';
import type { FamilyFigures } from '../metrics/figures.ts';
import type { Collector, Exported } from './collector.ts';
import { exportRequest } from './otlp-common.ts';
import type { Origin } from './otlp-common.ts';
import { encodedMetrics } from './otlp-metrics.ts';

export interface MetricsExporterOptions {
  readonly collector: Pick<Collector, 'post'>;
  readonly origin: Origin;
  readonly everyMs: number;
  /** What `/metrics` prints. */
  readonly figures: () => readonly FamilyFigures[] | Promise<readonly FamilyFigures[]>;
  readonly onOutcome: (exported: Exported) => void;
}

/** Sends the figures of `/metrics` periodically, and once more at the end. A lost report is included in the next: the figures are sums. */
export class MetricsExporter {
  readonly #options: MetricsExporterOptions;
  readonly #startedMs = Date.now();
  readonly #timer: NodeJS.Timeout;
  #sending: Promise<void> | undefined;

  constructor(options: MetricsExporterOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#sendOnce(), options.everyMs).unref();
  }

  /** Ends within this time. */
  async close(limitMs: number): Promise<void> {
    clearInterval(this.#timer);
    await withDeadline(this.#sendOnce(), limitMs, () => {});
  }

  /** Joins a running send: there is never a second one beside it. */
  #sendOnce(): Promise<void> {
    this.#sending ??= this.#send().finally(() => (this.#sending = undefined));
    return this.#sending;
  }

  async #send(): Promise<void> {
    const { collector, origin, figures, onOutcome } = this.#options;
    const read = figures();
    const families = read instanceof Promise ? await read : read;
    const metrics = encodedMetrics(families, { startedMs: this.#startedMs, nowMs: Date.now() });
    onOutcome(await collector.post('/v1/metrics', exportRequest(origin, [metrics])));
  }
}

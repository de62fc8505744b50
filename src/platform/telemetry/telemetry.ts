import { randomUUID } from 'node:crypto';
import type { Log } from '../log.ts';
import { Collector } from './collector.ts';
import type { Exported } from './collector.ts';
import { MetricsExporter } from './metrics-exporter.ts';
import type { MetricsExporterOptions } from './metrics-exporter.ts';
import type { Attribute, Origin } from './otlp-common.ts';
import { SpanExporter } from './span-exporter.ts';
import type { SpanCounts } from './span-exporter.ts';
import type { Recording } from './traces.ts';

export interface TelemetryOptions {
  /** URL of a collector, without the path of a signal. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  readonly resource: readonly Attribute[];
  /** Version of the program. */
  readonly version: string;
  readonly log: Log;
}

/** Time for sending what is waiting when the service stops. */
const closeLimitMs = 2_000;

/** An exporter of one signal, until `close`. */
export interface Exporting {
  /** Posts that failed, since the start. */
  readonly failures: number;
  close(): Promise<void>;
}

export interface SpanExporting extends Exporting, Recording {
  readonly counts: SpanCounts;
}

export function exportSpans(options: TelemetryOptions, samplingRatio: number): SpanExporting {
  const { collector, origin, outcomes } = connected(options, 'traces');
  const exporter = new SpanExporter(collector, origin, (exported) => outcomes.note(exported));
  return {
    sink: exporter,
    samplingRatio,
    get counts() {
      return exporter.counts;
    },
    get failures() {
      return outcomes.failures;
    },
    close: async () => {
      await exporter.close(closeLimitMs);
      collector.close();
    },
  };
}

export function exportMetrics(
  options: TelemetryOptions,
  { everyMs, figures }: Pick<MetricsExporterOptions, 'everyMs' | 'figures'>,
): Exporting {
  const { collector, origin, outcomes } = connected(options, 'metrics');
  const onOutcome = (exported: Exported): void => outcomes.note(exported);
  const exporter = new MetricsExporter({ collector, origin, everyMs, figures, onOutcome });
  return {
    get failures() {
      return outcomes.failures;
    },
    close: async () => {
      await exporter.close(closeLimitMs);
      collector.close();
    },
  };
}

/** A separate connection, so that neither signal waits for the other. */
function connected(options: TelemetryOptions, signal: 'traces' | 'metrics') {
  const { endpoint, headers, version, log } = options;
  return {
    collector: new Collector({ url: endpoint, headers, version }),
    origin: originOf(options),
    outcomes: new Outcomes(signal, log),
  };
}

/** Follows the resource conventions; the operator's attributes come last and take precedence. */
function originOf({ serviceName, resource, version }: TelemetryOptions): Origin {
  const attributes = new Map<string, Attribute[1]>([
    ['service.version', version],
    ['service.instance.id', randomUUID()],
    ['process.pid', process.pid],
    ['telemetry.sdk.name', 'tokenhouse'],
    ['telemetry.sdk.language', 'nodejs'],
    ['telemetry.sdk.version', version],
    ...resource,
    ['service.name', serviceName],
  ]);
  return { resource: [...attributes], version };
}

/** Counts posts that fail, and tells the operator when that begins and ends. */
class Outcomes {
  readonly #signal: string;
  readonly #log: Log;
  #failures = 0;
  #isFailing = false;

  constructor(signal: string, log: Log) {
    this.#signal = signal;
    this.#log = log;
  }

  get failures(): number {
    return this.#failures;
  }

  note(exported: Exported): void {
    const isFailure = exported.type !== 'accepted';
    if (isFailure) this.#failures++;
    if (isFailure === this.#isFailing) return;
    this.#isFailing = isFailure;
    const detail = { signal: this.#signal };
    if (isFailure)
      this.#log.service({ level: 'warn', event: 'telemetry_failing', detail: { ...detail, reason: exported.reason } });
    else this.#log.service({ level: 'info', event: 'telemetry_recovered', detail });
  }
}

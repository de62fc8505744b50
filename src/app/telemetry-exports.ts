import type { Config } from '../config/config.ts';
import { pairsOf } from '../config/sections/telemetry.ts';
import type { Log } from '../platform/log.ts';
import { exportMetrics, exportSpans } from '../platform/telemetry/telemetry.ts';
import type { Exporting, SpanExporting, TelemetryOptions } from '../platform/telemetry/telemetry.ts';
import type { MetricsExporterOptions } from '../platform/telemetry/metrics-exporter.ts';

interface Sender {
  readonly config: Config;
  readonly version: string;
  readonly log: Log;
}

/** Exports the spans of this process; undefined if the configuration has no collector or turns them off. */
export function openSpans(sender: Sender): SpanExporting | undefined {
  const { telemetry } = sender.config;
  return telemetry?.traces === undefined
    ? undefined
    : exportSpans(optionsOf(sender, telemetry), telemetry.traces.samplingRatio);
}

/** Exports the figures of all processes of the service. */
export function openMetrics(sender: Sender, figures: MetricsExporterOptions['figures']): Exporting | undefined {
  const { telemetry } = sender.config;
  if (telemetry?.metrics === undefined) return undefined;
  return exportMetrics(optionsOf(sender, telemetry), { everyMs: telemetry.metrics.everyMs, figures });
}

const optionsOf = ({ version, log }: Sender, telemetry: NonNullable<Config['telemetry']>): TelemetryOptions => ({
  endpoint: telemetry.endpoint,
  headers: Object.fromEntries(pairsOf(telemetry.headers?.reveal() ?? '')),
  serviceName: telemetry.serviceName,
  resource: telemetry.resource,
  version,
  log,
});

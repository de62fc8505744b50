import { labelsOf } from '../metrics/figures.ts';
import type { BucketFigures, FamilyFigures, SeriesFigures } from '../metrics/figures.ts';
import { writeAttributes } from './otlp-common.ts';
import { ProtobufWriter } from './protobuf.ts';

/** The field of `ScopeMetrics` that has its metrics. */
const metricsField = 2;
const cumulative = 2;

/** The whole time since the start, from which counters and histograms count. */
export interface Period {
  readonly startedMs: number;
  readonly nowMs: number;
}

/**
 * What `/metrics` prints, as fields of a `ScopeMetrics` of OTLP (opentelemetry/proto/metrics/v1/metrics.proto), under the same names
 * and with the same labels.
 */
export function encodedMetrics(families: readonly FamilyFigures[], period: Period): Buffer {
  const writer = new ProtobufWriter();
  for (const { description, series } of families.toReversed()) {
    if (series.length === 0) continue;
    const { name, type, help } = description;
    const end = writer.length;
    if (type === 'counter') writer.integer(3, 1);
    if (type !== 'gauge') writer.integer(2, cumulative);
    for (const each of series.toReversed()) writePoint(writer, each, period);
    writer.message(dataFields[type], end);
    writer.text(3, unitOf(name));
    writer.text(2, help);
    writer.text(1, name);
    writer.message(metricsField, end);
  }
  return writer.finish();
}

/** The fields of a `Metric` that have its points. */
const dataFields = { gauge: 5, counter: 7, histogram: 9 } as const;

function writePoint(writer: ProtobufWriter, [labels, value]: SeriesFigures, period: Period): void {
  const end = writer.length;
  writeAttributes(writer, typeof value === 'number' ? 7 : 9, labelsOf(labels));
  if (typeof value === 'number') writer.double(4, value);
  else writeBuckets(writer, value);
  writer.nanoseconds(3, period.nowMs);
  writer.nanoseconds(2, period.startedMs);
  writer.message(1, end);
}

function writeBuckets(writer: ProtobufWriter, { bounds, counts, sum }: BucketFigures): void {
  writer.packed(7, bounds, 'double');
  writer.packed(6, counts, 'fixed64');
  writer.double(5, sum);
  writer.fixed64(
    4,
    counts.reduce((all, count) => all + count, 0),
  );
}

/** Our names end in units, as in Prometheus; OTLP uses UCUM codes. */
const unitOf = (name: string): string => {
  if (/_seconds(_total)?$/.test(name)) return 's';
  return /_bytes(_total)?$/.test(name) ? 'By' : '';
};

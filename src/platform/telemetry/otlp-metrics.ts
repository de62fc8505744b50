import { labelsOf } from '../metrics/figures.ts';
import type { BucketFigures, FamilyFigures, SeriesFigures } from '../metrics/figures.ts';
import { nanoseconds, writeAttributes } from './otlp-common.ts';
import { ProtobufWriter } from './protobuf.ts';

/** The field of `ScopeMetrics` that has its metrics. */
const metricsField = 2;
const cumulative = 2;

/** Whole since the start: counters and histograms count from there. */
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
    writer.message(metricsField, () => {
      if (type === 'gauge') writer.message(5, () => writePoints(writer, series, period));
      else
        writer.message(type === 'counter' ? 7 : 9, () => {
          if (type === 'counter') writer.integer(3, 1);
          writer.integer(2, cumulative);
          writePoints(writer, series, period);
        });
      writer.text(3, unitOf(name));
      writer.text(2, help);
      writer.text(1, name);
    });
  }
  return writer.finish();
}

function writePoints(writer: ProtobufWriter, series: readonly SeriesFigures[], period: Period): void {
  for (const [labels, value] of series.toReversed())
    writer.message(1, () => {
      writeAttributes(writer, typeof value === 'number' ? 7 : 9, labelsOf(labels));
      if (typeof value === 'number') writer.double(4, value);
      else writeBuckets(writer, value);
      writer.fixed(3, nanoseconds(period.nowMs));
      writer.fixed(2, nanoseconds(period.startedMs));
    });
}

function writeBuckets(writer: ProtobufWriter, { bounds, counts, sum }: BucketFigures): void {
  writer.packed(7, bounds, 'double');
  writer.packed(6, counts, 'fixed64');
  writer.double(5, sum);
  writer.fixed(4, BigInt(counts.reduce((all, count) => all + count, 0)));
}

/** Our names end in their units, as Prometheus has it; OTLP has them by UCUM. */
const unitOf = (name: string): string => {
  if (/_seconds(_total)?$/.test(name)) return 's';
  return /_bytes(_total)?$/.test(name) ? 'By' : '';
};

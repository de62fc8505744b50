import { ProtobufWriter } from './protobuf.ts';

/** What OTLP says of anything: a name of ours, and a figure, a code or a name. */
export type Attribute = readonly [name: string, value: string | number | boolean | readonly string[]];

/** Milliseconds since 1970 as OTLP has times. A double has them to a quarter of a microsecond. */
export const nanoseconds = (ms: number): bigint => BigInt(Math.round(ms * 1_000)) * 1_000n;

/** A list of `KeyValue`. */
export function writeAttributes(writer: ProtobufWriter, field: number, attributes: readonly Attribute[]): void {
  for (let index = attributes.length - 1; index >= 0; index--) {
    const [name, value] = attributes[index]!;
    writer.message(field, () => {
      writer.message(2, () => writeValue(writer, value));
      writer.text(1, name);
    });
  }
}

/** An `AnyValue`. */
function writeValue(writer: ProtobufWriter, value: Attribute[1]): void {
  if (typeof value === 'string') writer.text(1, value);
  else if (typeof value === 'boolean') writer.integer(2, value ? 1 : 0);
  else if (typeof value !== 'number')
    writer.message(5, () => {
      for (const each of value.toReversed()) writer.message(1, () => writer.text(1, each));
    });
  else if (Number.isSafeInteger(value) && value >= 0) writer.integer(3, value);
  else writer.double(4, value);
}

/** Whose telemetry it is: `Resource` and `InstrumentationScope` are the same in all messages. */
export interface Origin {
  readonly resource: readonly Attribute[];
  readonly version: string;
}

/**
 * The body of an export: one list of records of one resource and one scope, `Export…ServiceRequest` of traces and of metrics
 * alike. `records` are the fields of `ScopeSpans` or `ScopeMetrics` that hold them.
 */
export function exportRequest({ resource, version }: Origin, records: readonly Uint8Array[]): Buffer {
  const writer = new ProtobufWriter();
  writer.message(1, () => {
    writer.message(2, () => {
      for (const record of records.toReversed()) writer.raw(record);
      writer.message(1, () => {
        writer.text(2, version);
        writer.text(1, 'tokenhouse');
      });
    });
    writer.message(1, () => writeAttributes(writer, 1, resource));
  });
  return writer.finish();
}

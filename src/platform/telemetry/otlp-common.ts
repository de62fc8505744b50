import { ProtobufWriter } from './protobuf.ts';

/** An OTLP attribute: one of our names, and a figure, a code or a name. Its type is fixed, even where a double is whole. */
export type Attribute = readonly [
  name: string,
  value: string | number | boolean | { readonly double: number } | readonly string[],
];

/** A list of `KeyValue`. */
export function writeAttributes(writer: ProtobufWriter, field: number, attributes: readonly Attribute[]): void {
  for (let index = attributes.length - 1; index >= 0; index--) {
    const [name, value] = attributes[index]!;
    const end = writer.length;
    writeValue(writer, value);
    writer.message(2, end);
    writer.text(1, name);
    writer.message(field, end);
  }
}

/** The field of an `AnyValue`. */
function writeValue(writer: ProtobufWriter, value: Attribute[1]): void {
  if (typeof value === 'string') writer.text(1, value);
  else if (typeof value === 'boolean') writer.integer(2, value ? 1 : 0);
  else if (typeof value === 'number') writer.integer(3, value);
  else if ('double' in value) writer.double(4, value.double);
  else writeTexts(writer, value);
}

function writeTexts(writer: ProtobufWriter, texts: readonly string[]): void {
  const end = writer.length;
  for (const text of texts.toReversed()) {
    const endOfText = writer.length;
    writer.text(1, text);
    writer.message(1, endOfText);
  }
  writer.message(5, end);
}

/** The source of the telemetry: `Resource` and `InstrumentationScope` are the same in all messages. */
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
  for (const record of records.toReversed()) writer.raw(record);
  const endOfScope = writer.length;
  writer.text(2, version);
  writer.text(1, 'tokenhouse');
  writer.message(1, endOfScope);
  writer.message(2, 0);
  const endOfResource = writer.length;
  writeAttributes(writer, 1, resource);
  writer.message(1, endOfResource);
  writer.message(1, 0);
  return writer.finish();
}

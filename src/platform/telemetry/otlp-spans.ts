import { writeAttributes, nanoseconds } from './otlp-common.ts';
import type { Attribute } from './otlp-common.ts';
import { ProtobufWriter } from './protobuf.ts';
import type { TraceContext } from './trace-context.ts';

/** A span that is over. */
export interface SpanRecord {
  readonly id: string;
  readonly parentId: string | undefined;
  readonly name: string;
  /** As numbered in OTLP. */
  readonly kind: number;
  /** Those of OTLP beside the trace's own. */
  readonly flags: number;
  /** Milliseconds since 1970, with their fractions. */
  readonly startedMs: number;
  readonly endedMs: number;
  readonly attributes: readonly Attribute[];
  readonly events: readonly { readonly name: string; readonly atMs: number }[];
  readonly isError: boolean;
}

/** The field of `ScopeSpans` that has its spans. */
const spansField = 2;
const errorStatus = 2;

/**
 * The spans of one trace as fields of a `ScopeSpans` of OTLP (opentelemetry/proto/trace/v1/trace.proto), to which those of others
 * are appended. The `tracestate` is left out: it is the client's text.
 */
export function encodedSpans(
  { traceId, flags }: Pick<TraceContext, 'traceId' | 'flags'>,
  spans: readonly SpanRecord[],
): Buffer {
  const writer = new ProtobufWriter();
  for (const span of spans.toReversed())
    writer.message(spansField, () => {
      writer.fixed32(16, span.flags | flags);
      if (span.isError) writer.message(15, () => writer.integer(3, errorStatus));
      for (const { name, atMs } of span.events.toReversed())
        writer.message(11, () => {
          writer.text(2, name);
          writer.fixed(1, nanoseconds(atMs));
        });
      writeAttributes(writer, 9, span.attributes);
      writer.fixed(8, nanoseconds(span.endedMs));
      writer.fixed(7, nanoseconds(span.startedMs));
      writer.integer(6, span.kind);
      writer.text(5, span.name);
      if (span.parentId !== undefined) writer.hex(4, span.parentId);
      writer.hex(2, span.id);
      writer.hex(1, traceId);
    });
  return writer.finish();
}

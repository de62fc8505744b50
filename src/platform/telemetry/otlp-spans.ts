import { writeAttributes } from './otlp-common.ts';
import type { Attribute } from './otlp-common.ts';
import type { ProtobufWriter } from './protobuf.ts';
import type { TraceContext } from './trace-context.ts';

/** A span that is over. */
export interface SpanRecord {
  readonly id: string;
  readonly parentId: string | undefined;
  readonly name: string;
  /** As numbered in OTLP. */
  readonly kind: number;
  /** OTLP's flags, in addition to the trace's own. */
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
 * The spans of one trace as fields of a `ScopeSpans` of OTLP (opentelemetry/proto/trace/v1/trace.proto), to which those of other
 * traces are appended. The `tracestate` is left out: it is the client's text.
 */
export function writeSpans(
  writer: ProtobufWriter,
  { traceId, flags }: Pick<TraceContext, 'traceId' | 'flags'>,
  spans: readonly SpanRecord[],
): void {
  for (let index = spans.length - 1; index >= 0; index--) {
    const span = spans[index]!;
    const end = writer.length;
    writer.fixed32(16, span.flags | flags);
    if (span.isError) {
      const endOfStatus = writer.length;
      writer.integer(3, errorStatus);
      writer.message(15, endOfStatus);
    }
    for (const { name, atMs } of span.events.toReversed()) {
      const endOfEvent = writer.length;
      writer.text(2, name);
      writer.nanoseconds(1, atMs);
      writer.message(11, endOfEvent);
    }
    writeAttributes(writer, 9, span.attributes);
    writer.nanoseconds(8, span.endedMs);
    writer.nanoseconds(7, span.startedMs);
    writer.integer(6, span.kind);
    writer.text(5, span.name);
    if (span.parentId !== undefined) writer.hex(4, span.parentId);
    writer.hex(2, span.id);
    writer.hex(1, traceId);
    writer.message(spansField, end);
  }
}

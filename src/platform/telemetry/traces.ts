import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { newSpanId, PassedTrace, RecordedTrace } from './request-trace.ts';
import type { RequestTrace, SpanSink } from './request-trace.ts';
import { readTraceContext, sampledFlag } from './trace-context.ts';

export interface Recording {
  readonly sink: SpanSink;
  /** Share of the requests that are recorded, of those that come without a trace of their own. */
  readonly samplingRatio: number;
}

/**
 * The trace of a request. Whoever calls us decides whether it is recorded; where nobody has, a share of the requests is. Undefined
 * where nothing is recorded here and the request brought nothing to pass on: then it costs nothing.
 */
export function beginTrace(headers: IncomingHttpHeaders, recording: Recording | undefined): RequestTrace | undefined {
  const parent = headers.traceparent === undefined ? undefined : readTraceContext(headers);
  if (recording === undefined) return parent === undefined ? undefined : new PassedTrace(parent);
  const { sink, samplingRatio } = recording;
  if (parent !== undefined) {
    if ((parent.flags & sampledFlag) === 0) return new PassedTrace(parent);
    return new RecordedTrace({ ...parent, spanId: newSpanId() }, parent.spanId, sink);
  }
  const traceId = randomBytes(16).toString('hex');
  const isRecorded = isSampled(traceId, samplingRatio);
  const context = { traceId, spanId: newSpanId(), flags: isRecorded ? sampledFlag : 0, state: undefined };
  // One that is not recorded is passed on all the same, so that nobody behind us begins another.
  return isRecorded ? new RecordedTrace(context, undefined, sink) : new PassedTrace(context);
}

/** By the last digits of the id, which are random. */
const isSampled = (traceId: string, ratio: number): boolean =>
  Number.parseInt(traceId.slice(-12), 16) < ratio * 2 ** 48;

import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { newSpanId, PassedTrace, RecordedTrace } from './request-trace.ts';
import type { RequestTrace, SpanSink } from './request-trace.ts';
import { readTraceContext, sampledFlag } from './trace-context.ts';

export interface Recording {
  readonly sink: SpanSink;
  /** The share of requests to record, among those that arrive without a trace. */
  readonly samplingRatio: number;
}

/**
 * The trace of a request. The caller decides whether it is recorded; without a decision, a share of the requests is. Undefined, at
 * no cost, if nothing is recorded here and the request brought no trace to pass on.
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
  // An unrecorded one is still passed on, so that no later service begins another.
  return isRecorded ? new RecordedTrace(context, undefined, sink) : new PassedTrace(context);
}

/** Decides by the last digits of the id, which are random. */
const isSampled = (traceId: string, ratio: number): boolean =>
  Number.parseInt(traceId.slice(-12), 16) < ratio * 2 ** 48;

import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { PassedTrace, RecordedTrace } from './request-trace.ts';
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
  if (parent !== undefined)
    return (parent.flags & sampledFlag) === 0
      ? new PassedTrace(parent)
      : new RecordedTrace(parent, parent.spanId, sink);
  const traceId = randomBytes(16).toString('hex');
  const context = { traceId, flags: 0, state: undefined };
  if (isSampled(traceId, samplingRatio)) return new RecordedTrace(context, undefined, sink);
  // So that nobody behind us begins a trace for it.
  return new PassedTrace({ ...context, spanId: randomBytes(8).toString('hex') });
}

/** By the last digits of the id, which are random. */
const isSampled = (traceId: string, ratio: number): boolean =>
  Number.parseInt(traceId.slice(-12), 16) < ratio * 2 ** 48;

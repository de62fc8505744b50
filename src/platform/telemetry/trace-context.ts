import type { IncomingHttpHeaders } from 'node:http';

/** W3C Trace Context: which trace a request belongs to, and its parent span. */
export interface TraceContext {
  /** 32 and 16 hex digits in lower case, not all of them 0. */
  readonly traceId: string;
  readonly spanId: string;
  /** The two defined flags: `sampledFlag`, and that the trace id is random. */
  readonly flags: number;
  /** Entries of other vendors; passed on unchanged, and stored nowhere: it is the client's text. */
  readonly state: string | undefined;
}

/** Headers for a backend, safe to send: hex digits and printable ASCII. */
export interface TraceHeaders {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

export const sampledFlag = 1;
const randomFlag = 2;

/**
 * Reads the headers, which anyone may have written. A malformed `traceparent` counts as absent, and a `tracestate` counts only with
 * it (W3C Trace Context, 3.2 and 3.3).
 */
export function readTraceContext({ traceparent, tracestate }: IncomingHttpHeaders): TraceContext | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, version, traceId, spanId, flags, more] = traceparentForm.exec(traceparent) ?? [];
  if (version === undefined || traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  // A later version may have more after the flags; this one has nothing.
  if (version === 'ff' || (version === '00' && more !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return {
    traceId,
    spanId,
    flags: Number.parseInt(flags, 16) & (sampledFlag | randomFlag),
    state: stateOf(tracestate),
  };
}

const traceparentForm = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

const stateCharactersMax = 512;
const stateMembersMax = 32;
const stateMember = /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** All or nothing: a list that is too long or has a malformed member is not passed on. */
function stateOf(header: string | string[] | undefined): string | undefined {
  if (typeof header !== 'string' || header.length > stateCharactersMax) return undefined;
  const members = header
    .split(',')
    .map((member) => member.replaceAll(/^[ \t]+|[ \t]+$/g, ''))
    .filter((member) => member !== '');
  const names = new Set(members.map((member) => member.slice(0, member.indexOf('='))));
  const isList = members.length > 0 && members.length <= stateMembersMax && names.size === members.length;
  return isList && members.every((member) => stateMember.test(member)) ? members.join(',') : undefined;
}

export const traceHeadersOf = ({ traceId, spanId, flags, state }: TraceContext): TraceHeaders => ({
  traceparent: `00-${traceId}-${spanId}-0${flags}`,
  tracestate: state,
});

import type { IncomingMessage } from 'node:http';

import { ApiError } from '../errors.ts';

/** Maximum header lines of a request (reliability C8). */
export const headersMax = 100;

/**
 * Refuses what Node's parser accepts and two readers could understand differently (reliability §3.3, C7 to C9). Refuse, never
 * repair: a header that some reader may miss is no header. Runs for every request, so it is one pass over the headers, a few
 * microseconds.
 *
 * What the parser hides cannot be refused here: empty lines and line feeds before the request, several blanks in its first line,
 * extensions of chunks (RFC 9112 §7.1.1 has them ignored; the parser bounds them), fields of the trailer (dropped), and
 * the protocol names `RTSP` and `ICE`, which count as HTTP/1.0.
 */
export function checkHead(request: IncomingMessage): ApiError | undefined {
  if (request.httpVersionMajor !== 1) return new ApiError('http_505', 'Speak HTTP/1.1.');
  const { rawHeaders, httpVersionMinor } = request;
  if (rawHeaders.length > 2 * headersMax) {
    return new ApiError('http_431', `A request may have at most ${headersMax} headers.`);
  }
  // Absolute and asterisk forms: the host would be named twice, and routes know paths only.
  if (request.url?.charCodeAt(0) !== slash) return badRequest('The request target must be a path.');

  let seen = 0;
  let bodyBytes = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    const value = rawHeaders[i + 1] ?? '';
    // The id of a request is made safe instead (contracts decision 11).
    if (!isAscii(value) && name.toLowerCase() !== 'x-request-id') {
      return badRequest('The value of a header is not ASCII.');
    }
    const header = headerOf(name);
    if (header === 0) {
      if (!isPlainName(name) && decisive.has(name.toLowerCase().replaceAll(/[^0-9a-z]/g, '-'))) {
        return badRequest('The name of a header can be confused with a known header.');
      }
      continue;
    }
    if ((seen & header) !== 0 && header !== repeatable) {
      return badRequest(`The header ${name.toLowerCase()} is given twice.`);
    }
    seen |= header;
    switch (header) {
      case bits.host:
        if (/[/\\?#@,\s]/.test(value)) return badRequest('The Host header is not a host.');
        break;
      case bits.contentLength:
        // `02`: some read octal, some refuse; the parser has checked that there are digits only.
        if (value.length > 1 && value.charCodeAt(0) === zero) return badRequest('The Content-Length is malformed.');
        bodyBytes = Number(value);
        break;
      case bits.transferEncoding:
        if (value !== 'chunked') return badRequest("The Transfer-Encoding must be 'chunked'.");
        if (httpVersionMinor === 0) return badRequest('HTTP/1.0 does not allow Transfer-Encoding.');
        bodyBytes = Infinity;
        break;
      case bits.expect:
        if (value.toLowerCase() !== '100-continue') {
          return new ApiError('http_417', 'The Expect header must be 100-continue.');
        }
        break;
      case bits.connection:
        if (!isPlainConnection(value))
          return badRequest('The Connection header must not name a header that this server reads.');
        break;
      default:
    }
  }
  if ((seen & bits.host) === 0 && httpVersionMinor > 0) return badRequest('The Host header is missing.');
  if ((seen & framed) === framed)
    return badRequest('A request must have either Content-Length or Transfer-Encoding, not both.');
  // RFC 9110 §9.3.1: such a body has no meaning; its only use is smuggling.
  if (bodyBytes > 0 && (request.method === 'GET' || request.method === 'HEAD')) {
    return badRequest(`A ${request.method} request has no body; use POST to send one.`);
  }
  return undefined;
}

const slash = 0x2f;
const zero = 0x30;

/** One bit for each header that may come once. */
const bits = {
  host: 1,
  contentLength: 2,
  transferEncoding: 4,
  expect: 8,
  connection: 16,
  authorization: 32,
  apiKey: 64,
  contentType: 128,
  contentEncoding: 256,
} as const;
/** May be repeated, as a list. */
const repeatable = bits.connection;
const framed = bits.contentLength | bits.transferEncoding;

const watched: ReadonlyMap<string, number> = new Map([
  ['host', bits.host],
  ['content-length', bits.contentLength],
  ['transfer-encoding', bits.transferEncoding],
  ['expect', bits.expect],
  ['connection', bits.connection],
  ['authorization', bits.authorization],
  ['x-api-key', bits.apiKey],
  ['content-type', bits.contentType],
  ['content-encoding', bits.contentEncoding],
]);

const watchedLengthMax = 17;

/** Length and first letter distinguish these names from most others: few need to be looked up. */
const initials: readonly string[] = Array.from({ length: watchedLengthMax + 1 }, (_, length) =>
  [...watched.keys()]
    .filter((name) => name.length === length)
    .map((name) => name.charAt(0))
    .join(''),
);

/** The bit of a header, or 0 if nothing here depends on it. */
function headerOf(name: string): number {
  const candidates = name.length > watchedLengthMax ? '' : (initials[name.length] ?? '');
  for (let i = 0; i < candidates.length; i++) {
    if ((name.charCodeAt(0) | 0x20) === candidates.charCodeAt(i)) return watched.get(name.toLowerCase()) ?? 0;
  }
  return 0;
}

/**
 * Headers that affect a request. A repeated `Service-ZDR` has its own error (specification §4.2.6), but under a name like
 * `Service_ZDR` it would be ignored while the client believes that it is honoured; under `Idempotency_Key` a second charge would be.
 */
const ours = ['service-zdr', 'service-request-tag', 'idempotency-key'];
const decisive: ReadonlySet<string> = new Set([...watched.keys(), ...ours]);

/** Visible ASCII, blanks and tabs; the parser has refused other control characters. */
function isAscii(value: string): boolean {
  for (let i = 0; i < value.length; i++) if (value.charCodeAt(i) > 0x7e) return false;
  return true;
}

/** Letters, digits and hyphens. */
function isPlainName(name: string): boolean {
  for (let i = 0; i < name.length; i++) {
    const c = name.charCodeAt(i);
    const letter = c | 0x20;
    const isPlain = (letter >= 0x61 && letter <= 0x7a) || c === 0x2d || (c >= 0x30 && c <= 0x39);
    if (!isPlain) return false;
  }
  return true;
}

/** A proxy may drop the headers that `Connection` names, so it must not name one that matters here. */
function isPlainConnection(value: string): boolean {
  if (value === 'keep-alive' || value === 'close') return true;
  return !value.split(',').some((option) => {
    const name = option.trim().toLowerCase();
    return name !== 'connection' && decisive.has(name);
  });
}

const badRequest = (message: string): ApiError => new ApiError('http_400', message);

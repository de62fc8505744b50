import type { ErrorCode } from '../../../src/platform/errors.ts';

/**
 * What a host does with some bytes and a whole request (the marker) right behind them.
 * `taken`: answers both, each once, and keeps the connection. `last`: answers the first and closes. `refused`: answers with
 * this code and closes. `then`: answers the first, refuses what follows it with this code, and closes. In none of them anything else is answered.
 */
export type Outcome =
  | { readonly kind: 'taken'; readonly status: number }
  | { readonly kind: 'last'; readonly status: number }
  | { readonly kind: 'refused'; readonly code: ErrorCode }
  | { readonly kind: 'then'; readonly status: number; readonly code: ErrorCode };

export interface Case {
  readonly what: string;
  /** Each character is a byte. */
  readonly bytes: string;
  readonly outcome: Outcome;
}

const ok: Outcome = { kind: 'taken', status: 200 };
/** Read to its end and answered: `POST /healthz` is a method that both hosts refuse with 405. */
const read: Outcome = { kind: 'taken', status: 405 };
/** Answered by its head; what follows is no body, so the connection ends, without a second answer. */
const answeredByHead: Outcome = { kind: 'last', status: 405 };
const closing: Outcome = { kind: 'last', status: 200 };
const refused = (code: ErrorCode): Outcome => ({ kind: 'refused', code });
const bad = refused('http_400');
const version = refused('http_505');
const tooLarge = refused('http_431');

const get = (...lines: readonly string[]): string =>
  ['GET /healthz HTTP/1.1', 'Host: a', ...lines, '', ''].join('\r\n');
const post = (lines: readonly string[], body: string): string =>
  ['POST /healthz HTTP/1.1', 'Host: a', ...lines, '', body].join('\r\n');
const chunked = (body: string): string => post(['Transfer-Encoding: chunked'], body);
const line = (text: string): string => `${text}\r\nHost: a\r\n\r\n`;

/** A whole request that is known by its answer's id. */
export const marker = get('X-Request-Id: marker');

type Row = readonly [what: string, bytes: string, outcome: Outcome];

const requestLines: readonly Row[] = [
  ['an ordinary request', get(), ok],
  ['no version (0.9)', line('GET /healthz'), version],
  ['no version, and nothing else', 'GET /healthz\r\n\r\n', version],
  ['HTTP/2.0', line('GET /healthz HTTP/2.0'), version],
  ['HTTP/1.2', line('GET /healthz HTTP/1.2'), version],
  ['HTTP/3.7', line('GET /healthz HTTP/3.7'), version],
  ['HTTP/0.9 in words', line('GET /healthz HTTP/0.9'), version],
  ['HTTP/1', line('GET /healthz HTTP/1'), bad],
  ['HTTP/1.10', line('GET /healthz HTTP/1.10'), bad],
  ['HTTP/01.1', line('GET /healthz HTTP/01.1'), bad],
  ['http/1.1 in lower case', line('GET /healthz http/1.1'), bad],
  ['another protocol', line('GET /healthz HTCPCP/1.0'), bad],
  ['a blank after the version', line('GET /healthz HTTP/1.1 '), bad],
  ['a blank in the version', line('GET /healthz HTTP/ 1.1'), bad],
  ['two blanks after the method: the parser hides them', line('GET  /healthz HTTP/1.1'), ok],
  ['two blanks after the target: the parser hides them', line('GET /healthz  HTTP/1.1'), ok],
  ['tabs for blanks', line('GET\t/healthz\tHTTP/1.1'), bad],
  ['a vertical tab', line('GET\x0b/healthz HTTP/1.1'), bad],
  ['a blank before the method', line(' GET /healthz HTTP/1.1'), bad],
  ['empty lines before: the parser hides them (RFC 9112 §2.2)', `\r\n\r\n${get()}`, ok],
  ['a line feed before: the parser hides it', `\n${get()}`, ok],
  ['a zero byte before', `\0${get()}`, bad],
  ['a byte order mark before', `\xef\xbb\xbf${get()}`, bad],
  ['a method in lower case', line('get /healthz HTTP/1.1'), bad],
  ['a method that does not exist', line('BREW /healthz HTTP/1.1'), bad],
  ['no method', line('/healthz HTTP/1.1'), bad],
  ['TRACE', line('TRACE /healthz HTTP/1.1'), read],
  ['an absolute target', line('GET http://a/healthz HTTP/1.1'), bad],
  ['an absolute target elsewhere', line('GET http://b/healthz HTTP/1.1'), bad],
  ['a target with another scheme', line('GET ftp://a/healthz HTTP/1.1'), bad],
  ['an authority for a target', line('GET a:80 HTTP/1.1'), bad],
  ['an asterisk', line('OPTIONS * HTTP/1.1'), bad],
  ['a target without a slash', line('GET healthz HTTP/1.1'), bad],
  ['a backslash for a slash', line('GET \\healthz HTTP/1.1'), bad],
  ['a zero byte in the target', line('GET /healthz\0 HTTP/1.1'), bad],
  ['a byte of UTF-8 in the target', line('GET /healthz\xc3\xa9 HTTP/1.1'), bad],
  ['a control character in the target', line('GET /healthz\x7f HTTP/1.1'), bad],
  ['a query', line('GET /healthz?a=b HTTP/1.1'), ok],
  ['a target of 20 kB', line(`GET /healthz?${'a'.repeat(20_000)} HTTP/1.1`), tooLarge],
  ['CONNECT', line('CONNECT a:443 HTTP/1.1'), refused('http_405')],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', version],
  ['almost the preface of HTTP/2', 'PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n', version],
  ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', bad],
  ['an answer', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', bad],
  ['SMTP', 'EHLO a\r\n', bad],
  ['SSH', 'SSH-2.0-OpenSSH_9.2\r\n', bad],
  ['RTSP counts as HTTP/1.0: the parser hides it', line('OPTIONS /healthz RTSP/1.0'), answeredByHead],
  ['ICE counts as HTTP/1.0: the parser hides it', line('SOURCE /healthz ICE/1.0'), answeredByHead],
  ['HTTP/1.0', line('GET /healthz HTTP/1.0'), closing],
  ['HTTP/1.0 without a Host', 'GET /healthz HTTP/1.0\r\n\r\n', closing],
];

const lineEnds: readonly Row[] = [
  ['a bare line feed after the request line', 'GET /healthz HTTP/1.1\nHost: a\r\n\r\n', bad],
  ['a bare line feed after a header', 'GET /healthz HTTP/1.1\r\nHost: a\nX: b\r\n\r\n', bad],
  ['bare line feeds everywhere', 'GET /healthz HTTP/1.1\nHost: a\n\n', bad],
  ['a bare line feed at the end of the head', 'GET /healthz HTTP/1.1\r\nHost: a\r\n\n', bad],
  ['a bare carriage return after the request line', 'GET /healthz HTTP/1.1\rHost: a\r\n\r\n', bad],
  ['a bare carriage return in a header', get('X: a\rY: b'), bad],
  ['a bare carriage return before a header', get('\rX: b'), bad],
  ['two carriage returns before a line feed', 'GET /healthz HTTP/1.1\r\nHost: a\r\r\n\r\n', bad],
  ['a carriage return and something at the end of the head', 'GET /healthz HTTP/1.1\r\nHost: a\r\n\rX', bad],
  ['an obsolete folded header', get('X: a', ' b'), bad],
  ['an obsolete folded header with a tab', get('X: a', '\tb'), bad],
  ['an obsolete folded header that begins empty', get('X:', ' b'), bad],
];

const headers: readonly Row[] = [
  ['no Host', 'GET /healthz HTTP/1.1\r\n\r\n', bad],
  ['two Hosts', get('Host: b'), bad],
  ['two equal Hosts', get('Host: a'), bad],
  ['an empty Host', 'GET /healthz HTTP/1.1\r\nHost:\r\n\r\n', ok],
  ['a list for a Host', 'GET /healthz HTTP/1.1\r\nHost: a, b\r\n\r\n', bad],
  ['a user in the Host', 'GET /healthz HTTP/1.1\r\nHost: u@a\r\n\r\n', bad],
  ['a path in the Host', 'GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n', bad],
  ['a blank in the Host', 'GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n', bad],
  ['an underscored Host beside the right one', get('Host_: b', 'X_Host: c'), ok],
  ['a blank before a name', get(' X: a'), bad],
  ['a blank before the first name', 'GET /healthz HTTP/1.1\r\n Host: a\r\n\r\n', bad],
  ['a blank before the colon', get('X : a'), bad],
  ['a tab before the colon', get('X\t: a'), bad],
  ['no colon', get('X'), bad],
  ['an empty name', get(': a'), bad],
  ['a blank in a name', get('X Y: a'), bad],
  ['a zero byte in a name', get('X\0Y: a'), bad],
  ['a byte above ASCII in a name', get('X\xe9: a'), bad],
  ['quotes around a name', get('"X": a'), bad],
  ['a zero byte in a value', get('X: a\0b'), bad],
  ['a control character in a value', get('X: a\x01b'), bad],
  ['DEL in a value', get('X: a\x7fb'), bad],
  ['a byte above ASCII in a value', get('X: caf\xe9'), bad],
  ['UTF-8 in a value', get('X: caf\xc3\xa9'), bad],
  ["UTF-8 in the client's request id, which is made safe", get('X-Request-Id: caf\xc3\xa9'), ok],
  ['__proto__', get('__proto__: a', 'constructor: b', 'toString: c'), ok],
  ['two Authorizations', get('Authorization: Bearer a', 'Authorization: Bearer b'), bad],
  ['two equal Authorizations', get('Authorization: Bearer a', 'authorization: Bearer a'), bad],
  ['two x-api-keys', get('x-api-key: a', 'X-Api-Key: b'), bad],
  ['two Content-Types', post(['Content-Type: a/b', 'Content-Type: a/b', 'Content-Length: 2'], 'xy'), bad],
  ['two Content-Encodings', post(['Content-Encoding: identity', 'Content-Encoding: gzip'], ''), bad],
  ['two Expects', get('Expect: 100-continue', 'Expect: 100-continue'), bad],
  ['Service_ZDR', get('Service_ZDR: required'), bad],
  ['service.zdr', get('service.zdr: required'), bad],
  ['SERVICE~ZDR', get('SERVICE~ZDR: required'), bad],
  ['Service_Request_Tag', get('Service_Request_Tag: a'), bad],
  ['X_API_KEY', get('X_API_KEY: a'), bad],
  ['Idempotency_Key', get('Idempotency_Key: a'), bad],
  ['Authorization with a dot after it, which is another header', get('Authorization.: a'), ok],
  ['a hundred headers', get(...Array.from({ length: 99 }, (_, i) => `X-${i}: a`)), ok],
  ['a hundred and one', get(...Array.from({ length: 100 }, (_, i) => `X-${i}: a`)), tooLarge],
  ['1,200 headers', get(...Array.from({ length: 1199 }, (_, i) => `X${i}:a`)), tooLarge],
  ['a value of 20 kB', get(`X: ${'a'.repeat(20_000)}`), tooLarge],
  ['a name of 20 kB', get(`${'X'.repeat(20_000)}: a`), tooLarge],
  ['Connection: close', get('Connection: close'), closing],
  ['Connection: content-length', get('Connection: content-length'), bad],
  ['Connection with Authorization in its list', get('Connection: keep-alive, Authorization'), bad],
  ['Connection twice, the second with Service-ZDR', get('Connection: keep-alive', 'Connection: service-zdr'), bad],
  ['Connection: a name that nobody reads', get('Connection: x-hop'), ok],
  ['Upgrade, which is not taken', get('Connection: Upgrade', 'Upgrade: websocket'), closing],
  ['Upgrade to h2c', get('Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'), closing],
  ['Upgrade with a body', post(['Connection: Upgrade', 'Upgrade: x', 'Content-Length: 2'], 'xy'), answeredByHead],
  ['Expect: something else', get('Expect: miracles'), refused('http_417')],
  ['Expect: a list', get('Expect: 100-continue, miracles'), refused('http_417')],
  ['Expect: nothing', get('Expect:'), refused('http_417')],
];

const lengths: readonly Row[] = [
  ['a body', post(['Content-Length: 2'], 'xy'), read],
  ['a body that looks like a request', post([`Content-Length: ${get().length}`], get()), read],
  ['a length after a tab', post(['Content-Length:\t2'], 'xy'), read],
  ['no length', post([], ''), read],
  ['no length, and bytes', post([], 'xy'), { kind: 'then', status: 405, code: 'http_400' }],
  ['a length of 0', post(['Content-Length: 0'], ''), read],
  ['GET with a length of 0', get('Content-Length: 0'), ok],
  ['GET with a body', `${get('Content-Length: 2')}xy`, bad],
  ['GET with a request for a body', get(`Content-Length: ${get().length}`) + get(), bad],
  ['GET with a chunked body', `${get('Transfer-Encoding: chunked')}2\r\nxy\r\n0\r\n\r\n`, bad],
  ['two lengths', post(['Content-Length: 2', 'Content-Length: 3'], 'xyz'), bad],
  ['two equal lengths', post(['Content-Length: 2', 'Content-Length: 2'], 'xy'), bad],
  ['a list of lengths', post(['Content-Length: 2, 2'], 'xy'), bad],
  ['+2', post(['Content-Length: +2'], 'xy'), bad],
  ['-1', post(['Content-Length: -1'], 'xy'), bad],
  ['0x2', post(['Content-Length: 0x2'], 'xy'), bad],
  ['2.0', post(['Content-Length: 2.0'], 'xy'), bad],
  ['2e0', post(['Content-Length: 2e0'], 'xy'), bad],
  ['02', post(['Content-Length: 02'], 'xy'), bad],
  ['00', post(['Content-Length: 00'], ''), bad],
  ['2 2', post(['Content-Length: 2 2'], 'xy'), bad],
  ['2a', post(['Content-Length: 2a'], 'xy'), bad],
  ['"2"', post(['Content-Length: "2"'], 'xy'), bad],
  ['2;', post(['Content-Length: 2;'], 'xy'), bad],
  ['an empty length', post(['Content-Length:'], 'xy'), bad],
  ['a length of blanks', post(['Content-Length:   '], 'xy'), bad],
  ['a length beyond 64 bits', post(['Content-Length: 99999999999999999999'], 'xy'), bad],
  ['a length with a vertical tab', post(['Content-Length: \x0b2'], 'xy'), bad],
  ['a length with a zero byte', post(['Content-Length: 2\0'], 'xy'), bad],
  ['a length in full-width digits', post(['Content-Length: \xef\xbc\x92'], 'xy'), bad],
  ['a folded length', post(['Content-Length:', ' 2'], 'xy'), bad],
  ['a blank before the colon of the length', post(['Content-Length : 2'], 'xy'), bad],
  ['Content_Length', post(['Content_Length: 2'], 'xy'), bad],
  ['Content_Length beside the right one', post(['Content_Length: 20', 'Content-Length: 2'], 'xy'), bad],
];

const codings: readonly Row[] = [
  ['chunks', chunked('2\r\nxy\r\n0\r\n\r\n'), read],
  ['chunks that look like a request', chunked(`${get().length.toString(16)}\r\n${get()}\r\n0\r\n\r\n`), read],
  ['length before coding', post(['Content-Length: 2', 'Transfer-Encoding: chunked'], '0\r\n\r\n'), bad],
  ['coding before length', post(['Transfer-Encoding: chunked', 'Content-Length: 5'], '0\r\n\r\n'), bad],
  ['coding and a length of 0', post(['Transfer-Encoding: chunked', 'Content-Length: 0'], '0\r\n\r\n'), bad],
  ['identity', post(['Transfer-Encoding: identity'], ''), bad],
  ['identity and a length', post(['Transfer-Encoding: identity', 'Content-Length: 2'], 'xy'), bad],
  ['xchunked', post(['Transfer-Encoding: xchunked'], '0\r\n\r\n'), bad],
  ['"chunked"', post(['Transfer-Encoding: "chunked"'], '0\r\n\r\n'), bad],
  ['Chunked', post(['Transfer-Encoding: Chunked'], '0\r\n\r\n'), bad],
  ['chunked;q=1', post(['Transfer-Encoding: chunked;q=1'], '0\r\n\r\n'), bad],
  ['an empty coding', post(['Transfer-Encoding:'], ''), bad],
  ['chunked, chunked', post(['Transfer-Encoding: chunked, chunked'], '0\r\n\r\n'), bad],
  ['chunked twice', post(['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], '0\r\n\r\n'), bad],
  ['chunked, identity', post(['Transfer-Encoding: chunked, identity'], '0\r\n\r\n'), bad],
  ['gzip, chunked', post(['Transfer-Encoding: gzip, chunked'], '0\r\n\r\n'), bad],
  ['gzip and then chunked', post(['Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'], '0\r\n\r\n'), bad],
  ['chunked and then identity', post(['Transfer-Encoding: chunked', 'Transfer-Encoding: identity'], '0\r\n\r\n'), bad],
  ['a comma before chunked', post(['Transfer-Encoding: , chunked'], '0\r\n\r\n'), bad],
  ['a vertical tab before chunked', post(['Transfer-Encoding: \x0bchunked'], '0\r\n\r\n'), bad],
  ['a zero byte after chunked', post(['Transfer-Encoding: chunked\0'], '0\r\n\r\n'), bad],
  ['a blank before the colon of the coding', post(['Transfer-Encoding : chunked'], '0\r\n\r\n'), bad],
  ['a folded coding', post(['Transfer-Encoding:', ' chunked'], '0\r\n\r\n'), bad],
  ['Transfer_Encoding', post(['Transfer_Encoding: chunked'], '0\r\n\r\n'), bad],
  [
    'a coding in HTTP/1.0',
    'POST /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n',
    bad,
  ],
  ['an extension: the parser hides it', chunked('2;a=b\r\nxy\r\n0;c\r\n\r\n'), read],
  ['a quoted extension: the parser hides it', chunked('2;a="b;c"\r\nxy\r\n0\r\n\r\n'), read],
  ['a trailer: dropped', chunked('2\r\nxy\r\n0\r\nService-ZDR: required\r\n\r\n'), read],
];

/** Wrong chunks come when their request has been answered by its head. */
const chunks: readonly Row[] = [
  ['a size of 0x2', chunked('0x2\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a size of +2', chunked('+2\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a size of -1', chunked('-1\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['an invalid size', chunked('g\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['an empty size', chunked('\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a size beyond 64 bits', chunked('fffffffffffffffff\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a blank before the size', chunked(' 2\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a blank after the size', chunked('2 \r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a zero byte after the size', chunked('2\0\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a line feed after the size', chunked('2\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a carriage return after the size', chunked('2\rxy\r\n0\r\n\r\n'), answeredByHead],
  ['a line feed after the chunk', chunked('2\r\nxy\n0\r\n\r\n'), answeredByHead],
  ['nothing after the chunk', chunked('2\r\nxy0\r\n\r\n'), answeredByHead],
  ['a chunk that is too long', chunked('2\r\nxyz\r\n0\r\n\r\n'), answeredByHead],
  ['a line feed at the end', chunked('2\r\nxy\r\n0\n\n'), answeredByHead],
  ['a line feed in an extension', chunked('2;a\nb\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['a line feed in a quoted extension', chunked('2;a="\n"\r\nxy\r\n0\r\n\r\n'), answeredByHead],
  ['an extension of 20 kB', chunked(`2;${'a'.repeat(20_000)}\r\nxy\r\n0\r\n\r\n`), answeredByHead],
  ['a length in the trailer', chunked('2\r\nxy\r\n0\r\nContent-Length: 3\r\n\r\n'), answeredByHead],
  ['a coding in the trailer', chunked('2\r\nxy\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n'), answeredByHead],
  ['a trailer of 20 kB', chunked(`0\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`), answeredByHead],
  ['no colon in the trailer', chunked('0\r\nX\r\n\r\n'), answeredByHead],
  ['a request for the last chunk', chunked(get()), answeredByHead],
];

/** Reliability §3.3: every case of the measured catalogue, what Node accepts of itself, and some more. */
export const catalogue: readonly Case[] = Object.entries({
  requestLines,
  lineEnds,
  headers,
  lengths,
  codings,
  chunks,
}).flatMap(([group, rows]) => rows.map(([what, bytes, outcome]) => ({ what: `${group}: ${what}`, bytes, outcome })));

/** Bytes that are not a valid HTTP/1.1 response. The message is fixed text: it never quotes the bytes. */
export class HttpFault extends Error {
  override readonly name = 'HttpFault';
}

/** The head of a final response. */
export interface AnswerHead {
  readonly status: number;
  /** By lower-case name; for repeated fields, the first value. */
  readonly fields: ReadonlyMap<string, string>;
}

/** A head with what it says about the connection and the body. */
interface ReadHead extends AnswerHead {
  readonly text: string;
  readonly isReusable: boolean;
  readonly keepAliveHintMs: number | undefined;
  readonly state: 'over' | 'size' | 'length' | 'until-close';
  /** Length of the body, if it is declared. */
  readonly bytes: number;
}

/** The last head of a server: until its date changes, the next one is the same, and need not be read again. */
export class LastHead {
  known: ReadHead | undefined;
}

export interface AnswerTaker {
  onHead(head: AnswerHead): void;
  /** Receives bytes of the body, which are only valid during the call. */
  onBody(bytes: Buffer, from: number, to: number): void;
}

type State =
  'head' | 'length' | 'until-close' | 'size' | 'extension' | 'size-end' | 'chunk' | 'chunk-end' | 'trailer' | 'over';

const headBytesMax = 16 * 1024;
const extensionBytesMax = 4 * 1024;
const cr = 13;
const lf = 10;

/**
 * Reads one response to a POST from the bytes of a connection, making the same calls no matter how they are split into reads. Strict (RFC
 * 9112): bytes that two readers could understand differently are a fault, after which the connection must not be used again (reliability
 * U14). It limits neither time nor size of a body: its handler does.
 */
export class AnswerReader {
  readonly #taker: AnswerTaker;
  readonly #heads: LastHead;
  #state: State = 'head';
  /** An incomplete head or trailer. */
  #text = '';
  /** Remaining bytes of the body or the chunk. */
  #bytesLeft = 0;
  #sizeDigits = 0;
  #extensionBytes = 0;
  #endBytes = 0;
  #isReusable = true;
  #keepAliveHintMs: number | undefined;

  constructor(taker: AnswerTaker, heads = new LastHead()) {
    this.#taker = taker;
    this.#heads = heads;
  }

  /** Whether the response is complete. */
  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** Whether the server allows another request on the connection after the response. */
  get isReusable(): boolean {
    return this.#isReusable;
  }

  /** How long the server says that it keeps an idle connection open. */
  get keepAliveHintMs(): number | undefined {
    return this.#keepAliveHintMs;
  }

  /** Returns how many of the bytes belong to the response: less than all only when it is over. */
  push(bytes: Buffer, length = bytes.length): number {
    let at = 0;
    while (at < length && this.#state !== 'over') at = this.#step(bytes, at, length);
    return at;
  }

  /** Called when the server has closed its side. */
  end(): void {
    if (this.#state === 'over') return;
    if (this.#state !== 'until-close') throw new HttpFault('the connection ended inside the answer');
    this.#state = 'over';
  }

  #step(bytes: Buffer, at: number, length: number): number {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes, at, length);
      case 'length': {
        const to = Math.min(length, at + this.#bytesLeft);
        this.#bytesLeft -= to - at;
        if (this.#bytesLeft === 0) this.#state = 'over';
        this.#taker.onBody(bytes, at, to);
        return to;
      }
      case 'until-close':
        this.#taker.onBody(bytes, at, length);
        return length;
      case 'size':
        return this.#readSize(bytes, at, length);
      case 'extension':
        return this.#skipExtension(bytes, at, length);
      case 'size-end':
        if (bytes[at] !== lf) throw new HttpFault('a chunk has no size');
        if (this.#bytesLeft > 0) this.#state = 'chunk';
        else {
          // Makes the end of an empty trailer look like that of one with fields.
          this.#text = '\r\n';
          this.#state = 'trailer';
        }
        return at + 1;
      case 'chunk': {
        const to = Math.min(length, at + this.#bytesLeft);
        this.#bytesLeft -= to - at;
        if (this.#bytesLeft === 0) {
          this.#state = 'chunk-end';
          this.#endBytes = 0;
        }
        this.#taker.onBody(bytes, at, to);
        return to;
      }
      case 'chunk-end':
        if (bytes[at] !== (this.#endBytes === 0 ? cr : lf)) throw new HttpFault('a chunk is longer than its size');
        if (++this.#endBytes === 2) {
          this.#state = 'size';
          this.#sizeDigits = 0;
        }
        return at + 1;
      case 'trailer':
        return this.#readTrailer(bytes, at, length);
      case 'over':
        return at;
    }
  }

  #readHead(bytes: Buffer, at: number, length: number): number {
    const to = headEnd(bytes, at, length);
    // Nearly always, the head came in one piece: decoding what follows it too cost as much as the whole answer.
    if (this.#text === '' && to !== -1) {
      const head = bytes.toString('latin1', at, to);
      if (!beginsAsAnswer(head)) throw new HttpFault('the answer is not HTTP/1');
      if (head.length - 4 > headBytesMax) throw new HttpFault('the head is too long');
      this.#takeHead(head.slice(0, -4));
      return to;
    }
    return this.#readHeadInPieces(bytes, at, length);
  }

  #readHeadInPieces(bytes: Buffer, at: number, length: number): number {
    const before = this.#text.length;
    this.#text += bytes.toString('latin1', at, length);
    if (!beginsAsAnswer(this.#text)) throw new HttpFault('the answer is not HTTP/1');
    const end = this.#text.indexOf('\r\n\r\n', Math.max(0, before - 3));
    if ((end === -1 ? this.#text.length : end) > headBytesMax) throw new HttpFault('the head is too long');
    if (end === -1) {
      refuseBareLineFeed(this.#text, before);
      return length;
    }
    const head = this.#text.slice(0, end);
    this.#text = '';
    this.#takeHead(head);
    return at + end + 4 - before;
  }

  #takeHead(text: string): void {
    const { known } = this.#heads;
    const head = known?.text === text ? known : (this.#heads.known = headOf(text));
    // Another head follows (RFC 9110 §15.2).
    if (head.status < 200) return;
    this.#isReusable = head.isReusable;
    this.#keepAliveHintMs = head.keepAliveHintMs;
    this.#state = head.state;
    this.#bytesLeft = head.bytes;
    this.#sizeDigits = 0;
    this.#taker.onHead(head);
  }

  #readSize(bytes: Buffer, at: number, length: number): number {
    for (; at < length; at++) {
      const byte = bytes[at]!;
      const digit = hexDigit(byte);
      if (digit !== -1) {
        if (++this.#sizeDigits > 8) throw new HttpFault('a chunk is too large');
        this.#bytesLeft = (this.#sizeDigits === 1 ? 0 : this.#bytesLeft) * 16 + digit;
        continue;
      }
      if (this.#sizeDigits === 0) throw new HttpFault('a chunk has no size');
      this.#extensionBytes = 0;
      if (byte === cr) this.#state = 'size-end';
      else if (byte === 59 /* ; */ || byte === 32 || byte === 9) this.#state = 'extension';
      else throw new HttpFault('a chunk has no size');
      return at + 1;
    }
    return at;
  }

  /** Skips extensions, which are ignored (RFC 9112 §7.1.1). */
  #skipExtension(bytes: Buffer, at: number, length: number): number {
    for (; at < length; at++) {
      const byte = bytes[at]!;
      if (++this.#extensionBytes > extensionBytesMax) throw new HttpFault('the extension of a chunk is too long');
      if (byte === cr) {
        this.#state = 'size-end';
        return at + 1;
      }
      if (byte < 32 && byte !== 9) throw new HttpFault('the extension of a chunk is malformed');
    }
    return at;
  }

  #readTrailer(bytes: Buffer, at: number, length: number): number {
    const before = this.#text.length;
    this.#text += bytes.toString('latin1', at, length);
    const end = this.#text.indexOf('\r\n\r\n', Math.max(0, before - 3));
    if ((end === -1 ? this.#text.length : end) > headBytesMax) throw new HttpFault('the trailer is too long');
    if (end === -1) {
      refuseBareLineFeed(this.#text, before);
      return length;
    }
    const fields = new Map<string, string>();
    for (const line of this.#text.slice(0, end).split('\r\n')) if (line !== '') takeField(line, fields);
    this.#text = '';
    this.#state = 'over';
    return at + end + 4 - before;
  }
}

/** Judges only the bytes received so far. */
function beginsAsAnswer(text: string): boolean {
  const start = 'HTTP/1.';
  return text.length < start.length ? start.startsWith(text) : text.startsWith(start);
}

/**
 * Refuses a bare line feed, which some parsers read as the end of a line (RFC 9112 §2.2); waiting for a proper one would take until a
 * deadline.
 */
function refuseBareLineFeed(text: string, from: number): void {
  for (let at = text.indexOf('\n', from); at !== -1; at = text.indexOf('\n', at + 1)) {
    if (text[at - 1] !== '\r') throw new HttpFault('a line of the head ends in a line feed alone');
  }
}

/** Returns where the head ends that began in these bytes; -1: it does not end in them. */
function headEnd(bytes: Buffer, from: number, length: number): number {
  for (let at = from + 3; at < length; at++)
    if (bytes[at] === lf && bytes[at - 1] === cr && bytes[at - 2] === lf && bytes[at - 3] === cr) return at + 1;
  return -1;
}

const statusLine = /^HTTP\/1\.([01]) (\d{3})(?: [\t\x20-\x7e\x80-\xff]*)?$/;
/** RFC 9110 §5.5 and §5.6.2; a continuation line (obs-fold) begins with a blank and does not match. */
const fieldLine = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)$/;

function takeField(line: string, fields: Map<string, string>): void {
  const [, name, value] = fieldLine.exec(line) ?? [];
  if (name === undefined || value === undefined) throw new HttpFault('a line of the head is not a field');
  const key = name.toLowerCase();
  // Two lengths, even equal ones, or two codings can be used for response smuggling.
  if (!fields.has(key)) fields.set(key, value.trim());
  else if (key === 'content-length' || key === 'transfer-encoding') {
    throw new HttpFault('the length of the answer is ambiguous');
  }
}

function headOf(text: string): ReadHead {
  const lines = text.split('\r\n');
  const [, minor, digits] = statusLine.exec(lines[0]!) ?? [];
  if (digits === undefined) throw new HttpFault('the status line is not HTTP/1');
  const status = Number(digits);
  if (status < 100 || status === 101) throw new HttpFault('the status is not a final status');
  const fields = new Map<string, string>();
  for (let i = 1; i < lines.length; i++) takeField(lines[i]!, fields);
  const isOld = minor === '0';
  const [, seconds] = /(?:^|[,\s])timeout=(\d{1,6})(?:$|[,\s])/i.exec(fields.get('keep-alive') ?? '') ?? [];
  const { state, bytes } = status < 200 ? noBody : bodyOf(status, isOld, fields);
  return {
    text,
    status,
    fields,
    isReusable: state !== 'until-close' && mayBeReused(isOld, fields.get('connection')),
    keepAliveHintMs: seconds === undefined ? undefined : Number(seconds) * 1_000,
    state,
    bytes,
  };
}

/** Determines how the body ends (RFC 9112 §6.3, without the allowances for old servers). */
function bodyOf(status: number, isOld: boolean, fields: AnswerHead['fields']): Pick<ReadHead, 'state' | 'bytes'> {
  const coding = fields.get('transfer-encoding');
  const declared = fields.get('content-length');
  if (coding !== undefined && (isOld || declared !== undefined || coding.toLowerCase() !== 'chunked')) {
    throw new HttpFault('the length of the answer is ambiguous');
  }
  if (declared !== undefined && !/^\d{1,15}$/.test(declared)) {
    throw new HttpFault('the length of the answer is not a number');
  }
  // These have no body, regardless of the head. Any following bytes end the connection.
  if (status === 204 || status === 304) return noBody;
  if (coding !== undefined) return { state: 'size', bytes: 0 };
  if (declared === undefined) return { state: 'until-close', bytes: 0 };
  const bytes = Number(declared);
  return bytes === 0 ? noBody : { state: 'length', bytes };
}

const noBody = { state: 'over', bytes: 0 } as const;

function mayBeReused(isOld: boolean, connection: string | undefined): boolean {
  if (connection === undefined) return !isOld;
  const options = connection.toLowerCase().split(/[\s,]+/);
  return isOld ? options.includes('keep-alive') : !options.includes('close');
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

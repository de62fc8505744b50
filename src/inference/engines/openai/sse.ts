import { isUtf8 } from 'node:buffer';

/** Bytes that are not the event stream they claim to be. The message is fixed text: it never quotes the stream. */
export class StreamFault extends Error {
  override readonly name = 'StreamFault';
}

/** Maximum size of an event (reliability U9). */
const eventCharactersMax = 4 * 1024 * 1024;

/**
 * Reads an event stream (the "server-sent events" chapter of the HTML standard) incrementally: the same events no matter how the bytes are
 * split into reads. It refuses what the standard would silently skip: invalid UTF-8, unknown lines, an event cut off at the end
 * (reliability U8).
 *
 * `onEvent` gets the data and, where the stream named one, the event's name.
 */
export class SseReader {
  readonly #onEvent: (data: string, name: string) => void;
  /** The beginning of a character that the last read split. */
  #cutBytes: Buffer | undefined;
  /** A line that has not ended yet. A rope: appending to it does not copy. */
  #line = '';
  #data: string | undefined;
  #name = '';
  #isFirstText = true;
  /** The last read ended in CR, so an LF at the start of the next one belongs to it. */
  #endedInCr = false;

  constructor(onEvent: (data: string, name: string) => void) {
    this.#onEvent = onEvent;
  }

  push(bytes: Buffer, from = 0, to = bytes.length): void {
    if (from === to) return;
    if (this.#cutBytes !== undefined || bytes[to - 1]! >= 0x80) {
      const whole = this.#wholeCharacters(bytes.subarray(from, to));
      this.#pushWhole(whole, 0, whole.length);
    } else this.#pushWhole(bytes, from, to);
  }

  #pushWhole(bytes: Buffer, from: number, to: number): void {
    const text = bytes.toString('utf8', from, to);
    // The decoder writes U+FFFD for invalid bytes; the check is free for text of one byte per character.
    if (text.includes('\ufffd') && !isUtf8(bytes.subarray(from, to))) this.#pushUpToFault(bytes.subarray(from, to));
    else if (text !== '') this.#pushText(text);
  }

  /** Processes the lines before the invalid one, which are valid no matter how the reads were split. */
  #pushUpToFault(bytes: Buffer): never {
    for (let from = 0; ;) {
      const end = bytes.indexOf(10, from);
      const line = bytes.subarray(from, end === -1 ? bytes.length : end + 1);
      if (end === -1 || !isUtf8(line)) throw new StreamFault('invalid UTF-8');
      this.#pushText(line.toString('utf8'));
      from = end + 1;
    }
  }

  #pushText(text: string): void {
    if (this.#isFirstText) {
      this.#isFirstText = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let from = 0;
    if (this.#endedInCr) {
      this.#endedInCr = false;
      if (text.charCodeAt(0) === 10) from = 1;
    }
    if (text.includes('\r')) this.#splitAnyEnd(text, from);
    else this.#split(text, from);
  }

  /** Ends the stream: a last event without its empty line counts too, if it is complete. */
  end(): void {
    if (this.#cutBytes !== undefined) throw new StreamFault('invalid UTF-8');
    if (this.#line !== '') {
      const line = this.#line;
      this.#line = '';
      this.#take(line);
    }
    this.#dispatch();
  }

  #split(text: string, from: number): void {
    for (;;) {
      const end = text.indexOf('\n', from);
      if (end === -1) return this.#keep(text, from);
      if (this.#isBetweenEvents && text.charCodeAt(end + 1) === 10 && text.startsWith('data: ', from)) {
        // A single-line event, like nearly all.
        this.#onEvent(text.slice(from + 6, end), '');
        from = end + 2;
      } else {
        this.#endLine(text.slice(from, end));
        from = end + 1;
      }
    }
  }

  get #isBetweenEvents(): boolean {
    return this.#line === '' && this.#data === undefined && this.#name === '';
  }

  #splitAnyEnd(text: string, from: number): void {
    for (;;) {
      let end = from;
      while (end < text.length && text.charCodeAt(end) !== 10 && text.charCodeAt(end) !== 13) end++;
      if (end === text.length) return this.#keep(text, from);
      this.#endLine(text.slice(from, end));
      from = end + 1;
      if (text.charCodeAt(end) === 13) {
        if (from === text.length) this.#endedInCr = true;
        else if (text.charCodeAt(from) === 10) from++;
      }
    }
  }

  #keep(text: string, from: number): void {
    if (from < text.length) this.#line += from === 0 ? text : text.slice(from);
    if (this.#line.length > eventCharactersMax) throw new StreamFault('an event is too long');
  }

  #endLine(rest: string): void {
    if (this.#line === '') return this.#take(rest);
    const line = this.#line + rest;
    this.#line = '';
    this.#take(line);
  }

  #take(line: string): void {
    if (line === '') return this.#dispatch();
    if (line.charCodeAt(0) === 58 /* : */) return;
    if (line.startsWith('data:')) return this.#addData(line.charCodeAt(5) === 32 ? line.slice(6) : line.slice(5));
    const colon = line.indexOf(':');
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(line.charCodeAt(colon + 1) === 32 ? colon + 2 : colon + 1);
    if (field === 'data') return this.#addData(value);
    if (field === 'event') this.#name = value;
    else if (field !== 'id' && field !== 'retry') throw new StreamFault('expected a line of an event stream');
  }

  #addData(value: string): void {
    this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
    if (this.#data.length > eventCharactersMax) throw new StreamFault('an event is too long');
  }

  #dispatch(): void {
    const data = this.#data;
    const name = this.#name;
    this.#data = undefined;
    this.#name = '';
    if (data !== undefined) this.#onEvent(data, name);
  }

  #wholeCharacters(bytes: Buffer): Buffer {
    if (this.#cutBytes !== undefined) {
      bytes = Buffer.concat([this.#cutBytes, bytes]);
      this.#cutBytes = undefined;
    }
    const cut = cutTailBytes(bytes);
    if (cut === 0) return bytes;
    // The bytes of a read are only valid during it.
    this.#cutBytes = Buffer.from(bytes.subarray(bytes.length - cut));
    return bytes.subarray(0, bytes.length - cut);
  }
}

/** Returns how many bytes at the end begin a character that continues in the next read. */
function cutTailBytes(bytes: Buffer): number {
  const length = bytes.length;
  if (length === 0 || bytes[length - 1]! < 0x80) return 0;
  for (let back = 1; back <= 3 && back <= length; back++) {
    const byte = bytes[length - back]!;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return back < size ? back : 0;
  }
  return 0;
}

/**
 * Server-sent events (HTML standard, "Interpreting an event stream") of a stream whose bytes may be anything: nothing grows without
 * end, and lines that make no sense are left out.
 */
export interface StreamEvent {
  /** Of its line `event:`; empty without one. */
  readonly name: string;
  readonly data: string;
}

/** Characters of one line, and of the data of one event. */
export const eventCharactersMax = 4_000_000;

/** Thrown: the stream is none that a page can take. */
export class StreamFault extends Error {}

/** Reads a stream in the pieces in which it comes. */
export class EventReader {
  /** Pieces of a line that has not ended. */
  #line: string[] = [];
  #lineCharacters = 0;
  #endedInReturn = false;
  #name = '';
  #data: string[] = [];
  #dataCharacters = 0;

  /** The events that this piece completes. Throws `StreamFault`. */
  read(piece: string): readonly StreamEvent[] {
    const events: StreamEvent[] = [];
    // A line's end of two characters may be cut in two.
    const text = this.#endedInReturn && piece.startsWith('\n') ? piece.slice(1) : piece;
    if (piece !== '') this.#endedInReturn = piece.endsWith('\r');
    let from = 0;
    for (const { 0: end, index } of text.matchAll(/\r\n|\r|\n/g)) {
      this.#extend(text.slice(from, index));
      from = index + end.length;
      const event = this.#endLine();
      if (event !== undefined) events.push(event);
    }
    this.#extend(text.slice(from));
    return events;
  }

  #extend(piece: string): void {
    if (piece === '') return;
    this.#lineCharacters += piece.length;
    if (this.#lineCharacters > eventCharactersMax) throw tooLong();
    this.#line.push(piece);
  }

  /** An empty line ends an event; one without data is none. */
  #endLine(): StreamEvent | undefined {
    const line = this.#line.length === 1 ? this.#line[0]! : this.#line.join('');
    this.#line = [];
    this.#lineCharacters = 0;
    if (line !== '') {
      this.#field(line);
      return undefined;
    }
    const event = this.#data.length === 0 ? undefined : { name: this.#name, data: this.#data.join('\n') };
    this.#name = '';
    this.#data = [];
    this.#dataCharacters = 0;
    return event;
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'event') this.#name = value;
    if (field !== 'data') return;
    this.#dataCharacters += value.length + 1;
    if (this.#dataCharacters > eventCharactersMax) throw tooLong();
    this.#data.push(value);
  }
}

const tooLong = (): StreamFault =>
  new StreamFault(`An event of the stream is longer than ${eventCharactersMax} characters.`);

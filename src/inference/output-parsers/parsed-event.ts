/** What a parser finds in generated text. Calls count from 0; the caller makes their ids. */
export type ParsedEvent =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'tool-call'; readonly call: number; readonly name: string }
  | { readonly type: 'tool-arguments'; readonly call: number; readonly text: string };

/** Collects events and merges adjacent ones of one kind, so that splits in the text do not show. */
export class EventSink {
  #events: ParsedEvent[] = [];
  #calls = 0;
  #dropsText = false;

  /** Number of announced calls. */
  get calls(): number {
    return this.#calls;
  }

  /** Whether nothing from here on can be text. */
  get dropsText(): boolean {
    return this.#dropsText;
  }

  dropText(): void {
    this.#dropsText = true;
  }

  text(text: string): void {
    const last = this.#events.at(-1);
    if (text === '' || this.#dropsText) return;
    if (last?.type === 'text') this.#events[this.#events.length - 1] = { type: 'text', text: last.text + text };
    else this.#events.push({ type: 'text', text });
  }

  reasoning(text: string): void {
    const last = this.#events.at(-1);
    if (text === '') return;
    if (last?.type === 'reasoning')
      this.#events[this.#events.length - 1] = { type: 'reasoning', text: last.text + text };
    else this.#events.push({ type: 'reasoning', text });
  }

  call(name: string): void {
    this.#events.push({ type: 'tool-call', call: this.#calls++, name });
  }

  /** Appends to the last call's arguments. */
  arguments(text: string): void {
    const last = this.#events.at(-1);
    const call = this.#calls - 1;
    if (text === '') return;
    if (last?.type === 'tool-arguments')
      this.#events[this.#events.length - 1] = { type: 'tool-arguments', call, text: last.text + text };
    else this.#events.push({ type: 'tool-arguments', call, text });
  }

  /** Returns the events since the last call of this function. */
  drain(): readonly ParsedEvent[] {
    const events = this.#events;
    if (events.length > 0) this.#events = [];
    return events;
  }
}

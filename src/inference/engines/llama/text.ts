/**
 * Turns tokens into text as they come. Characters split across tokens are held back until they are complete, and vocabularies in which a
 * token's text depends on what precedes it (SentencePiece drops the first blank) come out as if everything had been decoded together.
 */
export class IncrementalText {
  readonly #detokenize: (ids: readonly number[]) => string;
  readonly #literals: ReadonlyMap<number, string>;
  /** Tokens whose text has been sent completely; they only give context to the following ones. */
  #context: readonly number[] = [];
  #contextLength = 0;
  #pending: number[] = [];
  /** Characters of the pending tokens' text that have already been sent. */
  #sent = 0;

  /** `literals`: texts for tokens that have none themselves, such as control tokens around calls and reasoning. */
  constructor(
    detokenize: (ids: readonly number[]) => string,
    literals: ReadonlyMap<number, string> = new Map<number, string>(),
    context: readonly number[] = [],
  ) {
    this.#detokenize = detokenize;
    this.#literals = literals;
    this.#context = context;
    this.#contextLength = context.length === 0 ? 0 : detokenize(context).length;
  }

  push(id: number): string {
    const literal = this.#literals.get(id);
    if (literal !== undefined) return this.flush() + literal;
    this.#pending.push(id);
    const text = this.#detokenize([...this.#context, ...this.#pending]).slice(this.#contextLength);
    const cut = text.endsWith(replacement) && this.#pending.length < pendingMax;
    const ready = text.slice(this.#sent, cut ? text.length - 1 : text.length);
    if (cut) this.#sent = Math.max(this.#sent, text.length - 1);
    else this.#settle();
    return ready;
  }

  /** Returns the rest when no token follows: an incomplete character becomes U+FFFD. */
  flush(): string {
    if (this.#pending.length === 0) return '';
    const text = this.#detokenize([...this.#context, ...this.#pending]).slice(this.#contextLength + this.#sent);
    this.#settle();
    return text;
  }

  #settle(): void {
    this.#context = this.#pending;
    this.#contextLength = this.#detokenize(this.#context).length;
    this.#pending = [];
    this.#sent = 0;
  }
}

const replacement = '\uFFFD';
/** Bytes that never become a character (from a model gone astray) must not accumulate without bound. */
const pendingMax = 64;

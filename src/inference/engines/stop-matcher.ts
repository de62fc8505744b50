/**
 * Finds stop sequences in text that arrives in pieces. Text that may be the beginning of one is held back, so no part of a stop sequence is
 * ever sent. The first sequence that is complete wins; of several that are complete at the same character, the longest. How the text was
 * split into pieces makes no difference.
 */
export class StopMatcher {
  readonly #sequences: readonly string[];
  #held = '';

  constructor(sequences: readonly string[]) {
    this.#sequences = sequences.filter((sequence) => sequence !== '');
  }

  /** Returns the text that can be sent now, and the stop sequence if one was found. Nothing may be pushed after a match. */
  push(text: string): { readonly text: string; readonly matched?: string } {
    if (this.#sequences.length === 0) return { text };
    const whole = this.#held + text;
    let match: { readonly sequence: string; readonly end: number } | undefined;
    for (const sequence of this.#sequences) {
      const at = whole.indexOf(sequence);
      if (at < 0) continue;
      const end = at + sequence.length;
      if (match === undefined || end < match.end || (end === match.end && sequence.length > match.sequence.length)) {
        match = { sequence, end };
      }
    }
    if (match !== undefined) {
      this.#held = '';
      return { text: whole.slice(0, match.end - match.sequence.length), matched: match.sequence };
    }
    const keep = this.#beginningAtEnd(whole);
    this.#held = keep === 0 ? '' : whole.slice(-keep);
    return { text: keep === 0 ? whole : whole.slice(0, -keep) };
  }

  /** Returns the held text when the text ends without a stop sequence. */
  flush(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }

  /** Returns the length of the longest suffix of `text` that begins a stop sequence. */
  #beginningAtEnd(text: string): number {
    let longest = 0;
    for (const sequence of this.#sequences) {
      for (let length = Math.min(sequence.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(sequence.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}

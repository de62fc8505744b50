import type { PromptToken, TokenLogprob } from '../../../generation/event.ts';

/** A token and the offset in the choice's text at which it begins, in characters. */
export interface PlacedToken {
  readonly token: PromptToken;
  readonly offset: number;
}

/**
 * Computes where the tokens of one choice begin in its text, in characters (code points, as servers with this API count), however the text
 * is split into events. The text has two parts: the echoed prompt, and the answer; engines count from the beginning of each.
 */
export class TextOffsets {
  /** Length of the text before this event: characters in total, and UTF-16 code units of this part. */
  #characters = 0;
  #units = 0;
  /** Where the next token begins if the engine does not report it: after the text of the previous one. */
  #guess = 0;

  /** Places the tokens that came with a piece of the text. */
  of<Token extends PromptToken = TokenLogprob>(text: string, tokens: readonly Token[]): readonly PlacedToken[] {
    const placed: PlacedToken[] = [];
    let units = 0;
    let characters = 0;
    const walkTo = (to: number): void => {
      if (to <= units) return;
      characters += characterCount(text.slice(units, to));
      units = to;
    };
    for (const token of tokens) {
      if (token.start === undefined) {
        placed.push({ token, offset: this.#guess });
        this.#guess += characterCount(token.token);
        continue;
      }
      walkTo(Math.min(token.start - this.#units, text.length));
      placed.push({ token, offset: this.#characters + characters });
    }
    walkTo(text.length);
    this.#characters += characters;
    this.#units += text.length;
    return placed;
  }

  /** Ends the prompt; the answer follows. */
  endPart(): void {
    this.#units = 0;
    this.#guess = this.#characters;
  }
}

/** Counts code points; without surrogates that is the length. */
function characterCount(text: string): number {
  if (!/[\ud800-\udfff]/.test(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

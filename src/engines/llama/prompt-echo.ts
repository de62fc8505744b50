import type { PromptToken, ReadPrompt, TokenProbability } from '../../generation/event.ts';
import type { TokenOdds } from './bindings.ts';
import { IncrementalText } from './text.ts';

/** What of a prompt its choice is to be told of. */
export interface PromptEchoOptions {
  readonly ids: readonly number[];
  /** As the client wrote it; `undefined`: it wrote ids. */
  readonly text: string | undefined;
  readonly echo: boolean;
  readonly tellsIds: boolean;
  readonly detokenize: (ids: readonly number[]) => string;
  readonly literals: ReadonlyMap<number, string>;
  /** Present when probabilities are wanted. */
  readonly bytesOf: ((id: number) => readonly number[]) | undefined;
}

/** The prompt of one choice on its way back to the client (contracts §1.1, `echo` and `return_token_ids`). */
export class PromptEcho {
  readonly #options: PromptEchoOptions;
  /** Of the second token, the third, and so on. */
  readonly #odds: TokenOdds[] = [];

  constructor(options: PromptEchoOptions) {
    this.#options = options;
  }

  /** How likely the next token of the prompt was. */
  push(odds: TokenOdds): void {
    this.#odds.push(odds);
  }

  read(): ReadPrompt {
    const { ids, text, echo, tellsIds, bytesOf } = this.#options;
    const tokenIds = tellsIds ? { tokenIds: ids } : {};
    if (!echo) return { text: '', ...tokenIds };
    const { starts, text: read } = this.#texts();
    const shown = text ?? read;
    if (bytesOf === undefined) return { text: shown, ...tokenIds };
    const tokens = ids.map((id, index): PromptToken => {
      const odds = index === 0 ? undefined : this.#odds[index - 1];
      return {
        ...tokenOf(id, bytesOf),
        logprob: odds?.logprob,
        top: (odds?.top ?? []).map((other) => ({ ...tokenOf(other.id, bytesOf), logprob: other.logprob })),
        // What the vocabulary makes of a text is as long as the text but for odd characters.
        start: Math.min(starts[index] ?? 0, shown.length),
      };
    });
    return { text: shown, ...tokenIds, tokens };
  }

  #texts(): { readonly text: string; readonly starts: readonly number[] } {
    const { ids, detokenize, literals } = this.#options;
    const reader = new IncrementalText(detokenize, literals);
    const starts: number[] = [];
    let text = '';
    for (const id of ids) {
      starts.push(text.length);
      text += reader.push(id);
    }
    return { text: text + reader.flush(), starts };
  }
}

function tokenOf(id: number, bytesOf: (id: number) => readonly number[]): Omit<TokenProbability, 'logprob'> {
  const bytes = bytesOf(id);
  return { token: Buffer.from(bytes).toString(), tokenId: id, bytes };
}

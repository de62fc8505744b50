import type { PromptToken, ReadPrompt, TokenProbability } from '../../../generation/event.ts';
import type { TokenLogprobs } from './llama-model.ts';
import { IncrementalText } from './text.ts';

/** What a choice reports about its prompt. */
export interface PromptEchoOptions {
  readonly ids: readonly number[];
  /** The client's text; `undefined`: the client sent ids. */
  readonly text: string | undefined;
  readonly echo: boolean;
  readonly returnsIds: boolean;
  readonly detokenize: (ids: readonly number[]) => string;
  readonly literals: ReadonlyMap<number, string>;
  /** Present if probabilities are wanted. */
  readonly bytesOf: ((id: number) => readonly number[]) | undefined;
}

/** The prompt of one choice, to be returned to the client (contracts §1.1, `echo` and `return_token_ids`). */
export class PromptEcho {
  readonly #options: PromptEchoOptions;
  /** Probabilities of the second token, the third, and so on. */
  readonly #logprobs: TokenLogprobs[] = [];

  constructor(options: PromptEchoOptions) {
    this.#options = options;
  }

  /** Adds the probability of the prompt's next token. */
  push(logprobs: TokenLogprobs): void {
    this.#logprobs.push(logprobs);
  }

  read(): ReadPrompt {
    const { ids, text, echo, returnsIds, bytesOf } = this.#options;
    const tokenIds = returnsIds ? { tokenIds: ids } : {};
    if (!echo) return { text: '', ...tokenIds };
    const { starts, text: read } = this.#texts();
    const shown = text ?? read;
    if (bytesOf === undefined) return { text: shown, ...tokenIds };
    const tokens = ids.map((id, index): PromptToken => {
      const logprobs = index === 0 ? undefined : this.#logprobs[index - 1];
      return {
        ...tokenOf(id, bytesOf),
        logprob: logprobs?.logprob,
        top: (logprobs?.top ?? []).map((other) => ({ ...tokenOf(other.id, bytesOf), logprob: other.logprob })),
        // Joined token texts are as long as the prompt's text, except for unusual characters.
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

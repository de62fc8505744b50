import type { PromptToken, ReadPrompt, TokenLogprob } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { StreamFault } from './sse.ts';

/** The first text of a choice from a server that echoes: the prompt and the beginning of the answer together. */
export interface EchoedPiece {
  readonly text: string;
  /** Tokens of all the text; the first token of a prompt has no logprob, which is `undefined` here. */
  readonly tokens: readonly PromptToken[];
  readonly promptIds: readonly number[] | undefined;
}

/**
 * Separates the prompt from the answer. The prompt's number of tokens is known from its ids, or from where the logprobs of a text reach its
 * end. Throws `StreamFault` if they cannot be separated, because then every figure would be wrong.
 */
export function splitEcho(
  piece: EchoedPiece,
  prompt: string | readonly number[],
): { readonly prompt: ReadPrompt; readonly text: string; readonly tokens: readonly TokenLogprob[] } {
  const { text, tokens, promptIds } = piece;
  const count = promptIds?.length ?? (typeof prompt === 'string' ? tokensOfText(tokens, prompt) : prompt.length);
  if (count > tokens.length) throw new StreamFault('the echo has fewer tokens than the prompt');
  const ofPrompt = tokens.slice(0, count);
  const ofAnswer = tokens.slice(count) as TokenLogprob[];
  const joined = textOf(ofPrompt);
  const answer = textOf(ofAnswer);
  const shown = typeof prompt === 'string' ? prompt : undefined;
  let split: readonly [prompt: string, answer: string] | undefined;
  for (const beginning of [shown, joined]) {
    if (split === undefined && beginning !== undefined && beginning !== '' && text.startsWith(beginning))
      split = [beginning, text.slice(beginning.length)];
  }
  // vLLM omits the prompt's text when its ids are returned; SGLang omits the texts of special tokens.
  if (split === undefined && text.endsWith(answer)) {
    const beginning = text.slice(0, text.length - answer.length);
    split = [shown ?? (beginning === '' ? joined : beginning), answer];
  }
  if (split === undefined) throw new StreamFault('the echo cannot be separated from the answer');
  return {
    prompt: {
      text: split[0],
      ...(promptIds === undefined ? {} : { tokenIds: promptIds }),
      tokens: placed(split[0], ofPrompt),
    },
    text: split[1],
    tokens: ofAnswer,
  };
}

/** Adds where each token begins in the text, as far as their texts are found in it in order. */
export function placed<Token extends PromptToken>(text: string, tokens: readonly Token[], from = 0): Token[] {
  let at = 0;
  return tokens.map((token) => {
    const start = from + at;
    if (text.startsWith(token.token, at)) at += token.token.length;
    return { ...token, start };
  });
}

/** Returns the prompt that can be reported to a choice without its server: a text that precedes its answer. */
export function ownEcho({ prompt, tokens }: EngineRequest, index: number): ReadPrompt | undefined {
  return tokens?.echo === true && prompt.type === 'texts' ? { text: prompt.prompts[index] ?? '' } : undefined;
}

/** Returns how many tokens it takes to reach the end of a text; special tokens before it have a text that does not appear in it. */
function tokensOfText(tokens: readonly PromptToken[], text: string): number {
  let at = 0;
  for (const [index, { token }] of tokens.entries()) {
    if (text.startsWith(token, at)) at += token.length;
    if (at >= text.length) return index + 1;
  }
  throw new StreamFault('the echo is not the prompt');
}

const textOf = (tokens: readonly PromptToken[]): string => tokens.reduce((text, { token }) => text + token, '');

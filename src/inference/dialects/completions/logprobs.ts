import type { TokenProbability } from '../../../generation/event.ts';
import type { PlacedToken } from './text-offsets.ts';

export interface LogprobsForm {
  /** Number of alternatives per token. */
  readonly top: number;
  /** Whether tokens are written as `token_id:7`. */
  readonly namesIds: boolean;
}

/** Encodes four lists of the same length (contracts §1.1). The first token of a prompt has no probability: null. */
export function encodeLogprobs(placed: readonly PlacedToken[], { top, namesIds }: LogprobsForm) {
  const nameOf = ({ token, tokenId }: Pick<TokenProbability, 'token' | 'tokenId'>): string =>
    namesIds && tokenId !== undefined ? `token_id:${tokenId}` : token;
  const alternativesOf = ({ token }: PlacedToken) => {
    const { logprob } = token;
    if (logprob === undefined) return null;
    // Two tokens may have the same text, each being half a character: the likelier one, which comes first, keeps the name.
    const named = new Map<string, number>();
    for (const other of token.top.slice(0, top)) {
      const name = nameOf(other);
      if (!named.has(name)) named.set(name, finite(other.logprob));
    }
    // The chosen token is always among them.
    named.set(nameOf(token), finite(logprob));
    return Object.fromEntries(named);
  };
  return {
    tokens: placed.map(({ token }) => nameOf(token)),
    token_logprobs: placed.map(({ token }) => (token.logprob === undefined ? null : finite(token.logprob))),
    top_logprobs: placed.map(alternativesOf),
    text_offset: placed.map(({ offset }) => offset),
  };
}

/** JSON has no infinities; this is the value other servers write for a token that could not be chosen. */
const finite = (logprob: number): number => Math.max(logprob, -9999);

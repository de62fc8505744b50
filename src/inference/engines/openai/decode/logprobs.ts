import type { PromptToken, TokenLogprob, TokenProbability } from '../../../../generation/event.ts';
import { StreamFault } from '../sse.ts';
import { isObject, text, type JsonObject } from './json.ts';

/** Reads both shapes: chat's list of tokens, and the parallel arrays of text completions. */
export function logprobsOf(raw: unknown, topMax: number): readonly TokenLogprob[] | undefined {
  if (!isObject(raw)) return undefined;
  const { content, tokens } = raw;
  if (Array.isArray(content)) return content.map((one) => chatLogprob(one, topMax));
  if (!Array.isArray(tokens)) return undefined;
  const values = Array.isArray(raw['token_logprobs']) ? raw['token_logprobs'] : [];
  const tops = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return tokens.map((token: unknown, i) => ({
    token: text(token),
    tokenId: undefined,
    bytes: undefined,
    logprob: logprob(values[i]),
    top: isObject(tops[i])
      ? Object.entries(tops[i]).map(([top, value]) => ({
          token: top,
          tokenId: undefined,
          bytes: undefined,
          logprob: logprob(value),
        }))
      : [],
  }));
}

/** Replaces half a character in a token's text by U+FFFD; the token's bytes say more, if the backend sends them. */
export function wholeToken<Token extends PromptToken>(token: Token): Token {
  const isWhole = token.token.isWellFormed() && token.top.every((top) => top.token.isWellFormed());
  return isWhole ? token : { ...wellFormed(token), top: token.top.map(wellFormed) };
}

const wellFormed = <Token extends { readonly token: string }>(token: Token): Token => ({
  ...token,
  token: token.token.toWellFormed(),
});

/** Reads tokens with their logprobs; the first may have none because nothing precedes it. */
export function promptTokensOf(raw: unknown, topMax: number): readonly PromptToken[] | undefined {
  const found = logprobsOf(raw, topMax);
  const values: unknown = isObject(raw) ? raw['token_logprobs'] : undefined;
  return found?.map((token, index): PromptToken => {
    // vLLM names tokens this way on request.
    const [, id] = /^token_id:(\d{1,9})$/.exec(token.token) ?? [];
    const named = id === undefined ? token : { ...token, tokenId: Number(id), top: token.top.map(withId) };
    return index === 0 && Array.isArray(values) && values[0] === null ? { ...named, logprob: undefined } : named;
  });
}

function withId(token: TokenProbability): TokenProbability {
  const [, id] = /^token_id:(\d{1,9})$/.exec(token.token) ?? [];
  return id === undefined ? token : { ...token, tokenId: Number(id) };
}

function chatLogprob(raw: unknown, topMax: number): TokenLogprob {
  if (!isObject(raw)) throw new StreamFault('expected an object as logprob');
  const top: unknown[] = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return { ...tokenOf(raw), top: top.filter(isObject).slice(0, topMax).map(tokenOf) };
}

function tokenOf(raw: JsonObject): TokenProbability {
  const { id, bytes } = raw;
  return {
    token: text(raw['token']),
    tokenId: Number.isInteger(id) ? (id as number) : undefined,
    bytes: Array.isArray(bytes) && bytes.every(isByte) ? bytes : undefined,
    logprob: logprob(raw['logprob']),
  };
}

const isByte = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < 256;

/** JSON has no −∞; servers write −9999 or null instead. */
function logprob(value: unknown): number {
  return typeof value === 'number' ? Math.min(value, 0) : -9_999;
}

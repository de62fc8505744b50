import type { PromptToken, ReadPrompt, TokenLogprob, TokenProbability } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';

/** The scripted engine's token ids are below this. */
export const vocabularySize = 65_536;

/** Returns the id of a piece of text: always the same, and mostly different for other pieces (FNV-1a, 16 of its bits). */
export function idOf(piece: string | Buffer): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(piece as string)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return (hash ^ (hash >>> 16)) % vocabularySize;
}

/** Returns the prompt as reported to a choice, counted as in `promptTokensOf`: four bytes of text are a token. */
export function readPrompt(request: EngineRequest, index: number): ReadPrompt | undefined {
  const { prompt, tokens, logprobs } = request;
  if (tokens === undefined || prompt.type === 'messages' || (!tokens.echo && !tokens.returnsIds)) return undefined;
  const pieces = prompt.type === 'texts' ? piecesOf(prompt.prompts[index] ?? '') : wordsOf(prompt.prompts[index] ?? []);
  const tokenIds = tokens.returnsIds ? { tokenIds: pieces.map(({ id }) => id) } : {};
  if (!tokens.echo) return { text: '', ...tokenIds };
  const text = Buffer.concat(pieces.map(({ bytes }) => bytes)).toString();
  if (logprobs === undefined) return { text, ...tokenIds };
  return { text, ...tokenIds, tokens: pieces.map((piece, at) => promptToken(piece, at, logprobs)) };
}

/** Returns a made-up probability, derived from the token's position in its text. */
export function logprobOf(text: string, at: number, start: number, top: number): TokenLogprob {
  return { ...probability(Buffer.from(text), idOf(text), at), top: alternatives(Buffer.from(text), at, top), start };
}

interface Piece {
  readonly id: number;
  readonly bytes: Buffer;
  readonly start: number;
}

function piecesOf(text: string): readonly Piece[] {
  const all = Buffer.from(text);
  return Array.from({ length: Math.ceil(all.length / 4) }, (_, index): Piece => {
    const bytes = all.subarray(4 * index, 4 * index + 4);
    // Back to the character in which the piece begins.
    let from = 4 * index;
    while (from > 0 && (all[from]! & 0xc0) === 0x80) from--;
    return { id: idOf(bytes), bytes, start: all.toString('utf8', 0, from).length };
  });
}

/** Returns a client's ids, which have no meaning here, as numbers. */
function wordsOf(ids: readonly number[]): readonly Piece[] {
  let start = 0;
  return ids.map((id) => {
    const bytes = Buffer.from(` ${id}`);
    const piece = { id, bytes, start };
    start += bytes.length;
    return piece;
  });
}

function promptToken({ id, bytes, start }: Piece, at: number, top: number): PromptToken {
  const known = probability(bytes, id, at);
  return at === 0
    ? { ...known, logprob: undefined, top: [], start }
    : { ...known, top: alternatives(bytes, at, top), start };
}

/** Exact in binary, so that they look the same in every test. */
const probability = (bytes: Buffer, tokenId: number, at: number): TokenProbability => ({
  token: bytes.toString(),
  tokenId,
  bytes: [...bytes],
  logprob: -((at % 4) + 1) / 8,
});

const alternatives = (bytes: Buffer, at: number, top: number): readonly TokenProbability[] =>
  Array.from({ length: top }, (_, index): TokenProbability => {
    if (index === 0) return probability(bytes, idOf(bytes), at);
    const other = Buffer.from(` other${index}`);
    return { ...probability(other, idOf(other), at), logprob: -(index + 1) };
  });

import { shallowTokens, tileTokens } from './prompt-batch-tuner.ts';

/** A prompt being read. */
export interface Reading {
  readonly slot: { readonly index: number; readonly tokens: readonly number[] };
  readonly run: { readonly job: { readonly prompt: readonly number[]; readonly scoresPrompt?: boolean } };
}

type Planned<Item> = Item & { readonly tokens: number };

/**
 * Returns the pieces of prompts for one step, in order, next to answers with one token each: `tokens` in total, or up to `tokensMax` to
 * complete tiles. A rest smaller than a tile joins the piece before it.
 */
export function piecesOf<Item extends Reading>(
  readings: readonly Item[],
  {
    tokens,
    tokensMax,
    writers,
  }: { readonly tokens: number; readonly tokensMax: number; readonly writers: readonly number[] },
): readonly Planned<Item>[] {
  const pieces: Planned<Item>[] = [];
  let room = Math.min(tokens, tokensMax);
  let capacity = tokensMax;
  for (const item of readings) {
    if (room <= 0) break;
    const left = item.run.job.prompt.length - item.slot.tokens.length;
    const scored = item.run.job.scoresPrompt === true;
    let piece = Math.min(room, left, scored ? scoredTokensMax : left);
    const rest = left - piece;
    const isDeep = item.slot.tokens.length + piece >= shallowTokens;
    if (!scored && isDeep && rest > 0) {
      if (rest < tileTokens && left <= capacity) piece = left;
      // llama.cpp computes one token of each of several neighbours together, and the rest of the piece after that.
      else if (piece % tileTokens === 0 && piece < capacity && isNeighbour(item.slot.index, readings, writers)) piece++;
    }
    pieces.push({ ...item, tokens: piece });
    room -= piece;
    capacity -= piece;
  }
  return pieces;
}

/** Returns whether an answer being written is next to this slot, or connected to it by other slots in the step. */
function isNeighbour(index: number, readings: readonly Reading[], writers: readonly number[]): boolean {
  const used = new Set([...writers, ...readings.map(({ slot }) => slot.index)]);
  return [-1, 1].some((way) => {
    let place = index + way;
    while (used.has(place) && !writers.includes(place)) place += way;
    return writers.includes(place);
  });
}

/** Computing a token's probability costs 3 ms at 49,000 tokens of vocabulary, and others wait meanwhile. */
const scoredTokensMax = 16;

/**
 * Sorts sequences by number. llama.cpp computes sequences together only if their numbers are consecutive (`split_equal` in
 * llama-batch.cpp): four in other places or in another order are computed one after the other, reading the weights four times.
 */
export const inOrder = <Item extends { readonly slot: { readonly index: number } }>(
  items: readonly Item[],
): readonly Item[] => items.toSorted((one, other) => one.slot.index - other.slot.index);

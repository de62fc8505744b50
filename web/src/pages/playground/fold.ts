import type { Block } from './conversation.ts';
import type { Delta, Usage } from './families/family.ts';
import { StreamFault } from '../../api/sse.ts';

/** What has been read of an answer. Each delta makes a new one; what did not change stays the same object. */
export interface Read {
  readonly blocks: readonly Block[];
  /** Deltas with content: about as many as tokens, until the usage says how many. */
  readonly pieces: number;
  readonly characters: number;
  readonly finish: string | undefined;
  readonly usage: Usage | undefined;
  /** As the API has written it. */
  readonly error: unknown;
}

export const nothingRead: Read = {
  blocks: [],
  pieces: 0,
  characters: 0,
  finish: undefined,
  usage: undefined,
  error: undefined,
};

/** Of one answer: more than any model writes, and what a page can still show. */
export const answerCharactersMax = 8_000_000;
const blocksMax = 10_000;

/** Throws `StreamFault` when the answer does not end. */
export function fold(read: Read, delta: Delta): Read {
  switch (delta.kind) {
    case 'text':
    case 'reasoning':
      return grown(read, withText(read.blocks, delta.kind, delta.text), delta.text);
    case 'call': {
      const { call: key, id, name } = delta;
      return grown(read, [...read.blocks, { kind: 'call', key, id, name, arguments: '' }], '');
    }
    case 'arguments':
      return grown(read, withArguments(read.blocks, delta.call, delta.text), delta.text);
    case 'finish':
      return { ...read, finish: delta.reason };
    case 'usage':
      return { ...read, usage: delta.usage };
    case 'error':
      return { ...read, error: read.error ?? delta.error };
  }
}

function grown(read: Read, blocks: readonly Block[], text: string): Read {
  const characters = read.characters + text.length;
  if (characters > answerCharactersMax || blocks.length > blocksMax)
    throw new StreamFault('The answer is longer than this page can show.');
  return { ...read, blocks, characters, pieces: read.pieces + 1 };
}

function withText(blocks: readonly Block[], kind: 'text' | 'reasoning', text: string): readonly Block[] {
  const last = blocks.at(-1);
  if (last?.kind !== kind) return [...blocks, { kind, text }];
  return [...blocks.slice(0, -1), { kind, text: last.text + text }];
}

/** Of a call that was never named nothing is kept. */
const withArguments = (blocks: readonly Block[], key: string, text: string): readonly Block[] =>
  blocks.map((block) =>
    block.kind === 'call' && block.key === key ? { ...block, arguments: block.arguments + text } : block,
  );

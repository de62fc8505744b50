import type { TokenLogprob, TokenProbability } from '../../../generation/event.ts';
import type { Block } from '../../../generation/fold.ts';
import type { ResponseHead } from '../dialect.ts';

/** The status of an output item. */
export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A block that becomes an item, with the fields that only this API has. */
export interface OutputBlock {
  readonly block: Block;
  readonly logprobs: readonly TokenLogprob[];
}

/** An answer without any content is a message without text: clients expect a first item. */
export const emptyMessage = (): OutputBlock => ({ block: { type: 'text', text: '' }, logprobs: [] });

/** The items of a whole answer, the same as in its stream. */
export const outputBlocks = (blocks: readonly Block[]): readonly OutputBlock[] =>
  blocks.length === 0
    ? [emptyMessage()]
    : blocks.map((block) => ({ block, logprobs: block.type === 'text' ? (block.logprobs ?? []) : [] }));

/** Derives an item's id from the answer's, so that every event and the final object use the same one. */
export function itemId({ type }: Block, index: number, head: ResponseHead): string {
  switch (type) {
    case 'text':
      return `msg_${head.id}_${index}`;
    case 'reasoning':
      return `rs_${head.id}_${index}`;
    case 'tool-call':
      return `fc_${head.id}_${index}`;
  }
}

/** Encodes an item of an answer. `encrypted`: its text, readable only by this service, if the client wants it. */
export function encodeItem({ block, logprobs }: OutputBlock, id: string, status: ItemStatus, encrypted?: string) {
  switch (block.type) {
    case 'text':
      return {
        id,
        type: 'message',
        status,
        role: 'assistant',
        content: [textPart(block.text, logprobs)],
      };
    case 'reasoning':
      // The whole text is the summary (contracts decision 4); `encrypted_content: null` would be wrong (§0.12).
      return {
        id,
        type: 'reasoning',
        summary: [summaryPart(block.text)],
        ...(encrypted === undefined ? {} : { encrypted_content: encrypted }),
        ...(status === 'incomplete' ? { status } : {}),
      };
    case 'tool-call':
      return {
        id,
        type: 'function_call',
        status,
        call_id: block.id,
        name: block.name,
        arguments: block.arguments,
      };
  }
}

/** Encodes an item that is still empty. */
export function encodeOpenItem(block: Block, id: string) {
  switch (block.type) {
    case 'text':
      return { id, type: 'message', status: 'in_progress', role: 'assistant', content: [] };
    case 'reasoning':
      return { id, type: 'reasoning', summary: [] };
    case 'tool-call':
      return { id, type: 'function_call', status: 'in_progress', call_id: block.id, name: block.name, arguments: '' };
  }
}

/** Returns the item as a client would send it back: the content behind a reference. */
export function itemToKeep(block: Block, id: string): unknown {
  switch (block.type) {
    case 'text':
      return { type: 'message', id, role: 'assistant', content: [{ type: 'output_text', text: block.text }] };
    case 'reasoning':
      return { type: 'reasoning', id, summary: [summaryPart(block.text)] };
    case 'tool-call':
      return { type: 'function_call', id, call_id: block.id, name: block.name, arguments: block.arguments };
  }
}

export const textPart = (text: string, logprobs: readonly TokenLogprob[]) => ({
  type: 'output_text',
  text,
  annotations: [],
  logprobs: logprobs.map((entry) => ({ ...withBytes(entry), top_logprobs: entry.top.map(withBytes) })),
});

export const summaryPart = (text: string) => ({ type: 'summary_text', text });

/** Logprobs in events have no bytes. */
export const eventLogprobs = (logprobs: readonly TokenLogprob[]) =>
  logprobs.map((entry) => ({ ...plain(entry), top_logprobs: entry.top.map(plain) }));

// JSON has no infinities; this is the value other servers write for a token that could not be chosen.
const plain = ({ token, logprob }: TokenProbability) => ({ token, logprob: Math.max(logprob, -9999) });

const withBytes = (entry: TokenProbability) => ({
  ...plain(entry),
  bytes: entry.bytes ?? [...Buffer.from(entry.token)],
});

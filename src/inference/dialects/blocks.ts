import { ApiError } from '../../platform/errors.ts';
import type { GenerationEvent } from '../../generation/event.ts';
import type { Block } from '../../generation/fold.ts';

/**
 * Events for a dialect with block boundaries: blocks open, grow and close one after the other, never two at the same time, and their
 * indexes count from 0 without gaps.
 */
export type BlockEvent =
  | { readonly type: 'open'; readonly index: number; readonly block: Block }
  | { readonly type: 'delta'; readonly index: number; readonly block: Block; readonly text: string }
  /** `block` is complete. */
  | { readonly type: 'close'; readonly index: number; readonly block: Block };

/** Derives the boundaries of the blocks of one choice from its deltas; the same blocks that `Fold` builds from them. */
export class Blocks {
  #index = -1;
  #open: Block | undefined;

  /** How many blocks have been opened. */
  get count(): number {
    return this.#index + 1;
  }

  /** Throws `backend_http_error` for arguments of an earlier call, which can no longer be encoded: engines promise not to send them. */
  read(event: GenerationEvent): readonly BlockEvent[] {
    switch (event.type) {
      case 'text':
      case 'reasoning': {
        // Empty deltas carry token ids or probabilities; they neither open nor end a block.
        if (event.text === '') return [];
        if (this.#open?.type === event.type) return [this.#grow(this.#open, event.text)];
        const opened = this.#begin({ type: event.type, text: '' });
        return [...opened, this.#grow(this.#open!, event.text)];
      }
      case 'tool-call': {
        const { call, id, name } = event;
        return this.#begin({ type: 'tool-call', call, id, name, arguments: '' });
      }
      case 'tool-arguments':
        if (this.#open?.type !== 'tool-call' || this.#open.call !== event.call) {
          throw new ApiError('backend_http_error', 'The backend mixed the arguments of several tool calls.');
        }
        return event.text === '' ? [] : [this.#grow(this.#open, event.text)];
      case 'start':
      case 'prompt':
      case 'vector':
      case 'score':
      case 'finish':
      case 'usage':
        return [];
    }
  }

  /** Closes the open block, if there is one. */
  close(): readonly BlockEvent[] {
    if (this.#open === undefined) return [];
    const block = this.#open;
    this.#open = undefined;
    return [{ type: 'close', index: this.#index, block }];
  }

  #begin(block: Block): readonly BlockEvent[] {
    const closed = this.close();
    this.#open = block;
    this.#index++;
    return [...closed, { type: 'open', index: this.#index, block }];
  }

  #grow(block: Block, text: string): BlockEvent {
    if (block.type === 'tool-call') block.arguments += text;
    else block.text += text;
    return { type: 'delta', index: this.#index, block, text };
  }
}

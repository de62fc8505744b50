import type { ErrorBody } from '../../../platform/errors.ts';
import { knownUsage } from '../../../generation/event.ts';
import type { GenerationBatch, GenerationEvent, TokenLogprob } from '../../../generation/event.ts';
import type { Block } from '../../../generation/fold.ts';
import { Blocks } from '../blocks.ts';
import type { BlockEvent } from '../blocks.ts';
import type { ResponseHead, StreamEncoder } from '../dialect.ts';
import type { Asked } from './asked.ts';
import { emptyMessage, encodeItem, encodeOpenItem, eventLogprobs, itemId, summaryPart, textPart } from './items.ts';
import { ResponseText, statusOf } from './response.ts';

/** The item that is being written. */
interface OpenItem {
  readonly block: Block;
  readonly id: string;
  readonly index: number;
  readonly logprobs: TokenLogprob[];
  /** The parts of the delta event before the delta, and from there to the sequence number: the same for every token. */
  readonly beforeDelta: string;
}

/**
 * Encodes a stream (contracts §1.3): `response.created` and `response.in_progress`; each item from `output_item.added` to
 * `output_item.done`; the terminal event with the whole Response; `[DONE]`. Events are numbered without gaps.
 */
export class ResponseStream implements StreamEncoder {
  readonly #head: ResponseHead;
  readonly #asked: Asked;
  readonly #response: ResponseText;
  readonly #blocks = new Blocks();
  /** Completed items, as JSON text. */
  readonly #items: string[] = [];
  /** Tokens that have not been sent with a delta yet. */
  #pending: TokenLogprob[] = [];
  #open: OpenItem | undefined;
  #sequence = 0;
  #status: 'completed' | 'incomplete' = 'completed';

  constructor(head: ResponseHead, asked: Asked) {
    this.#head = head;
    this.#asked = asked;
    this.#response = new ResponseText(head, asked);
  }

  batch(batch: GenerationBatch): string {
    let text = this.#begin();
    // This API requests one choice.
    for (const event of batch) if (!('choice' in event) || event.choice === 0) text += this.#print(event);
    return text;
  }

  end(): string {
    return done;
  }

  /** Sends both events, because some clients read only one and some only the other (contracts §0.7). */
  error(error: ErrorBody): string {
    const { code, message, param = null } = error;
    const items = [...this.#items];
    const open = this.#open;
    if (open !== undefined) items.push(JSON.stringify(encodeItem(open, open.id, 'incomplete')));
    return (
      this.#begin() +
      this.#event(
        'error',
        `"code":"${code}","message":${JSON.stringify(message)},"param":${JSON.stringify(param)},"error":${JSON.stringify({ ...error, param })}`,
      ) +
      this.#event('response.failed', `"response":${this.#response.print({ status: 'failed', error }, items)}`) +
      done
    );
  }

  #begin(): string {
    if (this.#sequence > 0) return '';
    const response = `"response":${this.#response.print({ status: 'in_progress' }, [])}`;
    return this.#event('response.created', response) + this.#event('response.in_progress', response);
  }

  #print(event: GenerationEvent): string {
    switch (event.type) {
      case 'text':
        if (this.#asked.includesLogprobs && event.logprobs !== undefined) {
          if (event.text !== '' || this.#open?.block.type === 'text') this.#pending.push(...event.logprobs);
        }
        return this.#draw(this.#blocks.read(event));
      case 'reasoning':
      case 'tool-call':
      case 'tool-arguments':
        return this.#draw(this.#blocks.read(event));
      case 'finish':
        this.#status = statusOf(event);
        return this.#blocks.count === 0 ? this.#drawNothing() : this.#draw(this.#blocks.close());
      case 'usage': {
        const status = this.#status;
        const response = this.#response.print({ status, usage: knownUsage(event.usage) }, this.#items);
        return this.#event(`response.${status}`, `"response":${response}`);
      }
      case 'start':
      case 'prompt':
      case 'vector':
      case 'score':
        return '';
    }
  }

  #draw(events: readonly BlockEvent[]): string {
    let text = '';
    for (const event of events) {
      switch (event.type) {
        case 'open':
          text += this.#openItem(event.block, event.index);
          break;
        case 'delta':
          text += this.#delta(event.text);
          break;
        case 'close':
          // Another block begins, or the answer has ended: only the last item can be incomplete.
          text += this.#closeItem(this.#status);
          break;
      }
    }
    return text;
  }

  #drawNothing(): string {
    return this.#openItem(emptyMessage().block, 0) + this.#closeItem(this.#status);
  }

  #openItem(block: Block, index: number): string {
    const id = itemId(block, index, this.#head);
    const place = `"item_id":"${id}","output_index":${index}`;
    const text = this.#event(
      'response.output_item.added',
      `"output_index":${index},"item":${JSON.stringify(encodeOpenItem(block, id))}`,
    );
    const open = (deltaType: string, inside: string): void => {
      const beforeDelta = `event: ${deltaType}\ndata: {"type":"${deltaType}",${place}${inside},"delta":`;
      this.#open = { block, id, index, logprobs: [], beforeDelta };
    };
    switch (block.type) {
      case 'text':
        open('response.output_text.delta', ',"content_index":0');
        return text + this.#part('response.content_part.added', textPart('', []));
      case 'reasoning':
        open('response.reasoning_summary_text.delta', ',"summary_index":0');
        return text + this.#part('response.reasoning_summary_part.added', summaryPart(''));
      case 'tool-call':
        open('response.function_call_arguments.delta', '');
        return text;
    }
  }

  /** Called for each token, so it creates no object. */
  #delta(text: string): string {
    const open = this.#open!;
    let after = '';
    if (open.block.type === 'text') {
      after = ',"logprobs":[]';
      if (this.#pending.length > 0) {
        after = `,"logprobs":${JSON.stringify(eventLogprobs(this.#pending))}`;
        this.#takePending(open);
      }
    }
    return `${open.beforeDelta}${JSON.stringify(text)}${after},"sequence_number":${this.#sequence++}}\n\n`;
  }

  #closeItem(status: 'completed' | 'incomplete'): string {
    const open = this.#open!;
    const { block, id, index } = open;
    if (block.type === 'text') this.#takePending(open);
    let text = '';
    switch (block.type) {
      case 'text': {
        const logprobs = JSON.stringify(eventLogprobs(open.logprobs));
        text += this.#event(
          'response.output_text.done',
          `${this.#place()},"text":${JSON.stringify(block.text)},"logprobs":${logprobs}`,
        );
        text += this.#part('response.content_part.done', textPart(block.text, open.logprobs));
        break;
      }
      case 'reasoning':
        text += this.#event(
          'response.reasoning_summary_text.done',
          `${this.#place()},"text":${JSON.stringify(block.text)}`,
        );
        text += this.#part('response.reasoning_summary_part.done', summaryPart(block.text));
        break;
      case 'tool-call':
        text += this.#event(
          'response.function_call_arguments.done',
          `${this.#place()},"name":${JSON.stringify(block.name)},"arguments":${JSON.stringify(block.arguments)}`,
        );
        break;
    }
    const encrypted =
      this.#asked.includesEncrypted && block.type === 'reasoning' ? this.#head.signer.encrypt(block.text) : undefined;
    const item = JSON.stringify(encodeItem(open, id, status, encrypted));
    this.#items.push(item);
    this.#open = undefined;
    return text + this.#event('response.output_item.done', `"output_index":${index},"item":${item}`);
  }

  #takePending(open: OpenItem): void {
    open.logprobs.push(...this.#pending);
    this.#pending = [];
  }

  /** The position of the open item's single part in the answer. */
  #place(): string {
    const { block, id, index } = this.#open!;
    const inside = { text: ',"content_index":0', reasoning: ',"summary_index":0', 'tool-call': '' }[block.type];
    return `"item_id":"${id}","output_index":${index}${inside}`;
  }

  #part(type: string, part: unknown): string {
    return this.#event(type, `${this.#place()},"part":${JSON.stringify(part)}`);
  }

  /** `fields`: the JSON text after the type and the number. */
  #event(type: string, fields: string): string {
    return `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},${fields}}\n\n`;
  }
}

const done = 'data: [DONE]\n\n';

/** Servers behind the service: they answer, lie about usage, say nothing of it, break off, fall silent, refuse. */
import { chatChunk, event, parseRequest, usageChunk } from '../support/upstream.ts';
import { markIn, vectorMark } from './dialects.ts';
import type { Scheduler } from './scheduler.ts';
import type { WireEnd } from './wire.ts';

/** What a server did for one request: the truth that charges are held to. */
export interface Attempt {
  readonly habit: Habit;
  /** Words, each a token, that it has written. */
  words: number;
  /** What it said of its usage, if that can be true. */
  usage: { readonly prompt: number; readonly completion: number } | undefined;
  isOver: boolean;
}

const habits = ['honest', 'slow', 'silent-usage', 'lying', 'cut', 'hanging', 'refusing', 'closing'] as const;
export type Habit = (typeof habits)[number];

/** Usage of an answer of so many words that cannot be true. */
const lies: readonly ((words: number) => object)[] = [
  () => ({ prompt_tokens: 12, completion_tokens: 1_000_000 }),
  () => ({ prompt_tokens: 12, completion_tokens: -5 }),
  () => ({ prompt_tokens: 0, completion_tokens: 0 }),
  () => ({ prompt_tokens: 12, completion_tokens: 1.5 }),
  () => ({ prompt_tokens: 12, completion_tokens: 'many' }),
  (words) => ({ prompt_tokens: 2_000_000_000, completion_tokens: words }),
];

export const promptTokens = 12;

export class Backends {
  readonly #scheduler: Scheduler;
  /** By the mark at the beginning of the prompt. */
  readonly attempts = new Map<string, Attempt[]>();
  /** From now on all of them do what they should. */
  isHealed = false;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  dial(host: string, wire: WireEnd): boolean {
    if (!/^10\.0\.0\.[1-3]$/.test(host)) return false;
    if (!this.isHealed && this.#scheduler.chance(0.03)) return false;
    let buffer: Buffer = Buffer.alloc(0);
    wire.on('error', () => {});
    wire.on('end', () => wire.destroy());
    wire.on('data', (bytes: Buffer) => {
      buffer = Buffer.concat([buffer, bytes]);
      const request = parseRequest(buffer);
      if (request === undefined) return;
      buffer = request.rest;
      if (request.path.endsWith('/embeddings')) void this.#measure(request.body, wire);
      else if (request.path.endsWith('/completions')) void this.#answer(request.body, wire, request.path);
      else this.#json(wire, request.path.endsWith('/models') ? 200 : 404, { object: 'list', data: [] });
    });
    return true;
  }

  #json(wire: WireEnd, status: number, body: object): void {
    const text = JSON.stringify(body);
    if (wire.destroyed) return;
    wire.write(
      `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
    );
  }

  #begun(body: string): { readonly mark: string; readonly attempt: Attempt } {
    const scheduler = this.#scheduler;
    const mark = markIn(body);
    const habit: Habit = this.isHealed || scheduler.chance(0.5) ? 'honest' : scheduler.pick(habits);
    const attempt: Attempt = { habit, words: 0, usage: undefined, isOver: false };
    this.attempts.set(mark, [...(this.attempts.get(mark) ?? []), attempt]);
    scheduler.note(`backend: ${mark} ${habit}`);
    return { mark, attempt };
  }

  #refuse(wire: WireEnd): void {
    this.#json(wire, this.#scheduler.pick([503, 500, 429, 400]), { error: { message: 'no', type: 'server_error' } });
  }

  #waits(): Promise<void> {
    return this.#scheduler.sleep(this.#scheduler.random() * (this.#scheduler.chance(0.1) ? 900 : 30));
  }

  /** Embeddings: a vector that begins with a number of the mark. */
  async #measure(body: string, wire: WireEnd): Promise<void> {
    const { mark, attempt } = this.#begun(body);
    const { habit } = attempt;
    await this.#waits();
    if (habit === 'refusing') this.#refuse(wire);
    else if (habit === 'cut' || habit === 'closing') wire.resetAndDestroy();
    else if (habit !== 'hanging') {
      const lie = habit === 'lying' ? this.#scheduler.pick([-1, 0, 1.5, 'many', 2_000_000_000]) : undefined;
      if (lie === undefined && habit !== 'silent-usage') attempt.usage = { prompt: promptTokens, completion: 0 };
      attempt.isOver = true;
      const usage = { prompt_tokens: lie ?? promptTokens, total_tokens: lie ?? promptTokens };
      const data = [{ object: 'embedding', index: 0, embedding: [vectorMark(mark), 0.5] }];
      this.#json(wire, 200, { object: 'list', model: 'e', data, ...(habit === 'silent-usage' ? {} : { usage }) });
    }
  }

  async #answer(body: string, wire: WireEnd, path: string): Promise<void> {
    const scheduler = this.#scheduler;
    const asked = JSON.parse(body) as { max_tokens?: number };
    const { mark, attempt } = this.#begun(body);
    const { habit } = attempt;
    const isChat = path.endsWith('/chat/completions');
    const textChunk = (text: string, reason: string | null): string =>
      isChat
        ? chatChunk(text === '' ? {} : { content: text }, reason)
        : event({
            ...{ id: 'cmpl-1', object: 'text_completion', created: 1, model: 'm' },
            choices: [{ index: 0, text, finish_reason: reason }],
          });
    const most = asked.max_tokens ?? 40;
    const words = Math.min(most, scheduler.between(1, 30));
    const stopsAt = habit === 'cut' || habit === 'hanging' || habit === 'closing' ? scheduler.between(0, words) : words;
    await this.#waits();
    if (habit === 'refusing') {
      this.#refuse(wire);
      return;
    }
    const chunk = (text: string): void => {
      if (!wire.destroyed) wire.write(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`);
    };
    if (stopsAt === 0 && habit !== 'hanging') {
      wire.resetAndDestroy();
      return;
    }
    if (wire.destroyed) return;
    wire.write('HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n');
    if (isChat) chunk(chatChunk({ role: 'assistant', content: '' }));
    while (attempt.words < stopsAt && !wire.destroyed) {
      const group = Math.min(stopsAt - attempt.words, scheduler.between(1, 4));
      const first = attempt.words === 0 ? `${mark} ` : 'word ';
      attempt.words += group;
      chunk(textChunk(first + 'word '.repeat(group - 1), null));
      await scheduler.sleep(scheduler.random() * (habit === 'slow' ? 200 : 20));
    }
    if (wire.destroyed) return;
    if (habit === 'hanging') return;
    if (habit === 'cut') {
      wire.resetAndDestroy();
      return;
    }
    if (habit === 'closing') {
      wire.end();
      return;
    }
    const usage =
      habit === 'lying'
        ? scheduler.pick(lies)(attempt.words)
        : { prompt_tokens: promptTokens, completion_tokens: attempt.words };
    if (habit !== 'lying' && habit !== 'silent-usage')
      attempt.usage = { prompt: promptTokens, completion: attempt.words };
    attempt.isOver = true;
    chunk(textChunk('', words === most ? 'length' : 'stop'));
    if (habit !== 'silent-usage') chunk(usageChunk(usage));
    chunk('data: [DONE]\n\n');
    wire.write('0\r\n\r\n');
  }
}

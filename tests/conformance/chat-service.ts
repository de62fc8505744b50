import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { TestService } from '../support/service.ts';
import { InnerService, until } from '../support/service.ts';
import { writeTinyGguf } from '../support/tiny-gguf.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import type { ReadAnswer } from './chat-reader.ts';
import type { WireChunk, WireCompletion } from './chat-wire.ts';
import { sha256Of } from '../support/folder.ts';

export interface StreamedAnswer {
  readonly headers: Headers;
  /** As it arrived, comments included. */
  readonly body: string;
  readonly chunks: readonly WireChunk[];
  /** What a client reads of it; its framing and order are checked on the way. */
  readonly read: ReadAnswer;
}

export interface ChatModel {
  readonly id: string;
  /** What a scripted model plays: the `scripts:` list of the configuration. */
  readonly scripts?: string;
  /** What a tiny model of the embedded engine says, a token each, whatever it is asked. */
  readonly says?: readonly string[];
  /** It says so over and over again. */
  readonly isEndless?: boolean;
  /** Its template, where it is not the built-in one; it ends with `assistant` and a line break. */
  readonly chatTemplate?: string;
  /** Further lines of the model's entry, four spaces deep. */
  readonly more?: string;
}

/** A model that is downloaded by nobody may still take a while to be loaded on a busy machine. */
const readyMs = 120_000;

/** A running service with scripted models and tiny embedded ones, asked as clients ask. */
export class ChatService {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tokenhouse-chat-'));
  readonly #embedded: readonly string[];
  readonly service: TestService;

  constructor(models: readonly ChatModel[], limits?: string) {
    this.#embedded = models.filter(({ says }) => says !== undefined).map(({ id }) => id);
    const entries = models.map((model) => this.#entry(model)).join('\n');
    this.service = new InnerService({
      config: `models:\n${entries}`,
      ...(limits === undefined ? {} : { limits }),
    });
  }

  #entry({ id, scripts, says, isEndless = false, chatTemplate, more = '' }: ChatModel): string {
    const head = `  - id: ${id}\n    context_length: 4096\n    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }\n${more}`;
    if (says === undefined) {
      assert.ok(scripts);
      return `${head}    backends:\n      - engine: scripted\n        scripts:\n${scripts.replace(/^/gm, '          ')}`;
    }
    const file = join(this.#folder, `${id}.gguf`);
    const script = [['assistant\n', ...says, isEndless ? (says[0] ?? '') : '<|im_end|>']];
    writeTinyGguf(file, { script, contextLength: 4096, ...(chatTemplate === undefined ? {} : { chatTemplate }) });
    const sha256 = sha256Of(file);
    return `${head}    backends: [ { engine: llama, sources: [ "file:${file}" ], sha256: ${sha256}, slots: 2 } ]`;
  }

  async start(): Promise<void> {
    await this.service.start();
    for (const id of this.#embedded) {
      await until(
        () => this.service.log.some((line) => line['event'] === 'llama_ready' && line['model'] === id),
        readyMs,
      );
    }
  }

  async dispose(): Promise<void> {
    try {
      await this.service.verify();
    } finally {
      await this.service.dispose();
      rmSync(this.#folder, { recursive: true, force: true });
    }
  }

  /** The answer of a request, whatever it is. */
  ask(model: string, content: string, more: object = {}): Promise<Response> {
    return this.service.chat({ model, messages: [{ role: 'user', content }], ...more });
  }

  async whole(model: string, content: string, more: object = {}): Promise<WireCompletion> {
    const answer = await this.ask(model, content, more);
    const body = await answer.text();
    assert.equal(answer.status, 200, body);
    readChatCompletion(body);
    return JSON.parse(body) as WireCompletion;
  }

  async streamed(model: string, content: string, more: object = {}): Promise<StreamedAnswer> {
    const answer = await this.ask(model, content, { ...more, stream: true });
    const body = await answer.text();
    assert.equal(answer.status, 200, body);
    const withoutComments = body.replaceAll(/^:.*\n\n/gm, '');
    const chunks = withoutComments
      .split('\n\n')
      .filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice('data: '.length)) as WireChunk);
    return { headers: answer.headers, body, chunks, read: readChatStream(withoutComments) };
  }
}

export const tools = (...names: readonly string[]) =>
  names.map((name) => ({
    type: 'function',
    function: { name, parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } },
  }));

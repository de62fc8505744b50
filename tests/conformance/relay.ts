import assert from 'node:assert/strict';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import { printGbnf } from '../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../src/inference/constraints/json-schema.ts';
import { boundOutput, type Reply } from '../support/bound-reply.ts';
import { InnerService } from '../support/service.ts';
import type { TestServiceOptions, TestService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

type Body = Readonly<Record<string, unknown>>;

/** A chat completion as clients read it. */
export interface Completion {
  readonly choices: readonly {
    readonly message: { readonly content: string | null; readonly reasoning_content: string | null };
    readonly finish_reason: string;
  }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly completion_tokens_details: { readonly reasoning_tokens: number };
  };
}

const plain: Reply = [{ content: 'Hello.' }];

/** How a schema reaches a server that gets constraints as grammars. */
export const grammarOfSchema = (schema: unknown): string => printGbnf(jsonSchemaGrammar(schema, 'schema'));

/** The text is the plain answer, or JSON where the request is bound to some. */
export function assertPlainOr(text: string | null | undefined, isJson: boolean): void {
  if (isJson) assert.ok(typeof JSON.parse(text ?? '') === 'object', text ?? '');
  else assert.equal(text, 'Hello.');
}

/**
 * The real service in front of a server that keeps what it is sent, so that a test can read both sides of a rule: what the
 * client gets, and what a model is asked. The server answers with `reply`, and counts every prompt as `promptTokens`. An
 * answer that is bound to a form has it, unless a test has prepared another.
 */
export class Relay {
  readonly service: TestService;
  readonly upstream: Upstream;
  reply: Reply = plain;
  /** `undefined`: it cannot count. */
  promptTokens: number | undefined = 10;

  private constructor(service: TestService, upstream: Upstream) {
    this.service = service;
    this.upstream = upstream;
  }

  /** `models` is the list of models, given the address of the server. */
  static async start(
    models: (url: string) => string,
    options: Omit<TestServiceOptions, 'config'> = {},
  ): Promise<Relay> {
    // The handler is called when there is a relay.
    const upstream = await Upstream.start((request) => relay.#answer(request));
    const service = new InnerService({ ...options, config: `models:\n${models(upstream.url)}` });
    const relay: Relay = new Relay(service, upstream);
    await service.start();
    return relay;
  }

  async end(): Promise<void> {
    await this.service.verify();
    await this.service.dispose();
    await this.upstream.close();
  }

  /** What models were asked since the last call of this function. */
  asked(): readonly Body[] {
    const bodies = this.upstream.exchanges.flatMap(({ path, body }) =>
      path === '/v1/chat/completions' ? [JSON.parse(body) as Body] : [],
    );
    this.upstream.exchanges.length = 0;
    return bodies;
  }

  send(body: Body, headers: readonly (readonly [string, string])[] = []): Promise<RawAnswer> {
    return exchange(this.service.url, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Authorization', `Bearer ${this.service.key}`], ['Content-Type', 'application/json'], ...headers],
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Say hello.' }], ...body }),
    });
  }

  /** What the one model that was asked was sent, for a request that is taken. */
  async sent(body: Body, headers: readonly (readonly [string, string])[] = []): Promise<Body> {
    this.asked();
    const answer = await this.send(body, headers);
    assert.equal(answer.status, 200, answer.body);
    const [first, ...others] = this.asked();
    assert.ok(first !== undefined && others.length === 0, 'one request upstream');
    return first;
  }

  async completion(body: Body): Promise<Completion> {
    const answer = await this.send(body);
    assert.equal(answer.status, 200, answer.body);
    return answer.json() as unknown as Completion;
  }

  #answer(request: UpstreamExchange): void {
    if (request.path === '/tokenize') {
      const { promptTokens } = this;
      return promptTokens === undefined ? request.json(404, {}) : request.json(200, { count: promptTokens });
    }
    if (request.path !== '/v1/chat/completions') return request.json(200, {});
    const prompt_tokens = this.promptTokens ?? 10;
    const isPlain = JSON.stringify(this.reply) === JSON.stringify(plain);
    const reply = isPlain ? (boundOutput(JSON.parse(request.body) as Body) ?? plain) : this.reply;
    request.events();
    request.chunk(
      [
        chatChunk({ role: 'assistant', content: '' }),
        ...reply.map((delta) => chatChunk(delta)),
        chatChunk({}, 'stop'),
        usageChunk({ prompt_tokens, completion_tokens: this.reply.length }),
        event('[DONE]'),
      ].join(''),
    );
    request.endChunks();
  }
}

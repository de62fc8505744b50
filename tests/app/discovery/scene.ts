import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';

import type { TestService } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';

/** A server of a model that says its own name, and counts. */
export class Server {
  readonly upstream: Upstream;
  readonly name: string;
  /** Requests of customers, and our own short ones. */
  asked = 0;
  warmUps = 0;
  /** Answers are held back while it is set. */
  isHeld = false;
  readonly held: UpstreamExchange[] = [];
  fails = false;
  /** Requests of customers that came before the first short one had its answer. */
  early = 0;

  private constructor(upstream: Upstream, name: string) {
    this.upstream = upstream;
    this.name = name;
  }

  static async start(name: string, more: { readonly host?: string; readonly port?: number } = {}): Promise<Server> {
    const upstream = await Upstream.start((exchange) => server.#answer(exchange), more);
    const server = new Server(upstream, name);
    return server;
  }

  get url(): string {
    return this.upstream.url;
  }

  free(): void {
    this.isHeld = false;
    for (const exchange of this.held.splice(0)) this.#say(exchange);
  }

  #answer(exchange: UpstreamExchange): void {
    const isWarmUp = exchange.body.includes('"Say hello"');
    if (this.fails) return exchange.json(500, {});
    if (isWarmUp) this.warmUps++;
    else {
      this.asked++;
      if (this.warmUps === 0) this.early++;
    }
    if (this.isHeld && !isWarmUp) this.held.push(exchange);
    else this.#say(exchange);
  }

  #say(exchange: UpstreamExchange): void {
    exchange.events();
    exchange.chunk(
      chatChunk({ content: this.name }) +
        chatChunk({}, 'stop') +
        usageChunk({ prompt_tokens: 1, completion_tokens: 1 }) +
        event('[DONE]'),
    );
    exchange.endChunks();
  }
}

/** A model `m` with these lines of YAML for its backends. */
export const modelOf = (...backends: readonly string[]): string => `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${backends.map((backend) => `      - ${backend}`).join('\n')}`;

export const request = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };

export async function serversFor(t: TestContext, ...names: readonly string[]): Promise<readonly Server[]> {
  const servers = await Promise.all(names.map((name) => Server.start(name)));
  t.after(() => Promise.all(servers.map(({ upstream }) => upstream.close())));
  return servers;
}

/** The content of the answer, which is its server's name. */
export async function answeredBy(service: TestService): Promise<string> {
  const answer = await service.chat(request);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  const { choices } = JSON.parse(text) as { choices: { message: { content: string } }[] };
  return choices[0]!.message.content;
}

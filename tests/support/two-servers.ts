/** Two equal servers behind one model, which tell whom each prompt reached. */
import type { TestService } from './service.ts';
import { chatChunk, event, Upstream, usageChunk } from './upstream.ts';

export class TwoServers {
  readonly servers: readonly [Upstream, Upstream];
  /** The names of the prompts that each has answered, in their order. */
  readonly prompts: readonly [string[], string[]] = [[], []];
  /** They answer with 500. */
  readonly failing: [boolean, boolean] = [false, false];

  private constructor(servers: readonly [Upstream, Upstream]) {
    this.servers = servers;
  }

  static async start(): Promise<TwoServers> {
    const answers = (index: 0 | 1) =>
      Upstream.start((exchange) => {
        const [, name = ''] = /named ([a-z0-9-]+)/.exec(exchange.body) ?? [];
        if (!two.failing[index]) two.prompts[index].push(name);
        if (two.failing[index]) return exchange.json(500, {});
        exchange.events();
        exchange.chunk(
          chatChunk({ content: 'a' }) +
            chatChunk({}, 'stop') +
            usageChunk({ prompt_tokens: 1_000, completion_tokens: 1 }) +
            event('[DONE]'),
        );
        return exchange.endChunks();
      });
    const two: TwoServers = new TwoServers([await answers(0), await answers(1)]);
    return two;
  }

  /** The model `m`, for a configuration. */
  get model(): string {
    const backends = this.servers.map(
      ({ url }, index) => `{ engine: openai, name: server-${index}, flavor: vllm, url: "${url}" }`,
    );
    return `models:
  - id: m
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ ${backends.join(', ')} ]
`;
  }

  /** The server that has answered the prompt last. */
  serverOf(name: string): number {
    return this.prompts[0].includes(name) ? 0 : this.prompts[1].includes(name) ? 1 : -1;
  }

  forget(): void {
    for (const prompts of this.prompts) prompts.length = 0;
  }

  async close(): Promise<void> {
    for (const server of this.servers) await server.close();
  }
}

/** A long prompt that begins like none with another name. */
export const namedPrompt = (name: string) => ({
  model: 'm',
  max_tokens: 8,
  messages: [{ role: 'user', content: `A text named ${name}. ${`It is about ${name}. `.repeat(200)}` }],
});

export async function answeredBy(servers: TwoServers, service: TestService, name: string): Promise<number> {
  servers.forget();
  const answer = await service.chat(namedPrompt(name), { headers: { connection: 'close' } });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(text);
  return servers.serverOf(name);
}

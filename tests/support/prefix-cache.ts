/** A server that keeps whole blocks of the prompts that it was sent, as vLLM does, and reports what it had. */
import { chatChunk, event, Upstream, usageChunk } from './upstream.ts';

const charactersPerToken = 4;

interface Asked {
  readonly messages: readonly { readonly role: string; readonly content: unknown }[];
  readonly tools?: unknown;
}

/** A prompt as a template would print it. */
const printed = ({ messages, tools }: Asked): string =>
  (tools === undefined ? '' : JSON.stringify(tools)) +
  messages
    .map(({ role, content }) => `<${role}>${typeof content === 'string' ? content : JSON.stringify(content)}`)
    .join('');

export class PrefixCache {
  readonly #blocks = new Set<string>();
  readonly #blockTokens: number;
  /** Prompt tokens of all requests, and those that were cached. */
  readonly counts = { prompt: 0, cached: 0 };
  upstream!: Upstream;
  /** It answers with 500. */
  isFailing = false;

  private constructor(blockTokens: number) {
    this.#blockTokens = blockTokens;
  }

  static async start(blockTokens: number): Promise<PrefixCache> {
    const cache = new PrefixCache(blockTokens);
    cache.upstream = await Upstream.start((exchange) => {
      if (cache.isFailing) return exchange.json(500, {});
      const { prompt, cached } = cache.#read(printed(JSON.parse(exchange.body) as Asked));
      const usage = { prompt_tokens: prompt, completion_tokens: 2, total_tokens: prompt + 2 };
      exchange.events();
      exchange.chunk(
        chatChunk({ content: 'Well.' }) +
          chatChunk({}, 'stop') +
          usageChunk({ ...usage, prompt_tokens_details: { cached_tokens: cached } }) +
          event('[DONE]'),
      );
      exchange.endChunks();
    });
    return cache;
  }

  /** As after a restart. */
  empty(): void {
    this.#blocks.clear();
  }

  #read(text: string): { readonly prompt: number; readonly cached: number } {
    const prompt = Math.ceil(text.length / charactersPerToken);
    const blockTokens = this.#blockTokens;
    let [known, isKnown] = [0, true];
    // The last token is always read.
    for (let end = 1; end * blockTokens < prompt; end++) {
      const block = text.slice(0, end * blockTokens * charactersPerToken);
      isKnown &&= this.#blocks.has(block);
      if (isKnown) known = end;
      this.#blocks.add(block);
    }
    const cached = known * blockTokens;
    this.counts.prompt += prompt;
    this.counts.cached += cached;
    return { prompt, cached };
  }
}

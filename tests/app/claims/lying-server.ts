import { event, Upstream, type UpstreamExchange } from '../../support/upstream.ts';

/** What a server does wrong. */
export type Lie =
  | 'tools'
  | 'tools_refused'
  | 'tool_streaming'
  | 'json_object'
  | 'json_schema'
  | 'grammar'
  | 'vision'
  | 'vision_refused'
  | 'reasoning'
  | 'logprobs'
  | 'n'
  | 'token_ids'
  | 'min_p'
  | 'top_k'
  | 'usage_missing'
  | 'usage_made_up'
  | 'window'
  | 'abort'
  | 'down';

interface Body {
  readonly messages?: readonly {
    readonly content: string | readonly { readonly type: string; readonly text?: string }[];
  }[];
  readonly prompt?: string | readonly string[];
  readonly tools?: readonly unknown[];
  readonly n?: number;
  readonly logprobs?: boolean | number;
  readonly top_k?: number;
  readonly min_p?: number;
  readonly seed?: number;
  readonly return_token_ids?: boolean;
  readonly max_tokens?: number;
  readonly chat_template_kwargs?: { readonly enable_thinking?: boolean };
  readonly structured_outputs?: { readonly grammar: string };
}

/** Speaks as vLLM does, keeps every claim of a card, except those that it is told to break. */
export class LyingServer {
  readonly upstream: Upstream;
  readonly lies: Set<Lie>;
  /** Bodies of generations. */
  readonly bodies: Body[] = [];
  #running = 0;

  private constructor(upstream: Upstream, lies: readonly Lie[]) {
    this.upstream = upstream;
    this.lies = new Set(lies);
  }

  static async start(...lies: readonly Lie[]): Promise<LyingServer> {
    const upstream = await Upstream.start((exchange) => server.#answer(exchange), { isLookedAt: true });
    const server = new LyingServer(upstream, lies);
    return server;
  }

  get url(): string {
    return this.upstream.url;
  }

  #answer(exchange: UpstreamExchange): void {
    if (exchange.path.endsWith('/models')) {
      const window = this.lies.has('window') ? 2_048 : 4_096;
      return exchange.json(200, { object: 'list', data: [{ id: 'm', owned_by: 'vllm', max_model_len: window }] });
    }
    if (exchange.path === '/metrics') {
      exchange.write(
        textAnswer(
          `# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} ${this.#running}.0\nvllm:num_requests_waiting{engine="0"} 0.0\n`,
        ),
      );
      return;
    }
    if (exchange.method !== 'POST' || exchange.path.includes('tokenize')) return exchange.json(404, {});
    const body = JSON.parse(exchange.body) as Body;
    this.bodies.push(body);
    if (this.lies.has('down')) return exchange.json(500, {});
    const parts = (body.messages ?? []).flatMap(({ content }) =>
      typeof content === 'string' ? [{ type: 'text', text: content }] : content,
    );
    const hasImage = parts.some(({ type }) => type.includes('image'));
    if (body.tools !== undefined && this.lies.has('tools_refused')) return exchange.json(400, refusal);
    if (hasImage && this.lies.has('vision_refused')) return exchange.json(400, refusal);
    exchange.events();
    const text = parts.map((part) => part.text ?? '').join(' ') + String(body.prompt ?? '');
    if (text.includes('Count from 1')) return void this.#count(exchange, body);
    this.#say(exchange, body, {
      text,
      images: hasImage && !this.lies.has('vision') ? 1 : 0,
    });
  }

  #say(exchange: UpstreamExchange, body: Body, prompt: { readonly text: string; readonly images: number }): void {
    const promptTokens = prompt.text.split(/\s+/).length + 64 * prompt.images;
    const choices = this.lies.has('n') ? 1 : (body.n ?? 1);
    const chunk = (choice: object): void => exchange.chunk(chunkOf(body, [choice]));
    for (let index = 0; index < choices; index++) {
      if (body.tools !== undefined && !this.lies.has('tools')) {
        const written = this.lies.has('tool_streaming') ? '{"city": "Par' : '{"city": "Paris"}';
        const call = { index: 0, id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '' } };
        chunk({ index, delta: { tool_calls: [call] }, finish_reason: null });
        chunk({ index, delta: { tool_calls: [{ index: 0, function: { arguments: written } }] }, finish_reason: null });
        chunk({ index, delta: {}, finish_reason: 'tool_calls' });
        continue;
      }
      if (body.chat_template_kwargs?.enable_thinking === true && !this.lies.has('reasoning'))
        chunk({ index, delta: { reasoning_content: 'Hm. ' }, finish_reason: null });
      const said = this.#textFor(body);
      const logprob = {
        token: said,
        logprob: -0.1,
        bytes: null,
        top_logprobs: [{ token: said, logprob: -0.1, bytes: null }],
      };
      const wantsLogprobs = body.logprobs !== undefined && body.logprobs !== false && !this.lies.has('logprobs');
      const ids = body.return_token_ids === true && !this.lies.has('token_ids') ? { token_ids: [7] } : {};
      const own = body.messages === undefined ? { text: said } : { delta: { content: said } };
      chunk({
        index,
        ...own,
        ...ids,
        ...('token_ids' in ids ? { prompt_token_ids: [1, 2] } : {}),
        ...(wantsLogprobs ? { logprobs: { content: [logprob] } } : {}),
        finish_reason: null,
      });
      chunk({ index, ...(body.messages === undefined ? { text: '' } : { delta: {} }), finish_reason: 'stop' });
    }
    const usage = this.lies.has('usage_made_up')
      ? { prompt_tokens: 9, completion_tokens: 2 }
      : { prompt_tokens: promptTokens, completion_tokens: 2 * choices };
    if (!this.lies.has('usage_missing')) exchange.chunk(chunkOf(body, [], usage));
    exchange.chunk(event('[DONE]'));
    exchange.endChunks();
  }

  #textFor({ structured_outputs: bound, top_k: topK, min_p: minP, seed = 0 }: Body): string {
    const grammar = bound?.grammar;
    if (grammar !== undefined) {
      const isWord = grammar.includes('qzjx');
      const isQuoted = isWord && /\\"/.test(grammar);
      if (!isWord) return this.lies.has('json_object') ? 'Blue.' : '{"colour": "blue"}';
      if (isQuoted) return this.lies.has('json_schema') ? 'Blue.' : '"qzjx"';
      return this.lies.has('grammar') ? 'Blue.' : 'qzjx';
    }
    if (topK === 1 && !this.lies.has('top_k')) return 'hello';
    if (minP === 1 && !this.lies.has('min_p')) return 'hello';
    return topK === undefined && minP === undefined ? 'hello' : `random ${seed}`;
  }

  /** A long answer, a number every few milliseconds, until nobody reads it. */
  async #count(exchange: UpstreamExchange, body: Body): Promise<void> {
    this.#running++;
    let isRead = true;
    void exchange.closed.then(() => (isRead = false));
    for (let number = 1; number <= 1_000 && (isRead || this.lies.has('abort')); number++) {
      if (isRead) exchange.chunk(chunkOf(body, [{ index: 0, delta: { content: `${number}\n` }, finish_reason: null }]));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.#running--;
  }
}

const refusal = { error: { message: 'not supported here', type: 'BadRequestError', param: null, code: 400 } };

const textAnswer = (text: string): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;

const chunkOf = (body: Body, choices: readonly object[], usage?: object): string =>
  event({
    id: 'x-1',
    object: body.messages === undefined ? 'text_completion' : 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices,
    ...(usage === undefined ? {} : { usage }),
  });

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { Adapter } from '../../src/prove/adapters.ts';

/** What a gateway may do wrong, each of which others have done. */
export type GatewayFault =
  | 'charges twice'
  | 'forgets who left'
  | 'charges the whole to who left'
  | 'believes every usage'
  | 'charges only what is reported'
  | 'reads the budget before it spends it'
  | 'counts to N + 1'
  | 'buffers streams'
  | 'finishes what was cut'
  | 'mixes answers'
  | 'charges late'
  | 'forgets at a kill';

const prices = { prompt: 100n, completion: 400n };
/** Microcents. */
const costOf = (prompt: number, completion: number): bigint =>
  BigInt(prompt) * prices.prompt + BigInt(completion) * prices.completion;

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}

interface Held {
  readonly key: string;
  readonly hold: bigint;
  readonly body: string;
  /** Of its `max_tokens`. */
  readonly most: number;
}

/** A gateway in front of one upstream that keeps its ledger in memory, right but for the faults that it is given. */
export class FaultyGateway {
  readonly #server: Server;
  readonly #upstreamUrl: string;
  readonly #faults: ReadonlySet<GatewayFault>;
  readonly #spent = new Map<string, bigint>();
  readonly #budgets = new Map<string, bigint>();
  readonly #rates = new Map<string, number>();
  readonly #counts = new Map<string, number>();
  #lastText = '';

  private constructor(upstreamUrl: string, faults: readonly GatewayFault[]) {
    this.#upstreamUrl = upstreamUrl;
    this.#faults = new Set(faults);
    this.#server = createServer(
      (request, response) => void this.#answer(request, response).catch(() => response.destroy()),
    );
  }

  static async start(upstreamUrl: string, ...faults: readonly GatewayFault[]): Promise<FaultyGateway> {
    const gateway = new FaultyGateway(upstreamUrl, faults);
    await new Promise<void>((resolve) => gateway.#server.listen(0, '127.0.0.1', resolve));
    return gateway;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** As a kill does: what is not written is lost, and running answers break. */
  restart(): Promise<void> {
    if (this.#faults.has('forgets at a kill')) for (const key of this.#spent.keys()) this.#spent.set(key, 0n);
    this.#server.closeAllConnections();
    return Promise.resolve();
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  readonly adapter: Adapter = {
    unitMicrocents: 1n,
    settleMs: 1_500,
    spent: (_admin, key) => Promise.resolve(this.#spent.get(key) ?? 0n),
    setBudget: (_admin, key, microcents) => {
      if (microcents === null) this.#budgets.delete(key);
      else this.#budgets.set(key, (this.#spent.get(key) ?? 0n) + microcents);
      return Promise.resolve(microcents ?? 0n);
    },
    setRequestsPerMinute: (_admin, key, requests) => {
      this.#counts.set(key, 0);
      if (requests === null) this.#rates.delete(key);
      else this.#rates.set(key, requests);
      return Promise.resolve();
    },
  };

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = (request.headers.authorization ?? '').replace('Bearer ', '');
    const body = Buffer.concat(await request.toArray()).toString();
    const asked = JSON.parse(body) as { readonly stream?: boolean; readonly max_tokens: number };
    const rate = this.#rates.get(key);
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, count);
    if (rate !== undefined && count > rate + (this.#faults.has('counts to N + 1') ? 1 : 0))
      return void response.writeHead(429, { 'retry-after': '60' }).end('{"error":{}}');
    const hold = this.#hold(key, 200, asked.max_tokens);
    if (hold === undefined) return void response.writeHead(402).end('{"error":{}}');
    const settle = (usage: Usage | undefined, counted: number): void =>
      this.#settle({ key, hold, body, most: asked.max_tokens }, usage, counted);
    await (asked.stream === true
      ? this.#stream(body, response, asked.max_tokens, settle)
      : this.#whole(body, response, settle));
  }

  /** Takes the most that an answer may cost from the budget, before it runs. */
  #hold(key: string, prompt: number, completion: number): bigint | undefined {
    const budget = this.#budgets.get(key);
    const spent = this.#spent.get(key) ?? 0n;
    const hold = this.#faults.has('reads the budget before it spends it') ? 0n : costOf(prompt, completion);
    if (budget !== undefined && spent + hold > budget) return undefined;
    this.#spent.set(key, spent + hold);
    return hold;
  }

  /** `usage` undefined: nothing was reported; `counted`: tokens that were seen, 0 for an answer that failed. */
  #settle({ key, hold, body, most }: Held, usage: Usage | undefined, counted: number): void {
    const isPossible = usage !== undefined && usage.prompt_tokens > 0 && usage.completion_tokens <= most;
    const believed = this.#faults.has('believes every usage') ? (usage ?? none) : usage;
    const reported = isPossible || this.#faults.has('believes every usage') ? believed : undefined;
    const guess = this.#faults.has('charges only what is reported') || counted === 0 ? none : guessOf(body, counted);
    const { prompt_tokens: prompt, completion_tokens: completion } = reported ?? guess;
    const times = this.#faults.has('charges twice') ? 2n : 1n;
    const change = (microcents: bigint): void => void this.#spent.set(key, (this.#spent.get(key) ?? 0n) + microcents);
    change(costOf(prompt, completion) * times - hold);
    if (this.#faults.has('charges late')) setTimeout(() => change(7n), 3_000).unref();
  }

  async #whole(
    body: string,
    response: ServerResponse,
    settle: (usage: Usage | undefined, counted: number) => void,
  ): Promise<void> {
    let answer;
    try {
      answer = await fetch(this.#upstreamUrl, { method: 'POST', body });
      if (!answer.ok) throw new Error('refused');
      const text = await answer.text();
      const { usage, choices } = JSON.parse(text) as {
        readonly usage?: Usage;
        readonly choices: readonly { readonly message: { readonly content: string } }[];
      };
      settle(usage, (choices[0]?.message.content ?? '').trim().split(' ').length);
      response.writeHead(200, { 'content-type': 'application/json' }).end(this.#mixed(text));
    } catch {
      settle(undefined, 0);
      response.writeHead(502).end('{"error":{}}');
    }
  }

  async #stream(
    body: string,
    response: ServerResponse,
    most: number,
    settle: (usage: Usage | undefined, counted: number) => void,
  ): Promise<void> {
    const leaving = new AbortController();
    response.on('close', () => leaving.abort());
    let [counted, usage, isDone, text]: [number, Usage | undefined, boolean, string] = [0, undefined, false, ''];
    try {
      const answer = await fetch(this.#upstreamUrl, { method: 'POST', body, signal: leaving.signal });
      if (!answer.ok) throw new Error('refused');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const decoder = new TextDecoder();
      for await (const bytes of answer.body ?? []) {
        const part = decoder.decode(bytes, { stream: true });
        counted += part.split('"content"').length - 1;
        const reported = [...part.matchAll(/"usage":(\{[^}]*\})/g)].at(-1)?.[1];
        if (reported !== undefined) usage = JSON.parse(reported) as Usage;
        isDone ||= part.includes('[DONE]');
        text += part;
        // The end is kept back until the charge is written.
        if (!this.#faults.has('buffers streams') && !isDone) response.write(part);
        if (isDone && !this.#faults.has('buffers streams')) text = part;
      }
      if (!isDone) throw new Error('cut');
      settle(usage, counted);
      response.end(text);
    } catch {
      if (leaving.signal.aborted) this.#left(settle, counted, most);
      else if (this.#faults.has('finishes what was cut')) {
        settle(undefined, counted);
        response.end('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
      } else {
        settle(undefined, 0);
        if (response.headersSent) response.destroy();
        else response.writeHead(502).end('{"error":{}}');
      }
    }
  }

  #left(settle: (usage: Usage | undefined, counted: number) => void, counted: number, most: number): void {
    if (this.#faults.has('forgets who left')) settle(undefined, 0);
    else if (this.#faults.has('charges the whole to who left'))
      settle({ prompt_tokens: 200, completion_tokens: most }, 0);
    else settle(undefined, counted);
  }

  #mixed(text: string): string {
    const before = this.#lastText;
    this.#lastText = text;
    return this.#faults.has('mixes answers') && before !== '' ? before : text;
  }
}

const none: Usage = { prompt_tokens: 0, completion_tokens: 0 };
/** Four bytes of a request are a token. */
const guessOf = (body: string, counted: number): Usage => ({
  prompt_tokens: Math.round(body.length / 4) - 30,
  completion_tokens: counted,
});

/** Clients of every kind: those that behave, those that ask for what is not there, and those that leave. */
import { Agent } from 'node:http';

import type { Answer } from '../../support/http-client.ts';
import { ask } from '../../support/http-client.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { until } from '../../support/service.ts';
import { loadWires, textWire } from './wires.ts';
import type { LoadWire } from './wires.ts';

export interface LoadOptions {
  readonly url: string;
  readonly key: string;
  readonly random: () => number;
  readonly clients: number;
  readonly bodyBytesMax: number;
}

/** A complete answer: what the client saw of its usage. */
export interface SeenUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** What has become of the requests, by their ids. */
export interface LoadResult {
  /** Were answered, so that the log has exactly one line of them. */
  readonly answered: ReadonlySet<string>;
  /** The client was gone before anything came back: one line, or none if the request never arrived. */
  readonly unsure: ReadonlySet<string>;
  /** Were answered, and spoke of zero data retention: the log has a line of each, but not the client's id (§4.2.6). */
  readonly unnamed: ReadonlySet<string>;
  readonly usages: ReadonlyMap<string, SeenUsage>;
  /** How often each kind of client came, and each status. */
  readonly counts: ReadonlyMap<string, number>;
  /** Broken promises, in words; the first hundred. */
  readonly faults: readonly string[];
}

/** The longest that any request may take: the stall and idle limits of the service are 2 and 3 seconds. */
const hangMs = 60_000;

export class Load {
  readonly #options: LoadOptions;
  readonly #agent: Agent;
  readonly #answered = new Set<string>();
  readonly #unsure = new Set<string>();
  readonly #unnamed = new Set<string>();
  readonly #usages = new Map<string, SeenUsage>();
  readonly #counts = new Map<string, number>();
  readonly #faults: string[] = [];
  #isStopping = false;
  #isPaused = false;
  #running = 0;
  readonly #workers: Promise<unknown>;

  constructor(options: LoadOptions) {
    this.#options = options;
    this.#agent = new Agent({ keepAlive: true, maxSockets: options.clients });
    this.#workers = Promise.all(Array.from({ length: options.clients }, () => this.#work()));
  }

  get result(): LoadResult {
    return {
      answered: this.#answered,
      unsure: this.#unsure,
      unnamed: this.#unnamed,
      usages: this.#usages,
      counts: this.#counts,
      faults: this.#faults,
    };
  }

  /** Lets the clients finish what they are at and waits for them; `resume` goes on. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    await until(() => this.#running === 0, 2 * hangMs);
  }

  resume(): void {
    this.#isPaused = false;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#workers;
    this.#agent.destroy();
  }

  /** Many refusals with long ids, each a log line, as fast as they are answered. */
  async flood(count: number): Promise<void> {
    let left = count;
    await Promise.all(
      Array.from({ length: 16 }, async () => {
        while (left-- > 0) {
          const id = `f${newRequestId()}`.padEnd(128, 'f');
          const headers = { 'x-request-id': id };
          const { status } = await this.#ask('GET', '/v1/nothing-there', headers, undefined);
          this.#answered.add(`client_${id}`);
          if (status !== 404) this.#fault('flood', `status ${status}`);
        }
      }),
    );
    this.#count('flood', count);
  }

  async #work(): Promise<void> {
    const { random } = this.#options;
    const total = visits.reduce((sum, [weight]) => sum + weight, 0);
    while (!this.#isStopping) {
      if (this.#isPaused) {
        await rest(20);
        continue;
      }
      let at = random() * total;
      const [, name, visit] = visits.find(([weight]) => (at -= weight) < 0) ?? visits[0]!;
      this.#running++;
      this.#count(name);
      try {
        await visit(this, random);
      } catch (error) {
        this.#fault(name, (error as Error).message);
      } finally {
        this.#running--;
      }
      await rest(random() * 60);
    }
  }

  /** An ordinary request that must be answered; its answer, if it is one of those that are expected. */
  async answered(wire: LoadWire, model: string, text: string, stream: boolean, mayFail: boolean): Promise<void> {
    const id = newRequestId();
    const answer = await this.#ask('POST', wire.path, this.#headers(id), wire.body(model, text, stream));
    this.#answered.add(id);
    this.#count(`${model} ${answer.status}`);
    this.#checkAnswer(answer, id, model, wire);
    if (answer.status !== 200) {
      const allowed = mayFail ? [429, 502, 503, 504] : [429];
      if (!allowed.includes(answer.status)) this.#fault(model, `status ${answer.status}: ${answer.body}`);
      return;
    }
    const usage = wire.usageOf(answer.body, stream);
    const code = wire.errorOf(answer.body);
    if (usage !== undefined) this.#usages.set(id, usage);
    else if (code === undefined || !mayFail) this.#fault(model, `ends without usage: ${answer.body.slice(-400)}`);
    else this.#count(`${model} stream error ${code}`);
  }

  /** A request that is refused with this code. */
  async refused(refusal: Refusal): Promise<void> {
    const id = newRequestId();
    const headers = { ...this.#headers(id), ...refusal.headers };
    const answer = await this.#ask(
      refusal.method ?? 'POST',
      refusal.path ?? '/v1/chat/completions',
      headers,
      refusal.body,
    );
    (refusal.headers?.['service-zdr'] === undefined ? this.#answered : this.#unnamed).add(id);
    this.#checkAnswer(answer, id, refusal.code);
    if (!answer.body.includes(`"code":"${refusal.code}"`) && answer.status !== 429)
      this.#fault(refusal.code, `${answer.status} ${answer.body}`);
  }

  async get(path: string): Promise<void> {
    const answer = await this.#ask('GET', path, this.#headers(newRequestId()), undefined);
    if (answer.status !== 200) this.#fault(path, `status ${answer.status}`);
  }

  /** Sends a request over a socket that the visitor handles as it likes; what came back decides what the log must know. */
  async raw(text: (id: string) => string, visit: (client: RawClient) => Promise<void>): Promise<void> {
    const id = newRequestId();
    const client = await RawClient.connect(this.#options.url);
    client.send(text(id));
    await visit(client);
    client.reset();
    await client.closed;
    if (client.bytesReceived > 0) this.#answered.add(id);
    else this.#unsure.add(id);
  }

  chatBytes(id: string, model: string, text: string, stream: boolean): string {
    return chatBytes(this.#options.key, id, { model, stream, messages: [{ role: 'user', content: text }] });
  }

  /** A body that is too large, by what it says or by what it is; refused at the byte, then the connection may go. */
  async oversized(isDeclared: boolean): Promise<void> {
    const { key, bodyBytesMax } = this.#options;
    const framing = isDeclared ? `content-length: ${2 * bodyBytesMax}` : 'transfer-encoding: chunked';
    await this.raw(
      (id) =>
        `POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer ${key}\r\nx-request-id: ${id}\r\n` +
        `content-type: application/json\r\n${framing}\r\n\r\n`,
      async (client) => {
        const piece = ' '.repeat(65_536);
        for (let sent = 0; sent < 2 * bodyBytesMax && client.status === 0 && !client.isClosed; sent += piece.length) {
          client.send(isDeclared ? piece : `10000\r\n${piece}\r\n`);
          await rest(1);
        }
        await until(() => client.status !== 0 || client.isClosed, hangMs);
        if (client.status !== 413) this.#fault('oversized', `status ${client.status}`);
      },
    );
  }

  /** What the parser refuses: an answer in the envelope all the same (invariant I9). */
  async malformed(): Promise<void> {
    const client = await RawClient.connect(this.#options.url);
    client.send('POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n');
    await until(() => client.isClosed, hangMs);
    if (
      client.status !== 400 ||
      !/\r\nx-request-id: req_/.test(client.text) ||
      !client.text.includes('"code":"http_400"')
    )
      this.#fault('malformed', client.text);
  }

  #ask(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string | undefined,
  ): Promise<Answer> {
    const { url } = this.#options;
    const length: Record<string, string> =
      body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    return ask({
      url,
      method,
      path,
      headers: { ...headers, ...length },
      ...(body === undefined ? {} : { body }),
      agent: this.#agent,
      timeoutMs: hangMs,
    });
  }

  #headers(id: string): Record<string, string> {
    return {
      authorization: `Bearer ${this.#options.key}`,
      'x-request-id': id,
      'content-type': 'application/json',
    };
  }

  /** Invariant I9: the id, the envelope, and the terminal event. */
  #checkAnswer(answer: Answer, id: string, what: string, wire?: LoadWire): void {
    if (!answer.isWhole) return this.#fault(what, `not whole, status ${answer.status}: ${answer.body.slice(-200)}`);
    if (answer.headers['x-request-id'] !== id)
      this.#fault(what, `x-request-id ${String(answer.headers['x-request-id'])}`);
    if (answer.status === 200) {
      const isStream = answer.headers['content-type']?.startsWith('text/event-stream') === true;
      if (isStream && wire?.streamEnds.test(answer.body) !== true)
        this.#fault(what, `no end: ${answer.body.slice(-200)}`);
      return;
    }
    const { error } = JSON.parse(answer.body) as { error: { code?: string; type?: string; request_id?: string } };
    if (error.request_id !== id || error.code === undefined || error.type === undefined)
      this.#fault(what, `no envelope: ${answer.body}`);
  }

  #count(name: string, by = 1): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + by);
  }

  #fault(what: string, words: string): void {
    if (this.#faults.length < 100) this.#faults.push(`${what}: ${words.slice(0, 400)}`);
  }
}

interface Refusal {
  readonly code: string;
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const chatBody = (model: string, text: string, stream: boolean, more: Readonly<Record<string, unknown>> = {}): string =>
  JSON.stringify({ model, stream, messages: [{ role: 'user', content: text }], ...more });

const rest = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const fine = chatBody('demo', 'short', false);
const refusals: readonly Refusal[] = [
  { code: 'invalid_json_request', body: '{"model":' },
  { code: 'invalid_json_request', body: '' },
  { code: 'schema_validation_failed', body: chatBody('demo', 'short', false, { temperature: 'warm' }) },
  { code: 'model_not_found', body: chatBody('nobody', 'short', false) },
  { code: 'context_length_exceeded', body: chatBody('demo', 'long '.repeat(20_000), false) },
  { code: 'insufficient_credits', body: chatBody('dear', 'short', false) },
  { code: 'missing_api_key', headers: { authorization: '' }, body: fine },
  { code: 'invalid_api_key', headers: { authorization: `Bearer tkh_${'x'.repeat(38)}` }, body: fine },
  { code: 'invalid_zdr_header', headers: { 'service-zdr': 'perhaps' }, body: fine },
  { code: 'http_415', headers: { 'content-encoding': 'gzip' }, body: fine },
  { code: 'http_405', method: 'GET' },
  { code: 'http_404', path: '/v1/unknown', body: fine },
  {
    code: 'orphan_tool_message',
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'tool', tool_call_id: 'a', content: 'b' }] }),
  },
];

type Visit = (load: Load, random: () => number) => Promise<void>;

const pick = <Value>(values: readonly Value[], random: () => number): Value =>
  values[Math.floor(random() * values.length)]!;

const textOf = (random: () => number): string => pick(['instant', 'short', 'tools'], random);

/** Weight, name, and what the client does. */
const visits: readonly (readonly [number, string, Visit])[] = [
  [20, 'stream', (load, random) => load.answered(pick(loadWires, random), 'demo', textOf(random), true, false)],
  [20, 'whole', (load, random) => load.answered(pick(loadWires, random), 'demo', textOf(random), false, false)],
  [4, 'text', (load, random) => load.answered(textWire, 'demo', 'short', random() < 0.5, false)],
  [20, 'remote stream', (load, random) => load.answered(pick(loadWires, random), 'remote', 'hello', true, true)],
  [15, 'remote whole', (load, random) => load.answered(pick(loadWires, random), 'remote', 'hello', false, true)],
  [
    4,
    'failing engine',
    (load, random) =>
      load.answered(
        pick(loadWires, random),
        'demo',
        pick(['fails', 'fails later', 'cut'], random),
        random() < 0.5,
        true,
      ),
  ],
  [15, 'refused', (load, random) => load.refused(pick(refusals, random))],
  [3, 'catalog', (load) => load.get('/v1/models')],
  [2, 'health', (load, random) => load.get(pick(['/healthz', '/readyz'], random))],
  [
    12,
    'leaves',
    (load, random) =>
      load.raw(
        (id) =>
          load.chatBytes(
            id,
            pick(['demo', 'remote'], random),
            pick(['instant', 'short', 'long', 'bulk'], random),
            random() < 0.7,
          ),
        () => rest(random() ** 2 * 200),
      ),
  ],
  [
    2,
    'half-closes',
    (load) =>
      load.raw(
        (id) => load.chatBytes(id, 'demo', 'short', true),
        async (client) => {
          client.finish();
          await until(() => client.isClosed, hangMs);
        },
      ),
  ],
  [
    2,
    'reads slowly',
    (load, random) =>
      load.raw(
        (id) => load.chatBytes(id, 'demo', 'bulk', true),
        async (client) => {
          for (let i = 0; i < 5; i++) {
            client.pause();
            await rest(random() * 200);
            client.resume();
            await rest(random() * 20);
          }
          await until(() => client.isClosed || client.tail(64).includes('data: [DONE]\n\n'), hangMs);
        },
      ),
  ],
  [
    0.3,
    'stops reading',
    (load) =>
      load.raw(
        (id) => load.chatBytes(id, 'demo', 'flood', true),
        async (client) => {
          await until(() => client.bytesReceived > 0, hangMs);
          client.pause();
          await rest(6_000); // The service cuts it after two seconds without a read.
        },
      ),
  ],
  [1, 'declares too much', (load) => load.oversized(true)],
  [1, 'sends too much', (load) => load.oversized(false)],
  [2, 'malformed', (load) => load.malformed()],
];

import { randomBytes } from 'node:crypto';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

import { createListener, defaultListenerLimits } from '../platform/http/listener.ts';

/** What the upstream reports of what it did: the truth, nothing, or a lie. */
export type UsageReport = 'true' | 'with-each-chunk' | 'none' | 'zero' | 'negative' | 'beyond-limit';

/** How an answer ends: as the protocol says, with a cut connection, or cleanly but without a finish. */
export type AnswerEnd = 'finish' | 'cut' | 'no-finish';

/** What the upstream does with every request that has this prompt. */
export interface Plan {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly paceMs: number;
  readonly usage: UsageReport;
  readonly end: AnswerEnd;
  /** This number of requests get a 503 before one is answered. */
  readonly refusals: number;
}

/** What has happened at the upstream: the true count. */
export interface Truth {
  readonly id: string;
  readonly plan: Plan;
  /** The word that each token of the answer is; no other answer has it at the same time. */
  readonly word: string;
  /** Requests that came, those that were refused included. */
  asked: number;
  refused: number;
  /** Answers that were written to their end. */
  finished: number;
  /** Tokens that were written, over all requests. */
  tokensSent: number;
  running: number;
  /** When each token of the newest answer was written, by `performance.now()`. */
  sentAt: number[];
}

/** Length of a prompt, where a plan names no other. */
export const promptTokens = 200;

const bodyBytesMax = 4 * 1024 * 1024;

/** Plain words, each a token in common vocabularies. */
const words = (
  'river stone garden winter summer bridge window letter silver forest island market morning evening mother father ' +
  'brother sister doctor teacher kitchen country village weather season number picture paper table flower'
).split(' ');

/** What the upstream is asked: the prompt is as long as it will be reported, give or take a few tokens of a template. */
export const promptOf = ({ id, plan }: Truth): string =>
  `prove-${id}${' the'.repeat(Math.max(1, plan.promptTokens - 12))}`;

/**
 * A server that speaks chat completions, whole and streamed, and does as it was planned. It keeps the true count of what it was asked and of
 * what it wrote.
 */
export class ScriptedUpstream {
  readonly #server: Server;
  readonly #truths = new Map<string, Truth>();
  readonly model: string;

  private constructor(model: string) {
    this.model = model;
    this.#server = createListener(
      (request, response) => void this.#answer(request, response).catch(() => response.destroy()),
      { newRequestId: () => randomBytes(8).toString('hex'), accountUrl: () => '', isHttps: () => false },
      defaultListenerLimits,
    );
  }

  /** `model`: the name under which it is asked. */
  static async start(model: string, port: number, host: string): Promise<ScriptedUpstream> {
    const upstream = new ScriptedUpstream(model);
    await new Promise<void>((resolve, reject) => {
      upstream.#server.once('error', reject);
      upstream.#server.listen(port, host, resolve);
    });
    return upstream;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  plan(plan: Partial<Plan> = {}): Truth {
    const truth: Truth = {
      id: randomBytes(6).toString('hex'),
      plan: { promptTokens, completionTokens: 32, paceMs: 0, usage: 'true', end: 'finish', refusals: 0, ...plan },
      word: words[this.#truths.size % words.length] ?? '',
      ...{ asked: 0, refused: 0, finished: 0, tokensSent: 0, running: 0, sentAt: [] },
    };
    this.#truths.set(truth.id, truth);
    return truth;
  }

  /** Waits until no answer of these plans is being written; at most `timeoutMs`. */
  async quiet(truths: readonly Truth[], timeoutMs = 30_000): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (truths.some(({ running }) => running > 0) && performance.now() < deadline) await delay(10);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') return answerModels(request, response, this.model);
    const body = await bodyOf(request);
    const id = /prove-([0-9a-f]{12})/.exec(body)?.[1] ?? '';
    const truth = this.#truths.get(id);
    // A gateway's own question whether it works.
    if (truth === undefined) return answerJson(response, 404, { error: { message: 'unknown prompt', code: 404 } });
    truth.asked++;
    if (truth.asked <= truth.plan.refusals) {
      truth.refused++;
      return answerJson(response, 503, { error: { message: 'busy', type: 'server_error', code: 503 } });
    }
    const asked = JSON.parse(body) as { readonly stream?: unknown };
    truth.running++;
    try {
      await (asked.stream === true ? this.#stream(truth, response) : this.#whole(truth, response));
    } finally {
      truth.running--;
    }
  }

  async #stream(truth: Truth, response: ServerResponse): Promise<void> {
    const { plan, word } = truth;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const sentAt: number[] = [];
    truth.sentAt = sentAt;
    for (let sent = 0; sent < plan.completionTokens; sent++) {
      if (plan.paceMs > 0) await delay(plan.paceMs);
      if (response.destroyed) return;
      if (plan.end === 'cut' && sent === plan.completionTokens >> 1) return void response.destroy();
      if (plan.end === 'no-finish' && sent === plan.completionTokens >> 1) return void response.end();
      const delta = { ...(sent === 0 ? { role: 'assistant' } : {}), content: ` ${word}` };
      const usage = plan.usage === 'with-each-chunk' ? { usage: usageOf(plan, sent + 1) } : {};
      response.write(event({ ...head(truth, 'chat.completion.chunk'), choices: [choice({ delta })], ...usage }));
      sentAt.push(performance.now());
      truth.tokensSent++;
    }
    response.write(
      event({
        ...head(truth, 'chat.completion.chunk'),
        choices: [choice({ delta: {}, finish_reason: 'stop' })],
      }),
    );
    const usage = usageOf(plan, plan.completionTokens);
    if (usage !== undefined) response.write(event({ ...head(truth, 'chat.completion.chunk'), choices: [], usage }));
    truth.finished++;
    response.end('data: [DONE]\n\n');
  }

  async #whole(truth: Truth, response: ServerResponse): Promise<void> {
    const { plan, word } = truth;
    for (let made = 0; plan.paceMs > 0 && made < plan.completionTokens && !response.destroyed; made++) {
      await delay(plan.paceMs);
      truth.tokensSent++;
    }
    if (response.destroyed) return;
    if (plan.paceMs === 0) truth.tokensSent += plan.completionTokens;
    const message = { role: 'assistant', content: ` ${word}`.repeat(plan.completionTokens) };
    const usage = usageOf(plan, plan.completionTokens);
    const answer = JSON.stringify({
      ...head(truth, 'chat.completion'),
      choices: [choice({ message, finish_reason: 'stop' })],
      ...(usage === undefined ? {} : { usage }),
    });
    if (plan.end !== 'finish') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) });
      response.write(answer.slice(0, answer.length >> 1), () => response.destroy());
      return;
    }
    truth.finished++;
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) });
    response.end(answer);
  }
}

const head = ({ id }: Truth, object: string) => ({
  id: `chatcmpl-${id}`,
  object,
  created: Math.floor(Date.now() / 1000),
  model: 'prove',
});

const choice = (what: object) => ({ index: 0, finish_reason: null, ...what });

const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;

function usageOf({ promptTokens, usage }: Plan, completionTokens: number): object | undefined {
  const report = (prompt: number, completion: number) => ({
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
  });
  switch (usage) {
    case 'true':
    case 'with-each-chunk':
      return report(promptTokens, completionTokens);
    case 'none':
      return undefined;
    case 'zero':
      return report(0, 0);
    case 'negative':
      return report(-promptTokens, -completionTokens);
    case 'beyond-limit':
      return report(promptTokens, 1000 * completionTokens);
  }
}

function answerModels(request: IncomingMessage, response: ServerResponse, model: string): void {
  if (request.url?.endsWith('/models') !== true) return answerJson(response, 404, {});
  answerJson(response, 200, { object: 'list', data: [{ id: model, object: 'model', created: 1, owned_by: 'prove' }] });
}

function answerJson(response: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > bodyBytesMax) throw new RangeError(`a body of more than ${bodyBytesMax} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

import { createHash, randomBytes } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import { Pool, type Dispatcher } from 'undici';

/**
 * `prototype-process.js PORT UPSTREAM_PORT KEY MODEL`: what a gateway on node:http costs that knows no money and keeps nothing. It looks up
 * the key, checks the request, takes a token from a bucket, renames the model, and parses and prints every event anew. The least that a
 * service like ours could take on Node.
 */
const [port, upstreamPort, key, model] = process.argv.slice(2);
if (port === undefined || upstreamPort === undefined || key === undefined || model === undefined)
  throw new Error('usage: prototype-process.js PORT UPSTREAM_PORT KEY MODEL');

interface Caller {
  readonly perSecond: number;
  tokens: number;
  atMs: number;
  usage: number;
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex');
const callers = new Map<string, Caller>([[digest(key), { perSecond: 1e7, tokens: 1e7, atMs: 0, usage: 0 }]]);
const pool = new Pool(`http://127.0.0.1:${upstreamPort}`, {
  connections: null,
  pipelining: 1,
  keepAliveTimeout: 60_000,
});

createServer((request, response) => {
  const caller = callers.get(digest(request.headers.authorization?.slice('Bearer '.length) ?? ''));
  if (caller === undefined) return refuse(response, 401);
  const now = performance.now();
  caller.tokens = Math.min(caller.perSecond, caller.tokens + ((now - caller.atMs) * caller.perSecond) / 1000);
  caller.atMs = now;
  if (caller.tokens < 1) return refuse(response, 429);
  caller.tokens -= 1;
  const parts: Buffer[] = [];
  request.on('data', (part: Buffer) => parts.push(part));
  request.once('end', () => {
    const body = bodyOf(Buffer.concat(parts).toString());
    if (body === undefined) return refuse(response, 400);
    const path = request.url ?? '/';
    const headers = { 'content-type': 'application/json' };
    const answer = new Answer(response, caller, body['stream'] === true);
    pool.dispatch({ path, method: 'POST', headers, body: JSON.stringify(body) }, answer);
  });
  return undefined;
}).listen(Number(port), '127.0.0.1');

function refuse(response: ServerResponse, status: number): undefined {
  if (response.headersSent) response.destroy();
  else response.writeHead(status).end();
}

/** What the upstream is asked, or undefined where the request is not one. */
function bodyOf(text: string): Record<string, unknown> | undefined {
  let body: Record<string, unknown>;
  try {
    body = JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const { messages } = body;
  if (body['model'] !== model || !Array.isArray(messages) || messages.length === 0 || !messages.every(isMessage))
    return undefined;
  for (const [name, most] of [
    ['temperature', 2],
    ['top_p', 1],
    ['max_tokens', 1e6],
  ] as const) {
    const value = body[name];
    if (value !== undefined && (typeof value !== 'number' || value < 0 || value > most)) return undefined;
  }
  body['model'] = 'bench';
  if (body['stream'] === true) body['stream_options'] = { include_usage: true };
  return body;
}

const roles = new Set(['system', 'developer', 'user', 'assistant', 'tool']);

function isMessage(message: unknown): boolean {
  if (typeof message !== 'object' || message === null) return false;
  const { role, content } = message as { readonly role?: unknown; readonly content?: unknown };
  return typeof role === 'string' && roles.has(role) && (typeof content === 'string' || Array.isArray(content));
}

interface Printed {
  id: string;
  model: string;
  usage?: { readonly total_tokens: number } | null;
}

/** Reads an answer of the upstream, and writes it to the client under our own name. */
class Answer implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse;
  readonly #caller: Caller;
  readonly #isStream: boolean;
  readonly #id = `chatcmpl-${randomBytes(16).toString('hex')}`;
  readonly #parts: Buffer[] = [];
  #status = 502;
  #rest = '';
  #isOver = false;

  constructor(response: ServerResponse, caller: Caller, isStream: boolean) {
    this.#response = response;
    this.#caller = caller;
    this.#isStream = isStream;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#response.once('close', () => {
      if (!this.#isOver) controller.abort(new Error('the client has left'));
      this.#isOver = true;
    });
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
    if (!this.#isStream || status !== 200) return;
    this.#response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  }

  onResponseData(controller: Dispatcher.DispatchController, part: Buffer): void {
    if (!this.#response.headersSent) return void this.#parts.push(part);
    const text = this.#rest + part.toString();
    const end = text.lastIndexOf('\n\n');
    if (end === -1) return void (this.#rest = text);
    this.#rest = text.slice(end + 2);
    const events = text.slice(0, end).split('\n\n');
    if (this.#response.write(events.map((event) => this.#event(event)).join(''))) return;
    controller.pause();
    this.#response.once('drain', () => controller.resume());
  }

  onResponseEnd(): void {
    this.#isOver = true;
    if (this.#response.headersSent) return void this.#response.end();
    const text = this.#printed(JSON.parse(Buffer.concat(this.#parts).toString()) as Printed);
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    this.#response.writeHead(this.#status, headers).end(text);
  }

  onResponseError(): void {
    if (!this.#isOver) refuse(this.#response, 502);
    this.#isOver = true;
  }

  #event(event: string): string {
    if (!event.startsWith('data: {')) return `${event}\n\n`;
    return `data: ${this.#printed(JSON.parse(event.slice('data: '.length)) as Printed)}\n\n`;
  }

  #printed(answer: Printed): string {
    answer.id = this.#id;
    answer.model = model!;
    this.#caller.usage += answer.usage?.total_tokens ?? 0;
    return JSON.stringify(answer);
  }
}

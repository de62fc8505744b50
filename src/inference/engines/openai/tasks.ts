import type { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { GenerationEvent } from '../../../generation/event.ts';
import type { EngineRequest, Task } from '../../../generation/request.ts';
import { countWithin } from '../usage-tally.ts';
import { taskEvents, type Finding } from '../task-events.ts';
import { largestIdAt } from './completion-fields.ts';
import { answerError, connectError, httpError, isLoading, timeoutError, type UpstreamAnswer } from './failures.ts';
import type { Flavor, RankWire } from './flavors/flavor.ts';
import { reportedUsage } from './reported-usage.ts';
import { causeCode, type BackendIncident } from './incidents.ts';

export interface TaskBackend {
  readonly pool: Pool;
  /** Sent with each prompt. */
  readonly always: Readonly<Record<string, unknown>>;
  readonly flavor: Flavor;
  /** The model's public id, for errors, and its name on the backend. */
  readonly name: string;
  readonly model: string;
  /** The base path with and without the API's version. */
  readonly basePath: string;
  readonly rootPath: string;
  readonly headers: readonly string[];
  /** Time limit for the whole answer. */
  readonly timeoutMs: number;
  /** Aborted when the request or the engine ends. */
  readonly signal: AbortSignal;
  readonly onAlive: () => void;
  readonly onConnectFailed: () => void;
  readonly onLoading: () => void;
  readonly onIncident: (incident: BackendIncident) => void;
}

/** The content of one answer of a server. */
interface Found {
  /** One per prompt of its request, in order. */
  readonly findings: readonly Finding[];
  /** `undefined`: the server does not report it. */
  readonly promptTokens: number | undefined;
}

/** Maximum bytes of all answers to one request. Numbers as text take up to 22 bytes; in base64, which is requested, 5⅓. */
const answerBytesMax = 64 * 1024 * 1024;

/** Maximum numbers in all vectors of one request, so that the output is bounded: the most prompts, with 4,096 dimensions each. */
const numbersMax = 2_048 * 4_096;

/**
 * Has a server embed or rank all prompts of a request, and returns the events of the whole answer. Rejects with an `ApiError`, or with the
 * signal's reason. Unless an answer has exactly one possible finding for each prompt, with vectors of one length, the server has failed.
 */
export async function runTask(
  request: EngineRequest,
  task: Task,
  backend: TaskBackend,
): Promise<readonly GenerationEvent[]> {
  const { prompt } = request;
  if (prompt.type === 'messages') throw new Error('a task on messages');
  const { prompts } = prompt;
  const { takesIds = true } = backend.flavor.tasks;
  if (!takesIds && typeof prompts[0] !== 'string')
    throw new ApiError('unsupported_feature', 'The model takes texts, and no token ids.', { param: task.field });
  const size = backend.flavor.tasks.promptsMax ?? prompts.length;
  const tokenIdAt = (): string => largestIdAt(prompt, task.field);
  const exchange: TaskExchange = { ...backend, tokenIdAt, bytesLeft: answerBytesMax, tokensInHead: undefined };
  const events: GenerationEvent[] = [];
  let tokens: number | undefined = 0;
  let dimensions: number | undefined;
  // One after the other, because a request has one place at its backend.
  for (let from = 0; from < prompts.length; from += size) {
    const some = prompts.slice(from, from + size) as readonly string[] | readonly (readonly number[])[];
    const found = await (task.type === 'embed'
      ? embed(some, exchange)
      : rank(some as readonly string[], task.query, exchange));
    for (const [at, finding] of found.findings.entries()) {
      if (typeof finding !== 'number') {
        dimensions ??= finding.length;
        if (finding.length !== dimensions || dimensions * prompts.length > numbersMax) throw unreadable(backend);
      }
      const ofPrompt = taskEvents(task, from + at, finding);
      if (ofPrompt === undefined) throw unreadable(backend);
      for (const event of ofPrompt) events.push(event);
    }
    tokens = tokens === undefined || found.promptTokens === undefined ? undefined : tokens + found.promptTokens;
  }
  return [{ type: 'start', promptTokens: tokens }, ...events];
}

/** A request under way, and what its answers may still use. */
interface TaskExchange extends TaskBackend {
  /** Returns the client's path of a token that the model does not have. */
  readonly tokenIdAt: () => string;
  bytesLeft: number;
  /** The number of prompt tokens in the head of the latest answer (`TaskWire`). */
  tokensInHead: number | undefined;
}

async function embed(
  input: readonly string[] | readonly (readonly number[])[],
  exchange: TaskExchange,
): Promise<Found> {
  // A server without base64 support answers with numbers, which takes more time on both sides.
  const body = { model: exchange.model, input, encoding_format: 'base64', ...exchange.always };
  const answer = fieldsOf(await ask(`${exchange.basePath}/embeddings`, body, exchange));
  const findings = inOrder(answer['data'], input.length, (entry) => vectorOf(entry['embedding']), exchange, true);
  return { findings, promptTokens: promptTokensOf(answer, input.length, exchange) };
}

async function rank(documents: readonly string[], query: string, exchange: TaskExchange): Promise<Found> {
  const { rank: wire } = exchange.flavor.tasks;
  if (wire === undefined) throw new Error('a rank on a kind of server that has none');
  const path = `${wire.path === 'root' ? exchange.rootPath : exchange.basePath}/rerank`;
  const body = { model: exchange.model, query, [wire.documents]: documents, ...wire.always, ...exchange.always };
  const answer = await ask(path, body, exchange);
  const entries: unknown = Array.isArray(answer) ? answer : fieldsOf(answer)['results'];
  const findings = inOrder(
    entries,
    documents.length,
    (entry) => {
      const score = entry['relevance_score'] ?? entry['score'];
      return typeof score === 'number' ? relevanceOf(score, wire.scores) : undefined;
    },
    exchange,
    false,
  );
  return { findings, promptTokens: promptTokensOf(fieldsOf(answer), documents.length, exchange) };
}

/**
 * Returns the token count of an answer to this many prompts. There are only prompt tokens, so a total alone is their number. Each prompt
 * has a token: fewer are not plausible, and neither are more than possible (`Meter`).
 */
function promptTokensOf(
  { usage }: Readonly<Record<string, unknown>>,
  prompts: number,
  { tokensInHead }: TaskExchange,
): number | undefined {
  const { promptTokens, totalTokens } = reportedUsage(fieldsOf(usage));
  for (const tokens of [promptTokens, totalTokens, tokensInHead]) {
    const possible = countWithin(tokens, prompts, Infinity);
    if (possible !== undefined) return possible;
  }
  return undefined;
}

/** Rounding can make the cosine of two equal texts 1.0000002. */
const cosineMax = 1.0001;

function relevanceOf(score: number, scores: RankWire['scores']): number {
  switch (scores) {
    case 'relevance':
      return score;
    case 'logit':
      return 1 / (1 + Math.exp(-score));
    case 'relevance-or-cosine':
      return Math.abs(score) <= cosineMax ? Math.min(Math.max(score, 0), 1) : score;
  }
}

/**
 * Returns a server's findings by the index of their prompt, each exactly once. `byPosition`: entries without any index are in the order of
 * the prompts. A ranking is not, because servers sort it.
 */
function inOrder<Read extends Finding>(
  entries: unknown,
  length: number,
  read: (entry: Readonly<Record<string, unknown>>) => Read | undefined,
  backend: TaskBackend,
  byPosition: boolean,
): readonly Read[] {
  if (!Array.isArray(entries) || entries.length !== length) throw unreadable(backend);
  const all = entries.map(fieldsOf);
  const isOrdered = byPosition && all.every(({ index }) => index === undefined || index === null);
  const found = new Map<unknown, Read>();
  for (const [position, fields] of all.entries()) {
    const value = read(fields);
    if (value === undefined) throw unreadable(backend);
    found.set(isOrdered ? position : fields['index'], value);
  }
  return Array.from({ length }, (_, index) => {
    const value = found.get(index);
    if (value === undefined) throw unreadable(backend);
    return value;
  });
}

/** Returns the error for a server whose answer cannot be valid. */
function unreadable({ name, onIncident }: TaskBackend): ApiError {
  onIncident({ incident: 'unreadable_answer', status: 200, cause: 'task_results' });
  return httpError(name);
}

/** Reads little-endian 32-bit floats in base64, or a list of numbers. */
function vectorOf(value: unknown): ArrayLike<number> | undefined {
  if (Array.isArray(value)) return value.every((each) => typeof each === 'number') ? value : undefined;
  if (typeof value !== 'string') return undefined;
  const bytes = Buffer.from(value, 'base64');
  // Decoding skips characters that are not base64.
  if (bytes.length === 0 || bytes.length % 4 !== 0 || value.length !== Math.ceil(bytes.length / 3) * 4)
    return undefined;
  return Float32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(index * 4));
}

/** Error codes of a connection that the server had already closed: a task changes nothing there, so it is sent again once. */
const staleCodes: ReadonlySet<string | null> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

async function ask(
  path: string,
  body: Readonly<Record<string, unknown>>,
  exchange: TaskExchange,
  isAgain = false,
): Promise<unknown> {
  const { pool, headers, timeoutMs, name, onIncident, flavor } = exchange;
  const limit = AbortSignal.timeout(timeoutMs);
  let status: number | null = null;
  try {
    const answer = await pool.request({
      method: 'POST',
      path,
      headers: headers as string[],
      body: JSON.stringify(body),
      signal: combineSignals([exchange.signal, limit]),
      // The limit above is the only one.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    exchange.onAlive();
    status = answer.statusCode;
    const { tokensHeader } = flavor.tasks;
    exchange.tokensInHead = tokensHeader === undefined ? undefined : Number(answer.headers[tokensHeader]);
    const chunks: Buffer[] = [];
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      exchange.bytesLeft -= chunk.length;
      if (exchange.bytesLeft < 0) throw new Error('the answer is too large');
      chunks.push(chunk);
    }
    const text = Buffer.concat(chunks).toString();
    if (status === 200) return JSON.parse(text);
    const retryAfter = answer.headers['retry-after'];
    const refused = { status, retryAfter: typeof retryAfter === 'string' ? retryAfter : undefined, body: parsed(text) };
    throw refusalOf(refused, body, exchange);
  } catch (error) {
    exchange.signal.throwIfAborted();
    if (error instanceof ApiError) throw error;
    const cause = causeCode(error);
    if (limit.aborted) {
      onIncident({ incident: 'no_first_token_in_time', status, cause: null });
      throw timeoutError(name);
    }
    if (status === null && staleCodes.has(cause)) {
      if (!isAgain) return await ask(path, body, exchange, true);
    } else if (status === null) {
      onIncident({ incident: 'cannot_connect', status, cause });
      exchange.onConnectFailed();
      throw connectError(name, error);
    }
    onIncident({ incident: error instanceof SyntaxError ? 'unreadable_answer' : 'connection_broke', status, cause });
    throw httpError(name, error);
  }
}

function refusalOf(
  refused: UpstreamAnswer,
  sent: Readonly<Record<string, unknown>>,
  { flavor, name, tokenIdAt, onLoading, onIncident }: TaskExchange,
): ApiError {
  if (isLoading(refused, flavor)) onLoading();
  const reported = answerError(refused, flavor, name, Object.keys(sent));
  const { status } = refused;
  if (reported.type !== 'invalid_request_error')
    onIncident({
      incident: status !== 503 && reported.code === 'no_healthy_backends' ? 'not_found' : 'http_status',
      status,
      cause: null,
    });
  return reported.code === 'unsupported_value' && reported.param === 'prompt'
    ? new ApiError(reported.code, reported.message, { param: tokenIdAt() })
    : reported;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};

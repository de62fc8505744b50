import type { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Task } from '../../../generation/request.ts';
import type { Finding } from '../task-events.ts';
import { answerError, connectError, httpError, isLoading, timeoutError, type UpstreamAnswer } from './failures.ts';
import type { Flavor } from './flavors.ts';
import { causeCode, type BackendIncident } from './incidents.ts';

export interface TaskBackend {
  readonly pool: Pool;
  readonly flavor: Flavor;
  /** The model's public id, for errors, and its name at the backend. */
  readonly name: string;
  readonly model: string;
  /** Up to and including the API's version, and without it. */
  readonly basePath: string;
  readonly rootPath: string;
  readonly headers: readonly string[];
  /** Until the whole answer is there. */
  readonly timeoutMs: number;
  /** Aborted when the request or the engine ends. */
  readonly signal: AbortSignal;
  readonly onAlive: () => void;
  readonly onConnectFailed: () => void;
  readonly onLoading: () => void;
  readonly onIncident: (incident: BackendIncident) => void;
}

export interface TaskAnswer {
  /** One for each prompt, in their order. */
  readonly findings: readonly Finding[];
  /** `undefined`: the server does not say. */
  readonly promptTokens: number | undefined;
}

/** How a kind of server ranks documents. */
export interface RankWire {
  /** Whether its path is beside the API's version or below it. */
  readonly path: 'root' | 'versioned';
  readonly documents: 'documents' | 'texts';
  /** `logit`: any number, of which the logistic function makes a relevance. */
  readonly scores: 'relevance' | 'logit';
}

/** Numbers as text take 22 bytes; 2,048 inputs of 1,024 dimensions. */
const bodyBytesMax = 64 * 1024 * 1024;

/** Has a server embed or rank all prompts of a request. Rejects with an `ApiError`, or with the signal's reason. */
export async function runTask(request: EngineRequest, task: Task, backend: TaskBackend): Promise<TaskAnswer> {
  const { prompt } = request;
  if (prompt.type === 'messages') throw new Error('a task on messages');
  const { prompts } = prompt;
  const size = backend.flavor.tasks.promptsMax ?? prompts.length;
  const findings: Finding[] = [];
  let tokens: number | undefined = 0;
  // One after the other: a request has one place at its backend.
  for (let from = 0; from < prompts.length; from += size) {
    const some = prompts.slice(from, from + size) as readonly string[] | readonly (readonly number[])[];
    const answer = await (task.type === 'embed'
      ? embed(some, backend)
      : rank(some as readonly string[], task.query, backend));
    for (const finding of answer.findings) findings.push(finding);
    tokens = tokens === undefined || answer.promptTokens === undefined ? undefined : tokens + answer.promptTokens;
  }
  return { findings, promptTokens: tokens };
}

async function embed(
  input: readonly string[] | readonly (readonly number[])[],
  backend: TaskBackend,
): Promise<TaskAnswer> {
  // A server that does not know base64 answers with numbers, which takes it and us longer.
  const body = { model: backend.model, input, encoding_format: 'base64' };
  const answer = fieldsOf(await ask(`${backend.basePath}/embeddings`, body, backend));
  const findings = inOrder(answer['data'], input.length, (entry) => vectorOf(entry['embedding']), backend);
  return { findings, promptTokens: count(fieldsOf(answer['usage'])['prompt_tokens']) };
}

async function rank(documents: readonly string[], query: string, backend: TaskBackend): Promise<TaskAnswer> {
  const { rank: wire } = backend.flavor.tasks;
  if (wire === undefined) throw httpError(backend.name);
  const path = `${wire.path === 'root' ? backend.rootPath : backend.basePath}/rerank`;
  const answer = await ask(path, { model: backend.model, query, [wire.documents]: documents }, backend);
  const entries: unknown = Array.isArray(answer) ? answer : fieldsOf(answer)['results'];
  const findings = inOrder(
    entries,
    documents.length,
    (entry) => {
      const score = entry['relevance_score'] ?? entry['score'];
      if (typeof score !== 'number') return undefined;
      return wire.scores === 'logit' ? 1 / (1 + Math.exp(-score)) : score;
    },
    backend,
  );
  const usage = fieldsOf(fieldsOf(answer)['usage']);
  return { findings, promptTokens: count(usage['prompt_tokens'] ?? usage['total_tokens']) };
}

/** What a server says of each prompt, by its index; all of them once. */
function inOrder<Read extends Finding>(
  entries: unknown,
  length: number,
  read: (entry: Readonly<Record<string, unknown>>) => Read | undefined,
  { name, onIncident }: TaskBackend,
): readonly Read[] {
  const found = new Map<number, Read>();
  for (const [position, entry] of (Array.isArray(entries) ? entries : []).entries()) {
    const { index = position, ...rest } = fieldsOf(entry);
    const value = read(rest);
    if (Number.isInteger(index) && (index as number) >= 0 && (index as number) < length && value !== undefined)
      found.set(index as number, value);
  }
  if (found.size === length && (entries as readonly unknown[]).length === length)
    return Array.from({ length }, (_, index) => found.get(index)!);
  onIncident({ incident: 'unreadable_answer', status: 200, cause: 'task_results' });
  throw httpError(name);
}

/** Little-endian 32-bit floats in base64, or a list of numbers. */
function vectorOf(value: unknown): ArrayLike<number> | undefined {
  if (Array.isArray(value)) return value.every((each) => typeof each === 'number') ? value : undefined;
  if (typeof value !== 'string') return undefined;
  const bytes = Buffer.from(value, 'base64');
  if (bytes.length === 0 || bytes.length % 4 !== 0) return undefined;
  return Float32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(index * 4));
}

/** Error codes of a connection that the server had closed already: a task changes nothing there, so it is sent again once. */
const staleCodes: ReadonlySet<string | null> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

async function ask(
  path: string,
  body: Readonly<Record<string, unknown>>,
  backend: TaskBackend,
  isAgain = false,
): Promise<unknown> {
  const { pool, headers, timeoutMs, name, onIncident } = backend;
  const limit = AbortSignal.timeout(timeoutMs);
  let status: number | null = null;
  try {
    const answer = await pool.request({
      method: 'POST',
      path,
      headers: headers as string[],
      body: JSON.stringify(body),
      signal: combineSignals([backend.signal, limit]),
      // The limit above is the only one.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    backend.onAlive();
    status = answer.statusCode;
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > bodyBytesMax) throw new Error('the answer is too large');
      chunks.push(chunk);
    }
    const text = Buffer.concat(chunks).toString();
    if (status === 200) return JSON.parse(text);
    const retryAfter = answer.headers['retry-after'];
    const refused = { status, retryAfter: typeof retryAfter === 'string' ? retryAfter : undefined, body: parsed(text) };
    throw refusalOf(refused, body, backend);
  } catch (error) {
    backend.signal.throwIfAborted();
    if (error instanceof ApiError) throw error;
    const cause = causeCode(error);
    if (limit.aborted) {
      onIncident({ incident: 'no_first_token_in_time', status, cause: null });
      throw timeoutError(name);
    }
    if (status === null && staleCodes.has(cause)) {
      if (!isAgain) return await ask(path, body, backend, true);
    } else if (status === null) {
      onIncident({ incident: 'cannot_connect', status, cause });
      backend.onConnectFailed();
      throw connectError(name, error);
    }
    onIncident({ incident: error instanceof SyntaxError ? 'unreadable_answer' : 'connection_broke', status, cause });
    throw httpError(name, error);
  }
}

function refusalOf(
  refused: UpstreamAnswer,
  sent: Readonly<Record<string, unknown>>,
  { flavor, name, onLoading, onIncident }: TaskBackend,
): ApiError {
  if (isLoading(refused, flavor)) onLoading();
  const reported = answerError(refused, flavor, name, sent);
  const { status } = refused;
  if (reported.type !== 'invalid_request_error')
    onIncident({ incident: status === 404 ? 'not_found' : 'http_status', status, cause: null });
  return reported;
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

const count = (value: unknown): number | undefined =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;

/** One request to the inference host, as any program sends it: with a key, over HTTP, across origins. */
import { ApiFailure } from '../../api/client.ts';
import { fold, nothingRead } from './fold.ts';
import type { Read } from './fold.ts';
import { at, stringAt } from './families/family.ts';
import type { Family } from './families/family.ts';
import { EventReader, StreamFault } from '../../api/sse.ts';
import type { StreamEvent } from '../../api/sse.ts';

export interface Request {
  /** Of the inference host, without `/v1`. */
  readonly url: string;
  readonly family: Family;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface RawEvent extends StreamEvent {
  /** From the start of the request. */
  readonly atMs: number;
}

/** How a request stands. */
export interface Progress {
  readonly read: Read;
  readonly requestId: string | undefined;
  /** Until the first content. */
  readonly firstMs: number | undefined;
  readonly elapsedMs: number;
  /** The first ones, as they came. */
  readonly raw: readonly RawEvent[];
  readonly rawLeftOut: number;
}

export const noProgress: Progress = {
  read: nothingRead,
  requestId: undefined,
  firstMs: undefined,
  elapsedMs: 0,
  raw: [],
  rawLeftOut: 0,
};

const rawEventsMax = 2000;
const rawCharactersMax = 1_000_000;
/** Of an answer that is not streamed. */
const wholeBytesMax = 50_000_000;

/**
 * Sends it, and reports how it stands after each piece of the answer. Resolves at the end of the answer; rejects with `ApiFailure`
 * where there is none, with `StreamFault`, or because of the signal.
 */
export async function run(
  request: Request,
  secret: string,
  signal: AbortSignal,
  report: (progress: Progress) => void,
): Promise<void> {
  const { family } = request;
  const startedAt = performance.now();
  const answer = await ask(request, secret, signal);
  const requestId = answer.headers.get('x-request-id') ?? undefined;
  const events = new Events(requestId, startedAt);
  report(events.progress);
  if (!answer.ok) throw failureOf(await jsonOf(answer), answer.status, requestId, answer.headers.get('retry-after'));
  if (answer.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
    const text = await textOf(answer);
    events.take({ name: '', data: text });
    events.fold(family.readWhole(parsed(text)));
    report(events.progress);
  } else {
    const reader = new EventReader();
    for await (const piece of piecesOf(answer)) {
      for (const event of reader.read(piece)) {
        events.take(event);
        if (event.data !== '[DONE]') events.fold(family.readEvent(event, parsed(event.data)));
      }
      report(events.progress);
    }
  }
  const { read } = events.progress;
  if (read.error !== undefined) throw failureOf({ error: read.error }, answer.status, requestId);
  if (read.finish === undefined) throw new StreamFault('The answer has ended in the middle.');
}

async function ask({ url, family, headers, body }: Request, secret: string, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(url + family.path, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Unreachable(url);
  }
}

/** The browser has got no answer: the host is not there, or keeps its answers from this page. */
export class Unreachable extends Error {
  readonly url: string;

  constructor(url: string) {
    super(`There is no answer from ${url}.`);
    this.url = url;
  }
}

class Events {
  progress: Progress;
  readonly #startedAt: number;
  #rawCharacters = 0;

  constructor(requestId: string | undefined, startedAt: number) {
    this.progress = { ...noProgress, requestId };
    this.#startedAt = startedAt;
  }

  take(event: StreamEvent): void {
    const { raw, rawLeftOut } = this.progress;
    const elapsedMs = performance.now() - this.#startedAt;
    this.#rawCharacters += event.data.length;
    const isKept = raw.length < rawEventsMax && this.#rawCharacters <= rawCharactersMax;
    this.progress = {
      ...this.progress,
      elapsedMs,
      ...(isKept ? { raw: [...raw, { ...event, atMs: elapsedMs }] } : { rawLeftOut: rawLeftOut + 1 }),
    };
  }

  fold(deltas: ReturnType<Family['readWhole']>): void {
    const read = deltas.reduce(fold, this.progress.read);
    const firstMs = this.progress.firstMs ?? (read.pieces > 0 ? this.progress.elapsedMs : undefined);
    this.progress = { ...this.progress, read, firstMs };
  }
}

async function* piecesOf(answer: Response): AsyncGenerator<string> {
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
  } finally {
    // Of an answer that is not read to its end: the host stops writing it.
    await reader.cancel().catch(() => {});
  }
}

async function textOf(answer: Response): Promise<string> {
  const pieces: string[] = [];
  let length = 0;
  for await (const piece of piecesOf(answer)) {
    length += piece.length;
    if (length > wholeBytesMax) throw new StreamFault('The answer is longer than this page can show.');
    pieces.push(piece);
  }
  return pieces.join('');
}

const jsonOf = async (answer: Response): Promise<unknown> => parsed(await textOf(answer));

/** undefined: no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const failureTextMax = 2000;

/** The error of an answer, whatever it is. */
function failureOf(
  json: unknown,
  status: number,
  requestId: string | undefined,
  retryAfter?: string | null,
): ApiFailure {
  const error = at(json, 'error');
  const text = (name: string): Readonly<Record<string, string>> => {
    const value = stringAt(error, name)?.slice(0, failureTextMax);
    return value === undefined ? {} : { [name]: value };
  };
  return new ApiFailure(
    status,
    {
      message: `HTTP ${status}`,
      ...(requestId === undefined ? {} : { request_id: requestId }),
      ...text('message'),
      ...text('code'),
      ...text('docs_url'),
    },
    retryAfter,
  );
}

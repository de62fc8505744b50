import { statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { get, statusInWords, type HttpAccess, type HttpAnswer } from './http.ts';
import type { Meter } from './meter.ts';
import { Part } from './part.ts';
import { inWords, SourceProblem } from './problem.ts';

export interface Download {
  readonly http: HttpAccess;
  readonly url: string;
  readonly authorization?: string | undefined;
  /** Where the bytes are collected; `<part>.json` beside it tells a later process how to continue. */
  readonly part: string;
  /** Expected hash; `undefined`: the reader of the file checks it. */
  readonly sha256: string | undefined;
  readonly bytes: number | undefined;
  readonly signal: AbortSignal;
  readonly meter: Meter;
}

/**
 * Fetches a URL into `part`, continuing from what is there, until it is complete, durable and has the expected hash. Throws `SourceProblem`
 * when the URL cannot deliver it; a part that may still be useful then stays.
 */
export async function download(
  order: Download,
): Promise<{ readonly resumed: boolean; readonly sha256: string; readonly bytes: number }> {
  order.meter.begin('checking', undefined);
  const part = await Part.open(order.part, order.sha256, order.signal, (bytes) => order.meter.report(bytes));
  try {
    await gather(order, part);
    return { resumed: part.resumed, sha256: part.sha256, bytes: part.length };
  } catch (error) {
    if (error instanceof WrongBytes || part.length === 0) await part.remove();
    throw error;
  } finally {
    await part.close();
  }
}

class WrongBytes extends SourceProblem {}

async function gather(order: Download, part: Part): Promise<void> {
  const { limits } = order.http;
  let ranges = true;
  let begunAnew = false;
  let fruitless = 0;
  for (let tries = 1; ; tries++) {
    const before = part.length;
    try {
      const outcome = await once(order, part, ranges && part.length > 0);
      if (outcome === 'whole' && (order.sha256 === undefined || part.sha256 === order.sha256)) return;
      if (outcome === 'no-ranges') ranges = false;
      else if (!part.pieced || begunAnew)
        throw new WrongBytes(`delivers another file: its sha256 is ${part.sha256}, expected ${order.sha256}`);
      else begunAnew = true;
      await part.restart();
    } catch (error) {
      order.signal.throwIfAborted();
      if (error instanceof SourceProblem || isLocal(error)) throw error;
      fruitless = part.length > before ? 0 : fruitless + 1;
      const fruitlessMax = isUnreachable(error) ? Math.min(2, limits.fruitlessTriesMax) : limits.fruitlessTriesMax;
      if (fruitless >= fruitlessMax || tries >= limits.triesMax) {
        throw new SourceProblem(`${inWords(error)} (tried ${tries} times, ${part.length} bytes are kept)`, {
          cause: error,
        });
      }
      const patienceMs = error instanceof TryLater ? error.afterMs : 0;
      await pause(Math.min(Math.max(limits.pauseMs * 2 ** fruitless, patienceMs), limits.pauseMaxMs), undefined, {
        signal: order.signal,
      });
    }
  }
}

/** The host asks for a later retry. */
class TryLater extends Error {
  readonly afterMs: number;

  constructor(message: string, afterMs: number) {
    super(message);
    this.afterMs = afterMs;
  }
}

/**
 * Makes one request. `whole`: all bytes are there and durable. `no-ranges`: the host ignores the range, so everything must be fetched
 * again. Throws when the try failed and another may succeed.
 */
async function once(order: Download, part: Part, range: boolean): Promise<'whole' | 'no-ranges'> {
  const headers: Record<string, string> = {};
  if (range) {
    headers['range'] = `bytes=${part.length}-`;
    // A part from another URL has the same hash in the end, so it may be continued; its validator means nothing here.
    const { origin } = part;
    if (origin?.validator !== undefined && origin.url === order.url) headers['if-range'] = origin.validator;
  }
  const answer = await get(order.http, order.url, {
    headers,
    authorization: order.authorization,
    signal: order.signal,
  });
  const chunks = received(answer.body);
  try {
    const size = sizeOf(answer);
    switch (answer.status) {
      case 200:
        await part.restart();
        break;
      case 206:
        if (!range) throw new SourceProblem(`${hostOf(answer)} answers 206 although the whole file was asked for`);
        if (size === undefined || startOf(answer) !== part.length) return 'no-ranges';
        part.goOn();
        break;
      case 416:
        if (!range) throw new SourceProblem(`${hostOf(answer)} answers 416 although the whole file was asked for`);
        return size === part.length ? 'whole' : 'no-ranges';
      case 408:
      case 425:
      case 429:
      case 500:
      case 502:
      case 503:
      case 504:
        throw new TryLater(statusInWords(answer.status, hostOf(answer)), retryAfterMs(answer));
      default:
        throw new SourceProblem(statusInWords(answer.status, hostOf(answer)));
    }
    refuseOtherFiles(order, answer, size);
    await refuseFullDisk(order.part, size ?? order.bytes, part.length);
    await part.setOrigin({ url: order.url, validator: validatorOf(answer), sha256: order.sha256, size });
    order.meter.begin('downloading', size ?? order.bytes, part.length, part.resumed);
    await readInto(part, chunks, size, order);
  } finally {
    answer.body.destroy();
  }
  await part.sync();
  return 'whole';
}

async function readInto(
  part: Part,
  chunks: AsyncIterable<Buffer>,
  size: number | undefined,
  order: Download,
): Promise<void> {
  const bytesMax = size ?? order.bytes ?? Infinity;
  for await (const chunk of chunks) {
    if (part.length + chunk.length > bytesMax)
      throw new SourceProblem(`delivers more than the ${bytesMax} bytes of the file`);
    await part.append(chunk);
    order.meter.report(part.length);
  }
  if (size !== undefined && part.length < size)
    throw new Error(`the connection ended after ${part.length} of ${size} bytes`);
}

const aheadBytesMax = 1 << 20;

/**
 * Reads the chunks of a body from now on, including those that arrive before the connection breaks: iterating over the body itself loses
 * them, and on a bad line the same bytes would be fetched forever.
 */
function received(body: Readable): AsyncIterable<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let end: { readonly error: Error | undefined } | undefined;
  let wake = () => {};
  const ending = (error: Error | undefined) => {
    end ??= { error };
    wake();
  };
  body.on('end', () => ending(undefined));
  body.on('error', ending);
  body.on('close', () => ending(new Error('the connection was closed')));
  body.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes >= aheadBytesMax) body.pause();
    wake();
  });
  return (async function* () {
    for (;;) {
      const chunk = chunks.shift();
      if (chunk !== undefined) {
        bytes -= chunk.length;
        if (bytes < aheadBytesMax && body.isPaused()) body.resume();
        yield chunk;
      } else if (end === undefined) await new Promise<void>((resolve) => (wake = resolve));
      else if (end.error === undefined) return;
      else throw end.error;
    }
  })();
}

function refuseOtherFiles(order: Download, answer: HttpAnswer, size: number | undefined): void {
  const encoding = answer.header('content-encoding');
  if (encoding !== undefined && encoding !== 'identity')
    throw new SourceProblem(`${hostOf(answer)} sends the file encoded as ${encoding.slice(0, 40)}, unasked`);
  if (order.bytes === undefined || size === undefined || size === order.bytes) return;
  throw new SourceProblem(`delivers another file: it has ${size} bytes, expected ${order.bytes}`);
}

/** Throws unless the disk has room for the rest of the file and 5 %. */
async function refuseFullDisk(file: string, size: number | undefined, present: number): Promise<void> {
  if (size === undefined) return;
  const { bavail, bsize } = await statfs(path.dirname(file));
  const needed = Math.ceil(size * 1.05) - present;
  if (bavail * bsize >= needed) return;
  throw new SourceProblem(
    `${needed} bytes are needed in ${path.dirname(file)}, and ${bavail * bsize} are free there; free some space, or name another folder with TOKENHOUSE_MODEL_DIR`,
  );
}

/** Returns whether this computer is at fault: another try would fail the same way. */
function isLocal(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM', 'EIO', 'EMFILE'].includes(
    (error as NodeJS.ErrnoException).code ?? '',
  );
}

/** Returns whether no connection was made; a first start should reach its next source soon. */
function isUnreachable(error: unknown): boolean {
  const codes = [
    'ENOTFOUND',
    'EAI_AGAIN',
    'ECONNREFUSED',
    'EHOSTUNREACH',
    'ENETUNREACH',
    'ETIMEDOUT',
    'UND_ERR_CONNECT_TIMEOUT',
  ];
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}

/** Returns the size of the whole file: after the slash of `Content-Range`, or the length of a complete response. */
function sizeOf(answer: HttpAnswer): number | undefined {
  if (answer.status === 200) return wholeNumber(answer.header('content-length'));
  return wholeNumber(/\/(\d+)$/.exec(answer.header('content-range') ?? '')?.[1]);
}

function startOf(answer: HttpAnswer): number | undefined {
  return wholeNumber(/^bytes (\d+)-/.exec(answer.header('content-range') ?? '')?.[1]);
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function validatorOf(answer: HttpAnswer): string | undefined {
  const etag = answer.header('etag');
  return etag !== undefined && etag.startsWith('"') ? etag : answer.header('last-modified');
}

function retryAfterMs(answer: HttpAnswer): number {
  return (wholeNumber(answer.header('retry-after')) ?? 0) * 1000;
}

const hostOf = (answer: HttpAnswer): string => new URL(answer.url).host;

import { createReadStream, createWriteStream, openAsBlob } from 'node:fs';
import { createInterface } from 'node:readline';
import { basename, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';

import { fitted, lineBar } from '../inference/model-files/progress.ts';
import { noKey, reach, refusal } from './chat-request.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { table, timeText } from './output.ts';
import { namedService, serviceHere } from './service-here.ts';

interface Where {
  readonly url?: string;
  readonly key?: string;
}

/** An answer of `/v1/batches`. */
interface OpenAiBatch {
  readonly id: string;
  readonly endpoint: string;
  readonly model: string | null;
  readonly status: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly errors: {
    readonly data: readonly { readonly line: number | null; readonly param: string | null; readonly message: string }[];
  } | null;
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number };
}

/** An answer of `/v1/messages/batches`. */
interface MessageBatch {
  readonly id: string;
  readonly processing_status: 'in_progress' | 'canceling' | 'ended';
  readonly created_at: string;
  readonly expires_at: string;
  readonly request_counts: Readonly<Record<'processing' | 'succeeded' | 'errored' | 'canceled' | 'expired', number>>;
}

/** What both say. */
interface Shown {
  readonly id: string;
  readonly endpoint: string;
  readonly model: string | null;
  readonly status: string;
  readonly isOver: boolean;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly done: number;
  readonly failed: number;
  readonly total: number;
  readonly faults: readonly string[];
}

const over = ['completed', 'failed', 'expired', 'cancelled'];
const uploadTimeoutMs = 3_600_000;
const timeoutMs = 30_000;
const lookMs = 1_000;

export async function listBatches(context: Context, { limit, ...where }: Where & { readonly limit: number }) {
  const api = await Api.of(context, where);
  const [ofFiles, ofMessages] = await Promise.all([
    api.json<{ readonly data: readonly OpenAiBatch[] }>('GET', `/v1/batches?limit=${limit}`),
    api.json<{ readonly data: readonly MessageBatch[] }>('GET', `/v1/messages/batches?limit=${limit}`),
  ]);
  const rows = [...ofFiles.data, ...ofMessages.data]
    .map((batch) => [batch, shownOf(batch)] as const)
    .toSorted(([, one], [, other]) => other.createdAt - one.createdAt)
    .slice(0, limit);
  context.print.result(
    rows.map(([batch]) => batch),
    table(
      ['batch', 'created', 'status', 'done', 'failed', 'of', 'for'],
      rows.map(([, { id, createdAt, status, done, failed, total, endpoint, model }]) => [
        ...[id, timeText(createdAt), status, done, failed, total],
        model === null ? endpoint : `${endpoint} ${model}`,
      ]),
    ),
  );
  return 0;
}

export async function showBatch(context: Context, options: Where & { readonly wait?: boolean }, id: string) {
  const api = await Api.of(context, options);
  return show(context, options.wait === true ? await followed(context, api, id) : await api.batch('GET', id));
}

export async function createBatch(
  context: Context,
  options: Where & { readonly wait?: boolean; readonly endpoint?: string },
  file: string,
) {
  const path = resolve(context.around.directory, file);
  const endpoint = options.endpoint ?? (await endpointOf(path, file));
  const api = await Api.of(context, options);
  const form = new FormData();
  form.set('purpose', 'batch');
  // Files above 50 MB are known as batches by this ending.
  form.set('file', await openAsBlob(path), file.endsWith('.jsonl') ? basename(file) : `${basename(file)}.jsonl`);
  const { id: fileId } = await api.json<{ readonly id: string }>('POST', '/v1/files', form, uploadTimeoutMs);
  const asked = JSON.stringify({ input_file_id: fileId, endpoint, completion_window: '24h' });
  const made = await api.json<OpenAiBatch>('POST', '/v1/batches', asked);
  return show(context, options.wait === true ? await followed(context, api, made.id) : made);
}

export async function cancelBatch(context: Context, options: Where, id: string) {
  const api = await Api.of(context, options);
  return show(context, await api.batch('POST', id, '/cancel'));
}

export async function downloadBatch(
  context: Context,
  options: Where & { readonly errors?: boolean; readonly output?: string },
  id: string,
) {
  const api = await Api.of(context, options);
  const batch = await api.batch('GET', id);
  const { isOver, status } = shownOf(batch);
  const fileId = 'status' in batch ? (options.errors === true ? batch.error_file_id : batch.output_file_id) : undefined;
  if (!isOver || fileId === null)
    throw new CommandFailure({
      what: [`${id} has no ${options.errors === true ? 'lines without an answer' : 'answers'} to download.`],
      why: isOver ? `it is ${status}` : `it is not over: ${status}`,
      repair: [`tokenhouse batches show${isOver ? '' : ' --wait'} ${id}`],
      exitCode: exitCodes.refused,
    });
  const from = fileId === undefined ? `${placeOf(id)}/results` : `/v1/files/${fileId}/content`;
  const { body } = await api.send('GET', from, undefined, uploadTimeoutMs);
  const source = Readable.fromWeb(body!);
  if (options.output === undefined) await pipeline(source, context.around.stdout, { end: false });
  else await pipeline(source, createWriteStream(resolve(context.around.directory, options.output), { mode: 0o600 }));
  return 0;
}

/** Asks until it is over, and shows on a terminal how far it is. */
async function followed(context: Context, api: Api, id: string): Promise<OpenAiBatch | MessageBatch> {
  const { stderr } = context.around;
  for (let before = ''; ;) {
    const batch = await api.batch('GET', id);
    const { isOver, status, done, failed, total } = shownOf(batch);
    const now = `${status} ${done + failed} of ${total}${failed === 0 ? '' : `, ${failed} failed`}`;
    if (stderr.isTTY === true)
      stderr.write(`\r${fitted(`${id} ${lineBar(done + failed, total)}${now}`, stderr.columns ?? 80)}\u001b[K`);
    else if (status !== before) context.print.say(`${id} ${now}`);
    before = status;
    if (isOver) {
      if (stderr.isTTY === true) stderr.write('\n');
      return batch;
    }
    await sleep(lookMs);
  }
}

function show({ print }: Context, batch: OpenAiBatch | MessageBatch): number {
  const { id, endpoint, model, status, createdAt, expiresAt, done, failed, total, faults } = shownOf(batch);
  print.result(batch, [
    ...table(
      [id, status],
      [
        ['for', model === null ? endpoint : `${endpoint} ${model}`],
        ['lines', `${total}: ${done} answered, ${failed} without an answer`],
        ['created', timeText(createdAt)],
        ['ends by', timeText(expiresAt)],
      ],
    ),
    ...faults,
  ]);
  return status === 'failed' ? exitCodes.refused : 0;
}

function shownOf(batch: OpenAiBatch | MessageBatch): Shown {
  if ('processing_status' in batch) {
    const { id, processing_status: status, request_counts: counts } = batch;
    const failed = counts.errored + counts.canceled + counts.expired;
    return {
      ...{ id, status, endpoint: '/v1/messages', model: null, isOver: status === 'ended', faults: [] },
      createdAt: Math.floor(Date.parse(batch.created_at) / 1_000),
      expiresAt: Math.floor(Date.parse(batch.expires_at) / 1_000),
      done: counts.succeeded,
      failed,
      total: counts.processing + counts.succeeded + failed,
    };
  }
  const { id, status, endpoint, model, errors, request_counts: counts } = batch;
  return {
    ...{ id, status, endpoint, model, isOver: over.includes(status) },
    createdAt: batch.created_at,
    expiresAt: batch.expires_at,
    done: counts.completed,
    failed: counts.failed,
    total: counts.total,
    faults: (errors?.data ?? []).map(
      ({ line, param, message }) =>
        `${line === null ? '' : `line ${line}, `}${param === null ? '' : `${param}: `}${message}`,
    ),
  };
}

const placeOf = (id: string): string =>
  `/v1/${id.startsWith('msgbatch_') ? 'messages/' : ''}batches/${encodeURIComponent(id)}`;

/** What the first line is for; the service compares the others with it. */
async function endpointOf(path: string, file: string): Promise<string> {
  const source = createReadStream(path);
  const lines = createInterface({ input: source });
  try {
    for await (const line of lines) {
      if (line.trim() === '') continue;
      const { url } = JSON.parse(line) as { readonly url?: unknown };
      if (typeof url === 'string') return url;
      break;
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw notLines(file, (error as Error).message);
  } finally {
    lines.close();
    source.destroy();
  }
  throw notLines(file, 'its first line is no JSON object with a url');
}

const notLines = (file: string, why: string): CommandFailure =>
  new CommandFailure({
    what: [`${file} is no file of a batch.`],
    why,
    repair: ['tokenhouse batches create requests.jsonl', 'docs/batches.md shows such a file'],
    exitCode: exitCodes.usage,
  });

/** The API of a service, asked with a key. */
class Api {
  readonly #url: string;
  readonly #key: string;

  private constructor(url: string, key: string) {
    this.#url = url;
    this.#key = key;
  }

  static async of(context: Context, { url, key }: Where): Promise<Api> {
    const { environment } = context;
    const given = key ?? environment.variable('TOKENHOUSE_KEY');
    if (given === undefined || given === '') throw noKey('batches belong to the account of a key');
    return new Api(namedService(url, environment) ?? (await serviceHere(context)).url, given);
  }

  async batch(method: 'GET' | 'POST', id: string, action = ''): Promise<OpenAiBatch | MessageBatch> {
    return await this.json(method, `${placeOf(id)}${action}`);
  }

  async json<Answer>(method: 'GET' | 'POST', path: string, body?: string | FormData, ms = timeoutMs): Promise<Answer> {
    return (await (await this.send(method, path, body, ms)).json()) as Answer;
  }

  /** An answer that is no error. */
  async send(method: 'GET' | 'POST', path: string, body?: string | FormData, ms = timeoutMs): Promise<Response> {
    const answer = await reach(this.#url, path, {
      ...{ method, signal: AbortSignal.timeout(ms) },
      headers: { authorization: `Bearer ${this.#key}` },
      ...(body === undefined ? {} : { body }),
    });
    if (answer.ok) return answer;
    const said = (await answer.json().catch(() => undefined)) as { readonly error?: unknown } | undefined;
    throw refusal(said?.error, this.#url);
  }
}

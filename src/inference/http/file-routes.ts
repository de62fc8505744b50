import type { IncomingMessage } from 'node:http';

import { ApiError } from '../../platform/errors.ts';
import { anthropicShape, readPage } from '../files/anthropic-shape.ts';
import { attachment } from '../files/file-name.ts';
import type { FileCursor, FileRow, Files, UploadFacts } from '../files/files.ts';
import { openAiShape } from '../files/openai-shape.ts';
import type { RequestLimits } from '../pipeline/runtime-config.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import { declaredLength, largeBodyBytes } from './body.ts';
import { callerOf, caughtUp, requireCaller, zdrRequired } from './caller.ts';
import type { Exchange } from './exchange.ts';
import { fileTooLarge, framingBytesMax, invalidField, readMultipart } from './multipart.ts';
import { methodNotAllowed } from './plain-routes.ts';
import { headersOf, sendJson } from './respond.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';

export const isFilesPath = (path: string): boolean => path === '/v1/files' || path.startsWith('/v1/files/');

/** Contracts decision 6: the shape of an answer follows the request. */
export const fileShape = (request: IncomingMessage) =>
  request.headers['anthropic-version'] === undefined ? openAiShape : anthropicShape;

/** Handles the file routes (contracts §1.4): files belong to an account, and other accounts get 404. */
export async function answerFiles(exchange: Exchange): Promise<void> {
  const { request, path, host, lease } = exchange;
  const { services } = host;
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  await caughtUp(exchange);
  const [, id, content] = /^\/v1\/files(?:\/([^/]+)(\/content)?)?$/.exec(path) ?? [path, '', undefined];
  if (id === '') throw new ApiError('http_404', 'Route not found.');
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  if (id === undefined) {
    if (request.method !== 'POST' && !isRead) throw methodNotAllowed('GET, HEAD, POST');
  } else if (!isRead && (content !== undefined || request.method !== 'DELETE')) {
    throw methodNotAllowed(content === undefined ? 'GET, HEAD, DELETE' : 'GET, HEAD');
  }
  if (request.method === 'POST') checkMultipart(request);
  const caller = requireCaller(await callerOf(exchange));
  exchange.zdr = zdrRequired(request.headers, caller);
  if (request.method === 'POST') checkUpload(exchange);
  const admitted = await services.limits.admit(caller, 'file');
  exchange.admitted = admitted;
  const { requestDeadlineMs } = lease.runtimeConfig.limits;
  exchange.deadline = host.deadlines.of(requestDeadlineMs).begin(() => exchange.running.cancel('deadline'));
  try {
    const accountId = caller.account.id;
    if (request.method === 'POST') await upload(exchange, accountId);
    else if (id === undefined) await list(exchange, accountId, services.files);
    else if (request.method === 'DELETE') await remove(exchange, accountId, id, services.files);
    else if (content !== undefined) await download(exchange, accountId, id, services.files);
    else answer(exchange, fileShape(request).object(await found(accountId, id, services.files)));
  } finally {
    admitted.end();
  }
}

const answer = (exchange: Exchange, body: object): void => sendJson(exchange, 200, JSON.stringify(body));

async function found(accountId: string, id: string, files: Files): Promise<FileRow> {
  const file = await files.find(accountId, id);
  if (file === undefined) throw noSuchFile();
  return file;
}

const noSuchFile = (): ApiError => new ApiError('http_404', 'File not found.', { param: 'file_id' });

/** The opposite of inference routes: files are accepted as multipart only. */
function checkMultipart(request: IncomingMessage): void {
  if (!/^\s*multipart\/form-data\s*(;|$)/i.test(request.headers['content-type'] ?? '')) {
    throw new ApiError('http_415', 'Upload a file as multipart/form-data, in the field `file`.');
  }
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new ApiError('http_415', 'Compressed request bodies are not supported.');
  }
}

/** Runs the checks that need only the head of an upload. */
function checkUpload({ request, key, zdr, lease, host }: Exchange): void {
  // Specification §5.5.
  if (key.userId === null) {
    throw new ApiError('files_require_user_key', 'This key does not belong to a user, so it cannot upload files.');
  }
  // Reliability part 4: storing a file is exactly the retention that the header forbids.
  if (zdr) {
    throw new ApiError('unsupported_parameter', 'Files cannot be stored with zero data retention.', {
      param: 'Service-ZDR',
    });
  }
  const declared = declaredLength(request);
  const bytesMax = largestUpload(request, lease.runtimeConfig.limits);
  if (declared !== undefined && declared > bytesMax + framingBytesMax) throw fileTooLarge(bytesMax);
  host.services.admission.check(declared, largeBodyBytes);
}

/** The purpose is not known yet. */
const largestUpload = (request: IncomingMessage, { fileBytesMax, batchFileBytesMax }: RequestLimits): number =>
  fileShape(request) === openAiShape ? Math.max(fileBytesMax, batchFileBytesMax) : fileBytesMax;

/** Takes the memory that storing a file needs, and lets the client send it. */
export async function whileStoring(exchange: Exchange, accountId: string, act: () => Promise<void>): Promise<void> {
  const { request, response, host } = exchange;
  const { files, bodyBudget } = host.services;
  const memoryBytes = files.memoryPerUploadBytes;
  bodyBudget.take(memoryBytes, accountId);
  try {
    if (request.headers.expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
    await act();
  } finally {
    bodyBudget.give(memoryBytes, accountId);
  }
}

async function upload(exchange: Exchange, accountId: string): Promise<void> {
  const { request, lease, host } = exchange;
  const { files } = host.services;
  const { limits } = lease.runtimeConfig;
  const signal = abortSignalOf(exchange.signal);
  const shape = fileShape(request);
  await whileStoring(exchange, accountId, async () => {
    const bytesMax = Math.min(largestUpload(request, limits), declaredLength(request) ?? Infinity);
    // A purpose may follow the file, and a file that is too large is refused before it has been sent.
    const ofName = (name: string | undefined): number =>
      name?.toLowerCase().endsWith('.jsonl') === true ? largestUpload(request, limits) : limits.fileBytesMax;
    const options = { bytesMax: ofName, fields: shape === openAiShape ? openAiFields : anthropicFields };
    const multipart = await readMultipart(request, options, signal);
    try {
      const facts = async (bytes: number): Promise<UploadFacts> => {
        const fields = await multipart.fields();
        const purpose = shape === openAiShape ? purposeOf(fields) : null;
        if (bytes > limits.fileBytesMax && purpose !== 'batch') throw fileTooLarge(limits.fileBytesMax);
        return {
          name: multipart.name,
          purpose,
          expiresAfterMs: shape === openAiShape ? expiresAfterMs(fields) : expiresInMs(fields),
        };
      };
      const file = await files.upload(accountId, bytesMax, multipart.file, facts, signal);
      sendJson(exchange, 200, JSON.stringify(shape.object(file)));
    } finally {
      multipart.abandon();
    }
  });
}

const openAiFields: ReadonlySet<string> = new Set(['purpose', 'expires_after[anchor]', 'expires_after[seconds]']);
const anthropicFields: ReadonlySet<string> = new Set(['expires_in_seconds']);
const purposes = ['assistants', 'batch', 'evals', 'fine-tune', 'user_data', 'vision'];

function purposeOf(fields: ReadonlyMap<string, string>): string {
  const purpose = fields.get('purpose');
  if (purpose !== undefined && purposes.includes(purpose)) return purpose;
  throw invalidField('purpose', `${purpose === undefined ? 'is required' : 'must be one of'}: ${purposes.join(', ')}`);
}

function expiresAfterMs(fields: ReadonlyMap<string, string>): number | undefined {
  const anchor = fields.get('expires_after[anchor]');
  const seconds = fields.get('expires_after[seconds]');
  if (anchor === undefined && seconds === undefined) return undefined;
  if (anchor !== 'created_at') throw invalidField('expires_after[anchor]', "must be 'created_at'");
  return secondsMs('expires_after[seconds]', seconds ?? '', 2_592_000);
}

function expiresInMs(fields: ReadonlyMap<string, string>): number | undefined {
  const seconds = fields.get('expires_in_seconds');
  return seconds === undefined ? undefined : secondsMs('expires_in_seconds', seconds, 7_776_000);
}

function secondsMs(param: string, text: string, secondsMax: number): number {
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (seconds >= 3_600 && seconds <= secondsMax) return seconds * 1_000;
  throw invalidField(param, `must be a whole number of seconds from 3600 to ${secondsMax}`);
}

async function list(exchange: Exchange, accountId: string, files: Files): Promise<void> {
  const { request } = exchange;
  const query = new URLSearchParams(/\?(.*)$/s.exec(request.url ?? '')?.[1] ?? '');
  const shape = fileShape(request);
  if (shape === openAiShape) {
    const order = query.get('order') ?? 'desc';
    if (order !== 'asc' && order !== 'desc') throw invalidField('order', 'must be asc or desc');
    const after = await cursorOf('after', query, accountId, files);
    const limit = limitOf(query, 10_000, 10_000);
    const purpose = query.get('purpose') ?? undefined;
    const page = await files.list(accountId, { order: order === 'asc' ? 'oldest' : 'newest', after, purpose, limit });
    answer(exchange, shape.list(page));
    return;
  }
  const ids = [...new Set([...query.getAll('ids[]'), ...query.getAll('ids')])];
  if (ids.length > idsMax) throw invalidField('ids', `has more than ${idsMax} entries`);
  if (ids.length > 0) {
    const plain = ids.map((id) => id.replace(/^file[-_]/, ''));
    answer(exchange, shape.list(await files.list(accountId, { order: 'newest', ids: plain, limit: idsMax })));
    return;
  }
  const page = query.get('page') ?? '';
  const fromPage = page === '' ? undefined : readPage(page);
  if (page !== '' && fromPage === undefined) throw unknownPlace('page');
  const after = fromPage ?? (await cursorOf('after_id', query, accountId, files));
  const before = after === undefined ? await cursorOf('before_id', query, accountId, files) : undefined;
  answer(
    exchange,
    shape.list(await files.list(accountId, { order: 'newest', after, before, limit: limitOf(query, 20, 1_000) })),
  );
}

const idsMax = 100;

export function limitOf(query: URLSearchParams, byDefault: number, limitMax: number): number {
  const text = query.get('limit');
  if (text === null || text === '') return byDefault;
  const limit = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (limit < 1 || limit > limitMax) throw invalidField('limit', `must be a whole number from 1 to ${limitMax}`);
  return limit;
}

/** Finds the file after which a page begins. It must exist. */
async function cursorOf(
  param: string,
  query: URLSearchParams,
  accountId: string,
  files: Files,
): Promise<FileCursor | undefined> {
  const id = query.get(param);
  if (id === null || id === '') return undefined;
  const file = await files.find(accountId, id);
  if (file === undefined) throw unknownPlace(param);
  return { createdAt: file.createdAt, id: file.id };
}

const unknownPlace = (param: string): ApiError =>
  new ApiError('unsupported_value', `'${param}' is not a position in the list of files.`, { param });

async function remove(exchange: Exchange, accountId: string, id: string, files: Files): Promise<void> {
  const file = await found(accountId, id, files);
  if (!(await files.remove(accountId, file.id))) throw noSuchFile();
  answer(exchange, fileShape(exchange.request).deleted(file.id));
}

async function download(exchange: Exchange, accountId: string, id: string, files: Files): Promise<void> {
  const file = await found(accountId, id, files);
  const isText = file.mediaType.startsWith('text/') || file.mediaType === 'application/json';
  await sendFile(exchange, file, isText ? `${file.mediaType}; charset=utf-8` : file.mediaType);
}

/** Sends the bytes as they were stored, always as a download: never as a page of this host (reliability §3.4). */
export async function sendFile(exchange: Exchange, file: FileRow, contentType: string): Promise<void> {
  const { request, response, running, lease, host } = exchange;
  const headers = {
    'content-length': String(file.bytes),
    'content-disposition': attachment(file.name),
    'x-content-type-options': 'nosniff',
    'content-security-policy': 'sandbox',
  };
  const head = headersOf(exchange, contentType, headers);
  if (request.method === 'HEAD') {
    response.writeHead(200, head).end();
    return;
  }
  const bytes = await host.services.files.read(file, abortSignalOf(running.signal));
  if (bytes === undefined) throw noSuchFile();
  try {
    for await (const chunk of bytes) {
      if (!response.headersSent) response.writeHead(200, head);
      if (!response.write(chunk) && !(await drained(exchange, lease.runtimeConfig.limits.readerStallMs))) return;
    }
    if (!response.headersSent) response.writeHead(200, head);
    response.end();
  } catch (error) {
    // An aborted stream fails with its own error.
    throw running.signal.aborted ? running.signal.reason : error;
  } finally {
    bytes.destroy();
  }
}

/** Waits until the client reads again; `false` when it is gone, or reads nothing for too long (reliability C3). */
function drained({ response, running }: Exchange, stallMs: number): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      response.off('drain', onDrain).off('close', onClose);
      running.signal.removeEventListener('abort', onAbort);
    };
    const onDrain = (): void => {
      stop();
      resolve(true);
    };
    const onClose = (): void => {
      stop();
      resolve(false);
    };
    const onAbort = (): void => {
      stop();
      reject(running.signal.reason as Error);
    };
    const timer = setTimeout(() => {
      running.cancel('reader-stalled');
      response.destroy();
    }, stallMs);
    response.on('drain', onDrain).on('close', onClose);
    running.signal.addEventListener('abort', onAbort, { once: true });
  });
}

import type { Caller } from '../../accounts/directory.ts';
import { ApiError } from '../../platform/errors.ts';
import { readBatchId } from '../../platform/ids/batch-id.ts';
import { parseJson } from '../../platform/http/json/parse.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';

import { anthropicBatches, resultsKeptMs } from '../batches/anthropic-shape.ts';
import type { Batches, BatchRequest, BatchRow } from '../batches/batches.ts';
import { openAiBatches } from '../batches/openai-shape.ts';
import { RequestSplitter } from '../batches/split-requests.ts';
import { messages } from '../dialects/messages/messages.ts';
import { checkAccess } from '../pipeline/access.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import { arriving, checkContentType, checkDeclaredLength, declaredLength, largeBodyBytes, readBody } from './body.ts';
import { callerOf, caughtUp, requireCaller, zdrRequired } from './caller.ts';
import type { Exchange } from './exchange.ts';
import { limitOf, sendFile, whileStoring } from './file-routes.ts';
import { hasLines, lineEndpoints, noRetention } from './lines.ts';
import { invalidField } from './multipart.ts';
import { parseBody } from './ordering.ts';
import { methodNotAllowed } from './plain-routes.ts';
import { sendJson } from './respond.ts';

/** The routes of one interface, without those of a single batch. */
interface BatchRoutes {
  readonly wire: BatchRow['wire'];
  readonly path: string;
  /** What each route takes: `all` batches, `one`, and what can be done with one. */
  readonly methods: ReadonlyMap<string, readonly string[]>;
  object(row: BatchRow, exchange: Exchange): object;
  /** Records what the client sends. */
  create(exchange: Exchange, caller: Caller): Promise<BatchRow>;
  list(exchange: Exchange, query: URLSearchParams): Promise<object>;
}

const read = ['GET', 'HEAD'];
const openAiRoutes: BatchRoutes = {
  wire: 'openai',
  path: '/v1/batches',
  methods: new Map([
    ['all', [...read, 'POST']],
    ['one', read],
    ['/cancel', ['POST']],
  ]),
  object: openAiBatches.object,
  create: createOpenAi,
  list: listOpenAi,
};
const anthropicRoutes: BatchRoutes = {
  wire: 'anthropic',
  path: '/v1/messages/batches',
  methods: new Map([
    ['all', [...read, 'POST']],
    ['one', [...read, 'DELETE']],
    ['/cancel', ['POST']],
    ['/results', read],
  ]),
  object: (row, exchange) => anthropicBatches.object(row, addressOf(exchange), exchange.host.services.now()),
  create: createAnthropic,
  list: listAnthropic,
};

const routesOf = (path: string): BatchRoutes | undefined =>
  [openAiRoutes, anthropicRoutes].find((routes) => path === routes.path || path.startsWith(`${routes.path}/`));

export const isBatchesPath = (path: string): boolean => routesOf(path) !== undefined;

/** The form of errors below this path, if it is one of batches. */
export const batchErrors = (path: string): Pick<typeof messages, 'encodeError'> | undefined =>
  routesOf(path) === anthropicRoutes ? messages : undefined;

/** The body of a request that makes a batch of a file: a few names. */
const bodyBytesMax = 65_536;

/** Handles the routes of batches: they belong to an account, and other accounts get 404. */
export async function answerBatches(exchange: Exchange): Promise<void> {
  const { request, path, host, lease } = exchange;
  const { services } = host;
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  await caughtUp(exchange);
  const routes = routesOf(path)!;
  const [, id, action] = /^(?:\/([^/]+)(\/[a-z]+)?)?$/.exec(path.slice(routes.path.length)) ?? [path, '', 'none'];
  const methods = routes.methods.get(id === undefined ? 'all' : (action ?? 'one'));
  if (methods === undefined) throw new ApiError('http_404', 'Route not found.');
  if (!methods.includes(request.method ?? '')) throw methodNotAllowed(methods.join(', '));
  const caller = requireCaller(await callerOf(exchange));
  exchange.zdr = zdrRequired(request.headers, caller);
  const admitted = await services.limits.admit(caller, 'file');
  exchange.admitted = admitted;
  const { requestDeadlineMs } = lease.runtimeConfig.limits;
  exchange.deadline = host.deadlines.of(requestDeadlineMs).begin(() => exchange.running.cancel('deadline'));
  try {
    if (id !== undefined) {
      const batch = await services.batches.get(caller.account.id, routes.wire, readBatchId(id, routes.wire));
      await answerOne(exchange, routes, batch, action);
    } else if (request.method === 'POST') {
      checkCreation(exchange);
      answer(exchange, routes.object(await routes.create(exchange, caller), exchange));
    } else {
      answer(exchange, await routes.list(exchange, new URLSearchParams(/\?(.*)$/s.exec(request.url ?? '')?.[1] ?? '')));
    }
  } finally {
    admitted.end();
  }
}

const answer = (exchange: Exchange, body: object): void => sendJson(exchange, 200, JSON.stringify(body));

async function answerOne(exchange: Exchange, routes: BatchRoutes, batch: BatchRow, action?: string): Promise<void> {
  const { batches } = exchange.host.services;
  if (action === '/results') {
    await sendResults(exchange, batch);
  } else if (exchange.request.method === 'DELETE') {
    await batches.remove(batch);
    answer(exchange, anthropicBatches.deleted(batch));
  } else {
    answer(exchange, routes.object(action === undefined ? batch : await batches.cancel(batch), exchange));
  }
}

function checkCreation({ key, zdr, request }: Exchange): void {
  if (zdr) throw noRetention();
  // A client that sends it again with its key must not pay for all lines twice, and believe that it has not.
  if (request.headers['idempotency-key'] !== undefined)
    throw new ApiError(
      'unsupported_parameter',
      'Batches take no Idempotency-Key: each request makes one. If an answer is lost, list the batches before you send it again.',
      { param: 'Idempotency-Key' },
    );
  // Specification §5.5, as for its file: the results are files.
  if (key.userId === null)
    throw new ApiError('files_require_user_key', 'This key does not belong to a user, so it cannot make batches.');
}

async function createOpenAi(exchange: Exchange, caller: Caller): Promise<BatchRow> {
  const request = requestOf(await jsonOf(exchange));
  checkAccess(caller, { path: request.endpoint, address: exchange.address });
  return await exchange.host.services.batches.create(caller, request);
}

/** Stores the body as it arrives: its requests are where they are in it (docs/decisions/057-batches.md). */
async function createAnthropic(exchange: Exchange, caller: Caller): Promise<BatchRow> {
  const { request, lease, host } = exchange;
  const { batches, files, admission } = host.services;
  const { batchFileBytesMax } = lease.runtimeConfig.limits;
  const endpoint = '/v1/messages';
  checkAccess(caller, { path: endpoint, address: exchange.address });
  checkContentType(request);
  checkDeclaredLength(request, batchFileBytesMax + 1);
  admission.check(declaredLength(request), largeBodyBytes);
  const bytesMax = Math.min(batchFileBytesMax, declaredLength(request) ?? Infinity);
  let row: BatchRow | undefined;
  await whileStoring(exchange, caller.account.id, async () => {
    let requests = 0;
    const body = arriving(exchange, bytesMax);
    const facts = { name: 'requests.json', purpose: 'batch', expiresAfterMs: resultsKeptMs };
    const source = checkedRequests(body.bytes, exchange, (count) => (requests = count));
    const signal = abortSignalOf(exchange.signal);
    try {
      const input = await files.upload(caller.account.id, bytesMax, source, () => Promise.resolve(facts), signal);
      const whole = { wire: 'anthropic', endpoint, metadata: null, outputExpiresAfterMs: resultsKeptMs } as const;
      try {
        row = await batches.create(caller, { ...whole, fileId: input.id, requests });
      } catch (error) {
        await files.remove(caller.account.id, input.id);
        throw error;
      }
    } finally {
      body.end();
    }
  });
  return row!;
}

/** Passes the body on, and checks each request in it. `counted` is called when it is whole. */
async function* checkedRequests(
  body: AsyncIterable<Uint8Array>,
  exchange: Exchange,
  counted: (requests: number) => void,
): AsyncGenerator<Uint8Array> {
  const { host, lease, account } = exchange;
  const splitter = new RequestSplitter({
    requestsMax: host.services.batches.bounds.linesMax,
    requestBytesMax: lease.runtimeConfig.limits.bodyBytesMax - 1,
  });
  const customIds = new Set<string>();
  for await (const chunk of body) {
    for (const { line, bytes } of splitter.push(chunk)) {
      const share = host.services.bodyBudget.share(account.id);
      try {
        share.expect(bytes!.length);
        const parsed = await parseBody({ blocks: [bytes!], length: bytes!.length }, share, exchange);
        const customId = anthropicBatches.customIdOf(parsed as Readonly<Record<string, unknown>>);
        if (customIds.size === customIds.add(customId).size)
          throw new ApiError('schema_validation_failed', "'custom_id' is that of another request.", {
            param: 'custom_id',
          });
      } catch (error) {
        // This interface has no field for the place.
        throw error instanceof ApiError ? new ApiError(error.code, `requests.${line - 1}: ${error.message}`) : error;
      } finally {
        share.end();
      }
    }
    yield chunk;
  }
  counted(splitter.end());
}

async function sendResults(exchange: Exchange, { outputFileId, accountId, wire }: BatchRow): Promise<void> {
  const { files } = exchange.host.services;
  const file = outputFileId === null ? undefined : await files.find(accountId, outputFileId);
  if (file === undefined)
    throw new ApiError(
      'http_404',
      `The ${wire === 'anthropic' ? 'message ' : ''}batch has no results yet, or they were deleted.`,
    );
  await sendFile(exchange, file, 'application/x-jsonl');
}

async function jsonOf(exchange: Exchange): Promise<Readonly<Record<string, unknown>>> {
  const { request, host, account, signal } = exchange;
  checkContentType(request);
  checkDeclaredLength(request, bodyBytesMax);
  const share = (exchange.share = host.services.bodyBudget.share(account.id));
  const { blocks, length } = await readBody(request, bodyBytesMax, share, signal, () => {});
  const value = parseJson(Buffer.concat(blocks, length));
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ApiError('schema_validation_failed', 'The body must be a JSON object.');
}

function requestOf(body: Readonly<Record<string, unknown>>): BatchRequest {
  const { input_file_id: fileId, endpoint, completion_window: window, metadata } = body;
  if (typeof fileId !== 'string' || fileId === '') throw invalidField('input_file_id', 'is required: the id of a file');
  if (typeof endpoint !== 'string' || !hasLines(endpoint))
    throw invalidField('endpoint', `must be one of ${lineEndpoints.join(', ')}`);
  if (window !== '24h') throw invalidField('completion_window', "must be '24h'");
  return {
    wire: 'openai',
    requests: 0,
    fileId,
    endpoint,
    metadata: metadataOf(metadata),
    outputExpiresAfterMs: expiryOf(body['output_expires_after']),
  };
}

const metadataMax = 16;
const metadataNameMax = 64;
const metadataTextMax = 512;

function metadataOf(value: unknown): BatchRequest['metadata'] {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'object' || Array.isArray(value)) throw invalidField('metadata', 'must be an object');
  const entries = Object.entries(value);
  if (entries.length > metadataMax) throw invalidField('metadata', `has more than ${metadataMax} entries`);
  for (const [name, text] of entries) {
    if (name.length > metadataNameMax)
      throw invalidField('metadata', `has a name of more than ${metadataNameMax} characters`);
    if (typeof text !== 'string' || text.length > metadataTextMax)
      throw invalidField(`metadata.${name}`, `must be a text of at most ${metadataTextMax} characters`);
  }
  return value as Record<string, string>;
}

function expiryOf(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  const { anchor, seconds } = value as { readonly anchor?: unknown; readonly seconds?: unknown };
  if (anchor !== 'created_at') throw invalidField('output_expires_after.anchor', "must be 'created_at'");
  if (typeof seconds !== 'number' || !Number.isInteger(seconds) || seconds < 3_600 || seconds > 2_592_000)
    throw invalidField('output_expires_after.seconds', 'must be a whole number from 3600 to 2592000');
  return seconds * 1_000;
}

async function listOpenAi(exchange: Exchange, query: URLSearchParams): Promise<object> {
  const limit = limitOf(query, 20, 100);
  const page = await pageOf(exchange, openAiRoutes, limit, query.get('after'), null);
  return openAiBatches.list(page.batches, page.hasMore);
}

async function listAnthropic(exchange: Exchange, query: URLSearchParams): Promise<object> {
  const limit = limitOf(query, 20, 1_000);
  const page = await pageOf(exchange, anthropicRoutes, limit, query.get('after_id'), query.get('before_id'));
  return anthropicBatches.list(page.batches, page.hasMore, addressOf(exchange), exchange.host.services.now());
}

async function pageOf(
  { host, account }: Exchange,
  { wire }: BatchRoutes,
  limit: number,
  afterId: string | null,
  beforeId: string | null,
): ReturnType<Batches['list']> {
  const { batches } = host.services;
  const place = async (id: string | null) =>
    id === null || id === '' ? undefined : await batches.get(account.id, wire, readBatchId(id, wire));
  const after = await place(afterId);
  return await batches.list({
    accountId: account.id,
    wire,
    after,
    before: after === undefined ? await place(beforeId) : undefined,
    limit,
  });
}

/** The address by which the client calls this host. */
function addressOf({ request, host }: Exchange): string {
  const name = request.headers.host;
  return name === undefined ? '' : `http${host.options.isHttps ? 's' : ''}://${name}`;
}

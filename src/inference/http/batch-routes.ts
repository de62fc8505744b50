import { parseJson } from '../../platform/http/json/parse.ts';
import { ApiError } from '../../platform/errors.ts';
import type { BatchRequest } from '../batches/batches.ts';
import { openAiBatches } from '../batches/openai-shape.ts';
import { checkAccess } from '../pipeline/access.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import { checkContentType, checkDeclaredLength, readBody } from './body.ts';
import { callerOf, caughtUp, requireCaller, zdrRequired } from './caller.ts';
import type { Exchange } from './exchange.ts';
import { hasLines, lineEndpoints, noRetention } from './lines.ts';
import { invalidField } from './multipart.ts';
import { methodNotAllowed } from './plain-routes.ts';
import { sendJson } from './respond.ts';

export const isBatchesPath = (path: string): boolean => path === '/v1/batches' || path.startsWith('/v1/batches/');

/** The body of a request that makes a batch: a few names. */
const bodyBytesMax = 65_536;

/** Handles the routes of batches: they belong to an account, and other accounts get 404. */
export async function answerBatches(exchange: Exchange): Promise<void> {
  const { request, path, host, lease } = exchange;
  const { services } = host;
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  await caughtUp(exchange);
  const [, id, action] = /^\/v1\/batches(?:\/([^/]+)(\/cancel)?)?$/.exec(path) ?? [path, '', undefined];
  if (id === '') throw new ApiError('http_404', 'Route not found.');
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  const isPost = request.method === 'POST';
  if (id === undefined) {
    if (!isRead && !isPost) throw methodNotAllowed('GET, HEAD, POST');
  } else if (action === undefined ? !isRead : !isPost) {
    throw methodNotAllowed(action === undefined ? 'GET, HEAD' : 'POST');
  }
  const caller = requireCaller(await callerOf(exchange));
  exchange.zdr = zdrRequired(request.headers, caller);
  const admitted = await services.limits.admit(caller, 'file');
  exchange.admitted = admitted;
  const { requestDeadlineMs } = lease.runtimeConfig.limits;
  exchange.deadline = host.deadlines.of(requestDeadlineMs).begin(() => exchange.running.cancel('deadline'));
  try {
    const accountId = caller.account.id;
    if (id === undefined) {
      if (isPost) await create(exchange);
      else await list(exchange, accountId);
      return;
    }
    const batch = await services.batches.get(accountId, openAiBatches.readId(id));
    const shown = action === undefined ? batch : await services.batches.cancel(accountId, batch.id);
    answer(exchange, openAiBatches.object(shown));
  } finally {
    admitted.end();
  }
}

const answer = (exchange: Exchange, body: object): void => sendJson(exchange, 200, JSON.stringify(body));

async function create(exchange: Exchange): Promise<void> {
  const { key, account, zdr, address, host } = exchange;
  if (zdr) throw noRetention();
  // Specification §5.5, as for its file: the results are files.
  if (key.userId === null)
    throw new ApiError('files_require_user_key', 'This key does not belong to a user, so it cannot make batches.');
  const request = requestOf(await jsonOf(exchange));
  checkAccess({ account, key }, { path: request.endpoint, address });
  const row = await host.services.batches.create({ account, key }, request);
  answer(exchange, openAiBatches.object(row));
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

async function list(exchange: Exchange, accountId: string): Promise<void> {
  const { request, host } = exchange;
  const { batches } = host.services;
  const query = new URLSearchParams(/\?(.*)$/s.exec(request.url ?? '')?.[1] ?? '');
  const limit = query.get('limit') ?? '20';
  if (!/^\d{1,3}$/.test(limit) || Number(limit) < 1 || Number(limit) > 100)
    throw invalidField('limit', 'must be a whole number from 1 to 100');
  const from = query.get('after');
  const after = from === null || from === '' ? undefined : await batches.get(accountId, openAiBatches.readId(from));
  const page = await batches.list({ accountId, wire: 'openai', after, limit: Number(limit) });
  answer(exchange, openAiBatches.list(page.batches, page.hasMore));
}

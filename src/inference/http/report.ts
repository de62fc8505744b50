import { publicIdOf } from '../../platform/ids/uuid.ts';
import type { RequestFigures } from '../../platform/metrics/service-metrics.ts';
import type { Order } from '../pipeline/order.ts';
import { isBatchesPath } from './batch-routes.ts';
import type { Exchange } from './exchange.ts';
import { isFilesPath } from './file-routes.ts';
import { noteError, noteRefusedKey } from './note-error.ts';

/** Writes one line per request: requests with a hold already have theirs. Successful health checks and catalog requests have none. */
export function report(exchange: Exchange): void {
  const { order, error, receipt, repeatOf } = exchange;
  if (receipt === undefined) {
    if (error !== undefined) logRefusal(exchange);
    else if (repeatOf !== undefined && order !== undefined) logReplay(exchange, repeatOf, order);
  }
  if (error !== undefined || (receipt?.errorCode ?? null) !== null) {
    if (exchange.caller === undefined) noteRefusedKey(exchange);
    else if (exchange.running.cancelled !== 'client-left') noteError(exchange, error);
  }
  measure(exchange);
}

/** Logs a refusal before a hold. */
function logRefusal({ host, order, request, response, error, publicId, totalMs }: Exchange): void {
  host.services.log.request({
    id: order?.idHex ?? null,
    publicId,
    method: request.method ?? '',
    status: response.statusCode,
    errorCode: error?.code ?? null,
    totalMs,
  });
}

function logReplay({ host, publicId, response, totalMs }: Exchange, replayOf: string, order: Order): void {
  host.services.log.replay({
    id: order.idHex,
    publicId,
    // §4.2.6: nothing chosen by a client is logged.
    replayOf: order.request.retain ? replayOf : null,
    accountId: order.account.id,
    keyId: order.key.id,
    model: order.model.id,
    api: order.route.api,
    streamed: order.stream,
    status: response.statusCode,
    totalMs,
  });
}

/** Records metrics once per request, when it has ended: a few microseconds. No label is chosen by the client (reliability §4). */
function measure(exchange: Exchange): void {
  const { host, request, response, path, route, order, receipt, error, trace } = exchange;
  const { metrics } = host.services;
  const status = response.headersSent ? response.statusCode : 0;
  metrics.http(route?.api ?? plainRoute(path), status);
  if (route === undefined) return;
  const { receivedMs, engineMs } = exchange;
  const figures: RequestFigures = {
    api: route.api,
    model: order?.model.id ?? '',
    streamed: order?.stream ?? false,
    status,
    code: (receipt === undefined ? error?.code : receipt.errorCode) ?? '',
    answer: receipt,
    ownMs: performance.now() - receivedMs - engineMs,
  };
  metrics.request(figures);
  trace?.end({
    method: request.method ?? '',
    route: path,
    operation: route.operation,
    requestId: publicIdOf(exchange.id),
    accountId: order?.account.id,
    keyId: order?.key.id,
    figures,
  });
}

/** One of a few fixed names, so that clients cannot choose it. */
function plainRoute(path: string): string {
  if (isFilesPath(path)) return 'files';
  if (isBatchesPath(path)) return 'batches';
  return path === '/v1/models' || path === '/healthz' || path === '/readyz' || path === '/openapi.json'
    ? path.slice(path.lastIndexOf('/') + 1)
    : 'other';
}

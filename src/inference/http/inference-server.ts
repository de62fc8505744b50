import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { DeadlinesByLength } from '../../platform/deadlines.ts';
import { createListener } from '../../platform/http/listener.ts';
import type { ListenerConnection } from '../../platform/http/listener.ts';
import { requestIds } from '../../platform/ids/request-id.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import { beginTrace } from '../../platform/telemetry/traces.ts';
import { PublishedDocument } from '../openapi/published.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import type { AllowedOrigins } from '../pipeline/runtime-config.ts';
import { answerInference } from './answer-inference.ts';
import { answerBatches, batchErrors, isBatchesPath } from './batch-routes.ts';
import { answerPreflight, corsHeaders, isPreflight } from './cors.ts';
import { Exchange } from './exchange.ts';
import { answerFiles, fileShape, isFilesPath } from './file-routes.ts';
import { linesOn } from './lines.ts';
import type { Host, InferenceHostOptions, InferenceHostServices } from './host.ts';
import { answerPlain } from './plain-routes.ts';
import { report } from './report.ts';
import { sendError } from './respond.ts';
import { inferenceRoutes } from './routes.ts';
import { VectorRoom } from './vector-room.ts';

/** Creates the inference host of the specification. The caller listens and closes. */
export function createInferenceHost(services: InferenceHostServices, options: InferenceHostOptions): Server {
  const { log, metrics } = services;
  const host: Host = {
    services,
    options,
    document: new PublishedDocument(),
    deadlines: new DeadlinesByLength(),
    vectorRoom: new VectorRoom(),
  };
  services.batchLines(linesOn(host));
  return createListener(
    (request, response, connection) => {
      if (isPreflight(request)) preflight(request, response, host);
      else void handle(request, response, connection, host);
    },
    {
      newRequestId: () => publicIdOf(services.newId()),
      accountUrl: () => options.accountUrl,
      isHttps: () => options.isHttps,
      refusalHeaders: (request) => corsHeaders(request, allowedOrigins(services), options.accountUrl),
      refused: ({ status, code }, publicId, method) => {
        metrics.http('unparsed', status);
        log.request({ id: null, publicId, method, status, errorCode: code, totalMs: 0 });
      },
    },
    options.listener,
  );
}

/** Returns the allowed origins currently in force. */
function allowedOrigins({ lease }: InferenceHostServices): AllowedOrigins {
  const current = lease();
  try {
    return current.runtimeConfig.allowedOrigins;
  } finally {
    current.release();
  }
}

/** Runs before everything else: a preflight waits for nothing, takes no slot, and has no log line. */
function preflight(request: IncomingMessage, response: ServerResponse, { services, options }: Host): void {
  const { publicId } = requestIds(request.headers['x-request-id'], publicIdOf(services.newId()));
  if (!services.ready()) response.shouldKeepAlive = false;
  const { accountUrl } = options;
  const status = answerPreflight(request, response, allowedOrigins(services), { publicId, accountUrl });
  services.metrics.http('preflight', status);
}

/** Handles a request, from its head to its last byte. Catches everything: every failure becomes an answer and a log line. */
async function handle(
  request: IncomingMessage,
  response: ServerResponse,
  connection: ListenerConnection,
  host: Host,
): Promise<void> {
  const exchange = new Exchange(host, request, response, connection);
  try {
    const answering = answer(exchange);
    if (answering instanceof Promise) await answering;
  } catch (error) {
    answerError(error, exchange);
  } finally {
    exchange.end();
    report(exchange);
  }
}

function answer(exchange: Exchange): void | Promise<void> {
  const { path, host, request } = exchange;
  const route = inferenceRoutes.get(path);
  if (route !== undefined) {
    exchange.route = route;
    exchange.trace = beginTrace(request.headers, host.services.traces);
    return answerInference(route, exchange);
  }
  if (isFilesPath(path)) return answerFiles(exchange);
  if (isBatchesPath(path)) return answerBatches(exchange);
  return answerPlain(exchange);
}

function answerError(error: unknown, exchange: Exchange): void {
  const { host, request, response, connection, running, route, order } = exchange;
  const { cancelled } = running;
  // Cancelled before there was an order: `run` reports the other cancellations.
  const reported = cancelled !== undefined && error === cancelled ? errorOfCancel(cancelled, order?.model.id) : error;
  if (order === undefined && host.services.admission.isShedding) connection.restAfterAnswer();
  const { path } = exchange;
  const wire = isFilesPath(path) ? fileShape(request) : (route?.dialect ?? batchErrors(path));
  if (!response.headersSent) sendError(exchange, reported, wire);
  else response.destroy();
}

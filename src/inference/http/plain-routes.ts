import type { IncomingMessage } from 'node:http';

import { modelCard, modelList } from '../../catalog/card.ts';
import { multiplesAt, pricesAt } from '../../billing/account-prices.ts';
import { ApiError } from '../../platform/errors.ts';
import { plainOperations } from '../openapi/plain-operations.ts';
import { cardsOf, usableModels } from '../pipeline/access.ts';
import { callerOf, caughtUp } from './caller.ts';
import { describedEndpoints } from './described.ts';
import type { Exchange } from './exchange.ts';
import { firstPage } from './first-page.ts';
import { noInferenceRoute } from './no-route.ts';
import { sendJson, sendNotModified, sendPage } from './respond.ts';

/** Answers what takes no body: the catalog, health, unknown routes. Synchronously if possible: what follows a request may not be HTTP. */
export function answerPlain(exchange: Exchange): void | Promise<void> {
  const { path, request, host } = exchange;
  const { services, options, document } = host;
  const { runtimeConfig } = exchange.lease;
  switch (path) {
    case '/v1/models':
      return answerModels(exchange);
    case '/healthz':
      readOnly(request);
      sendJson(exchange, 200, '{"status":"ok"}');
      return;
    case '/readyz':
      readOnly(request);
      return services.isReady().then((isReady) => {
        if (isReady) sendJson(exchange, 200, '{"status":"ready"}');
        else sendJson(exchange, 503, '{"status":"not ready"}', { 'retry-after': '1' });
      });
    case '/openapi.json': {
      readOnly(request);
      const { text, etag } = document.of(runtimeConfig.limits, {
        version: options.version,
        endpoints: describedEndpoints,
        operations: plainOperations,
        models: usableModels(undefined, runtimeConfig.catalog, services.now()),
        accountUrl: options.accountUrl,
        bodyBytesMax: runtimeConfig.limits.bodyBytesMax,
      });
      if (request.headers['if-none-match'] === etag) sendNotModified(exchange, { etag });
      else sendJson(exchange, 200, text, { etag });
      return;
    }
    default:
      if (path === '/' && isRead(request) && request.headers.accept?.includes('text/html') === true)
        sendPage(exchange, firstPage(options.accountUrl));
      else throw noInferenceRoute(path, options.accountUrl);
  }
}

async function answerModels(exchange: Exchange): Promise<void> {
  const { request, lease, host } = exchange;
  await caughtUp(exchange);
  readOnly(request);
  // Specification §5.3: without a key list prices are shown; an invalid key is refused.
  const caller = await callerOf(exchange);
  const now = host.services.now();
  const rates = caller?.account.rates;
  const cards = cardsOf(caller, lease.runtimeConfig.catalog, now).map((model) =>
    modelCard(model, pricesAt(model, rates, now), Math.floor(now / 1000), multiplesAt(model, rates, now)),
  );
  sendJson(exchange, 200, JSON.stringify(modelList(cards)));
}

function readOnly(request: IncomingMessage): void {
  if (!isRead(request)) throw methodNotAllowed('GET, HEAD');
}

const isRead = ({ method }: IncomingMessage): boolean => method === 'GET' || method === 'HEAD';

export const methodNotAllowed = (allow: string): ApiError =>
  new ApiError('http_405', `Use ${allow} here.`, { headers: { allow } });

import { errorOfCancel } from '../pipeline/cancellation.ts';
import { countInput } from '../pipeline/count-input.ts';
import { requireSomeCredit } from '../pipeline/early-credit.ts';
import { idempotencyKeyOf } from '../pipeline/idempotency.ts';
import type { KeyedRequest } from '../pipeline/idempotency.ts';
import type { Order } from '../pipeline/order.ts';
import type { CountingRoute, InferenceRoute, Route } from '../pipeline/route.ts';
import { checkContentType, checkDeclaredLength, declaredLength, largeBodyBytes, readBody } from './body.ts';
import type { Body } from './body.ts';
import { callerOf, caughtUp, requireCaller, zdrRequired } from './caller.ts';
import type { Exchange } from './exchange.ts';
import { respondKeyed } from './keyed.ts';
import { beginOrder, modelNamed, ordering, parseBody } from './ordering.ts';
import { methodNotAllowed } from './plain-routes.ts';
import type { Generating } from './run-order.ts';
import { respondEvents, respondWhole, sendJson } from './respond.ts';

/** Handles a request to one of the API families, from its head to its last byte, in the order of contracts decision 10. */
export async function answerInference(route: Route, exchange: Exchange): Promise<void> {
  const { request, headers, lease, host } = exchange;
  const { services } = host;
  const { admission } = services;
  const { limits } = lease.runtimeConfig;
  if (request.method !== 'POST') throw methodNotAllowed('POST');
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  checkContentType(request);
  if (services.feed.isStale) await caughtUp(exchange);
  const found = callerOf(exchange);
  const caller = requireCaller(found instanceof Promise ? await found : found);
  exchange.zdr = zdrRequired(headers, caller);
  const idempotencyKey = route.kind === 'generate' ? idempotencyKeyOf(headers) : undefined;
  checkDeclaredLength(request, limits.bodyBytesMax);
  const bodyBytes = declaredLength(request);
  admission.check(bodyBytes, largeBodyBytes);
  const someCredit = (): Promise<void> | undefined =>
    requireSomeCredit({ ...caller, route, idempotencyKey }, lease.runtimeConfig.catalog, services);
  if (bodyBytes !== undefined && bodyBytes > largeBodyBytes) await someCredit();
  const share = (exchange.share = services.bodyBudget.share(caller.account.id));
  if (bodyBytes !== undefined) share.expect(bodyBytes);
  if (headers['expect'] !== undefined && request.httpVersion === '1.1') exchange.response.writeContinue();
  let body: Body | undefined = await readBody(request, limits.bodyBytesMax, share, exchange.signal, () => {
    exchange.large ??= admission.takeLarge(largeBodyBytes + 1, largeBodyBytes);
    // The size of a body without a declared length is only known here.
    return bodyBytes === undefined ? someCredit() : undefined;
  });
  exchange.receivedMs = performance.now();
  // Held from here to the last byte: clients that send slowly occupy no slot.
  exchange.slot = admission.take();
  let keyed: KeyedRequest | undefined;
  if (idempotencyKey !== undefined && route.kind === 'generate') {
    const keyedBody = { route, zdr: exchange.zdr, headers, blocks: body.blocks };
    keyed = await services.idempotency.read(idempotencyKey, caller.account.id, keyedBody);
  }
  let json: unknown = parseBody(body, share, exchange);
  if (json instanceof Promise) json = (await json) as unknown;
  // A stream is awaited below, and what a suspended function refers to stays in memory: the body, once more for each running answer.
  body = undefined;
  if (isOn(exchange, 'count')) {
    exchange.modelAsked = modelNamed(json);
    sendJson(exchange, 200, await countInput(json, exchange, services));
    return;
  }
  if (!isOn(exchange, 'generate')) throw new Error('a route that neither counts nor generates');
  const placing = ordering(json, exchange);
  json = undefined;
  const order = placing instanceof Promise ? await placing : placing;
  beginOrder(order, exchange, share);
  await respond(order, keyed, exchange);
}

interface Routes {
  readonly generate: InferenceRoute;
  readonly count: CountingRoute;
}

const isOn = <Kind extends keyof Routes>(
  exchange: Exchange,
  kind: Kind,
): exchange is Exchange & { readonly route: Routes[Kind] } => exchange.route?.kind === kind;

function respond(order: Order, keyed: KeyedRequest | undefined, exchange: Generating): Promise<void> {
  const head = exchange.headOf(order);
  if (keyed !== undefined) return respondKeyed(order, keyed, exchange, head);
  return order.stream ? respondEvents(order, head, exchange) : respondWhole(order, head, exchange);
}

import { checkJson, valueOf } from '../../platform/http/json/parse.ts';
import { allow } from '../pipeline/allow.ts';
import type { Allowed } from '../pipeline/allow.ts';
import type { AnswerFormat } from '../dialects/dialect.ts';
import type { Order } from '../pipeline/order.ts';
import { placeOrder } from '../pipeline/place-order.ts';
import type { InferenceRoute } from '../pipeline/route.ts';
import { largeBodyBytes } from './body.ts';
import type { Body } from './body.ts';
import type { BodyShare } from './body-budget.ts';
import type { CallRecord } from './call-record.ts';

type Generates = CallRecord & { readonly route: InferenceRoute };

/** From a body to an order that may run: the same for clients and for lines of batches. */
export function parseBody(body: Body, share: BodyShare, call: CallRecord): unknown {
  return body.length > largeBodyBytes ? parseLarge(body, share, call) : parseSmall(body, share);
}

/** Checks a parsed body, and makes an order of it. */
export function ordering(json: unknown, call: Generates): Order | Promise<Order> {
  const { services } = call.host;
  call.modelAsked = modelNamed(json);
  const allowing = allow(json, call.route.dialect, call, services);
  const place = (allowed: Allowed<AnswerFormat>): Order | Promise<Order> => placeOrder(allowed, call, services);
  return allowing instanceof Promise ? allowing.then(place) : place(allowing);
}

/** What a parsed body names as its model. */
export const modelNamed = (json: unknown): unknown =>
  typeof json === 'object' && json !== null ? (json as { readonly model?: unknown }).model : undefined;

/** From here on the request uses its models' backends, and its time runs. */
export function beginOrder(order: Order, call: CallRecord, share: BodyShare): void {
  const { host, lease } = call;
  call.order = order;
  host.vectorRoom.take(order, share, host.services.bodyBudget);
  lease.narrow(order.model.id, order.model.fallback);
  const { requestDeadlineMs } = lease.runtimeConfig.limits;
  call.deadline = host.deadlines.of(requestDeadlineMs).begin(() => call.running.cancel('deadline'));
}

/** Parses on this thread; a large body would block all other requests (reliability C12). */
function parseSmall({ blocks, length }: Body, share: BodyShare): unknown {
  const [only] = blocks;
  const bytes = blocks.length === 1 && only !== undefined ? only : Buffer.concat(blocks, length);
  share.parsed(checkJson(bytes));
  return valueOf(bytes.toString('utf8'));
}

async function parseLarge({ blocks }: Body, share: BodyShare, { host, signal }: CallRecord): Promise<unknown> {
  const { value, structuralCharacters } = await host.services.jsonThreads.parse(blocks, signal);
  share.parsed(structuralCharacters);
  return value;
}

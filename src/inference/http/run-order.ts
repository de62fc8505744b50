import type { TakeBatch } from '../../generation/event.ts';
import type { ResponseHead } from '../dialects/dialect.ts';
import type { Order } from '../pipeline/order.ts';
import type { InferenceRoute } from '../pipeline/route.ts';
import { run } from '../pipeline/run.ts';
import type { Apart } from '../pipeline/run.ts';
import { keepingItems } from '../pipeline/stored-items.ts';
import type { CallRecord } from './call-record.ts';
import type { Exchange } from './exchange.ts';
import { learning } from './vector-room.ts';

/** A request on a route that generates. */
export type Generating = Exchange & { readonly route: InferenceRoute };

/** Runs an order until its answer is over; its batches pass through the storing of items and the learning of vector sizes. */
export function runOrder(
  order: Order,
  head: ResponseHead,
  call: CallRecord & { readonly route: InferenceRoute },
  deliver: TakeBatch,
  apart?: Apart,
): Promise<void> {
  const { services, vectorRoom } = call.host;
  const passed = keepingItems(order, head, services.items, learning(order, vectorRoom, deliver));
  return run(order, call, services, passed, apart);
}

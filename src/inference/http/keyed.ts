import type { ResponseHead, StreamEncoder } from '../dialects/dialect.ts';
import { Fold } from '../../generation/fold.ts';
import type { GenerationBatch, TakeBatch } from '../../generation/event.ts';
import type { Idempotency, KeyedAnswer, KeyedRequest } from '../pipeline/idempotency.ts';
import { isClosing } from '../pipeline/meter.ts';
import type { Order } from '../pipeline/order.ts';
import type { Exchange } from './exchange.ts';
import { respondStream, sendJson } from './respond.ts';
import type { EventSource } from './respond.ts';
import { runOrder } from './run-order.ts';
import type { Generating } from './run-order.ts';

/**
 * Answers a request that carries an `Idempotency-Key`. The first request of a key generates the answer apart from its client, which reads
 * it like the others, and may leave like them.
 */
export async function respondKeyed(
  order: Order,
  request: KeyedRequest,
  exchange: Generating,
  head: ResponseHead,
): Promise<void> {
  const { idempotency } = exchange.host.services;
  const { answer, isFirst } = idempotency.enter(order, request);
  // It becomes a reader here, before anything is written.
  const reading = read(answer, isFirst, order, exchange, head);
  if (isFirst) {
    const deadline = setTimeout(
      () => answer.generation.cancel('deadline'),
      exchange.lease.runtimeConfig.limits.requestDeadlineMs,
    );
    const producing = idempotency.produce(
      answer,
      order,
      request,
      exchange.sentId,
      generating(order, answer, head, exchange),
    );
    await Promise.allSettled([reading, producing]);
    clearTimeout(deadline);
  }
  await reading;
}

/** Encodes the generated batches once, for all readers. */
function generating(
  order: Order,
  answer: KeyedAnswer,
  head: ResponseHead,
  exchange: Generating,
): Parameters<Idempotency['produce']>[4] {
  const { stream, format } = order;
  return async ({ recording, signal, keep }) => {
    let last = '';
    if (!stream) {
      const fold = new Fold();
      const settling = async (closing: GenerationBatch): Promise<boolean> => {
        fold.read(closing);
        last = format.encodeResponse(fold.generation(), head);
        answer.servedBy = head.model;
        await keep(last);
        return false;
      };
      const deliver: TakeBatch = (batch) => {
        // `settling` has read the closing batch already, before the charge.
        if (!isClosing(batch)) fold.read(batch);
        return true;
      };
      await runOrder(order, head, exchange, deliver, { signal, settling });
      return last;
    }
    let opened: StreamEncoder | undefined;
    // Opened with the first batch: until then another model may take over, and the head names the model.
    const encoder = (): StreamEncoder => {
      answer.servedBy = head.model;
      return (opened ??= format.openStream(head));
    };
    answer.errorText = (error) => encoder().error(error);
    const settling = async (closing: GenerationBatch): Promise<boolean> => {
      last = encoder().batch(closing) + encoder().end();
      await keep(last);
      return false;
    };
    const deliver: TakeBatch = (batch) => isClosing(batch) || recording.write(encoder().batch(batch));
    await runOrder(order, head, exchange, deliver, { signal, settling });
    return last;
  };
}

async function read(
  answer: KeyedAnswer,
  isFirst: boolean,
  { stream, format, model }: Order,
  exchange: Exchange,
  head: ResponseHead,
): Promise<void> {
  const { recording } = answer;
  const { signal } = exchange;
  const mark = (): boolean => {
    const { origin, servedBy } = answer;
    exchange.fallbackFrom = servedBy === undefined || servedBy === model.id ? undefined : model.id;
    exchange.repeatOf = origin !== undefined && (!isFirst || origin.isEarlier) ? origin.publicId : undefined;
    return origin !== undefined;
  };
  if (!stream) {
    const body = await recording.follow(signal, () => true);
    mark();
    sendJson(exchange, 200, body);
    return;
  }
  const events: EventSource = {
    run: async (emit) => {
      const last = await recording.follow(signal, (text) => {
        mark();
        return emit(text);
      });
      mark();
      return last;
    },
    origin: mark,
    error: (error) => (answer.errorText ?? ((reported) => format.openStream(head).error(reported)))(error),
  };
  await respondStream(exchange, events);
}

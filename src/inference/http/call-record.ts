import type { Caller } from '../../accounts/directory.ts';
import type { Receipt } from '../../billing/hold.ts';
import type { Admitted } from '../../billing/rate-limits/rate-limits.ts';
import type { Slot } from '../../billing/rate-limits/slot.ts';
import type { Deadline } from '../../platform/deadlines.ts';
import type { Tier } from '../../generation/tier.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { RequestTrace } from '../../platform/telemetry/request-trace.ts';
import type { Headers, ResponseHead } from '../dialects/dialect.ts';
import type { ActiveRequest } from '../pipeline/active-requests.ts';
import { elapsedMs } from '../pipeline/request-facts.ts';
import type { Order } from '../pipeline/order.ts';
import { promptBytes } from '../pipeline/request-images.ts';
import type { ByteBudget } from '../pipeline/request-images.ts';
import type { Route } from '../pipeline/route.ts';
import type { RunningCall } from '../pipeline/run.ts';
import type { Lease } from '../pipeline/runtime-config.ts';
import type { Wait } from '../pipeline/wait-queue.ts';
import type { Warnings } from '../pipeline/warnings.ts';
import type { BodyShare } from './body-budget.ts';
import type { Host } from './host.ts';

/**
 * What is known of a request and what it holds of this process, wherever it comes from: a socket (`Exchange`), or a line of a batch. It is
 * created once, with all of its fields, and passed on; the pipeline sees it as a `Call`.
 */
export abstract class CallRecord implements Omit<RunningCall, 'route'> {
  readonly host: Host;
  readonly headers: Headers;
  readonly startedAt: number;
  readonly begunMs = performance.now();
  readonly id: Uint8Array;
  readonly idHex: string;
  abstract publicId: string;
  abstract clientId: string | null;
  /** The id that the answer names. */
  abstract readonly sentId: string;
  abstract readonly batchId: string | null;
  readonly running: ActiveRequest;
  readonly signal: StopSignal;
  readonly lease: Lease;

  /** `undefined`: not an inference route. */
  route: Route | undefined = undefined;
  trace: RequestTrace | undefined = undefined;
  zdr = false;
  order: Order | undefined = undefined;
  admitted: Admitted | undefined = undefined;
  /** When the whole request had arrived, by `performance.now()`, and how long it has waited for engines since then. */
  receivedMs = this.begunMs;
  engineMs = 0;
  waits: Wait[] | undefined = undefined;
  warnings: Warnings = undefined;
  /** What the body names as its model; the catalog may not have it. */
  modelAsked: unknown = undefined;
  /** The model that was requested, if another one serves. */
  fallbackFrom: string | undefined = undefined;
  /** Set when its hold has been settled: then its log line has been written. */
  receipt: Receipt | undefined = undefined;

  /** Held from the whole body to the last byte. */
  slot: Slot | undefined = undefined;
  /** The memory of its body, and of what is made from it. */
  share: BodyShare | undefined = undefined;
  deadline: Deadline | undefined = undefined;
  #caller: Caller | undefined = undefined;
  #head: { model: string; tier?: Tier | undefined } | undefined = undefined;
  /** Memory of files that it references. */
  #fileBytes = 0;

  constructor(host: Host, headers: Headers, running: ActiveRequest) {
    const { services } = host;
    this.host = host;
    this.headers = headers;
    this.startedAt = services.now();
    this.id = services.newId();
    this.idHex = Buffer.from(this.id).toString('hex');
    this.running = running;
    this.signal = running.signal;
    this.lease = services.lease();
  }

  /** Assigns the request to its caller: from here on, changes of the key or its account reach it. */
  claim(caller: Caller): void {
    this.#caller = caller;
    this.running.claim(caller.account.id, caller.key.id);
    if (caller.account.zdrRequired !== true) return;
    // As with `Service-ZDR: required`, nothing chosen by the client is kept.
    this.publicId = publicIdOf(this.id);
    this.clientId = null;
  }

  /** `undefined`: not known yet, or nobody. */
  get caller(): Caller | undefined {
    return this.#caller;
  }

  get account(): Caller['account'] {
    return known(this.#caller).account;
  }

  get key(): Caller['key'] {
    return known(this.#caller).key;
  }

  get memory(): ByteBudget {
    return this.share ?? this.host.services.bodyBudget;
  }

  holdBytes(bytes: number): void {
    this.memory.take(bytes);
    this.#fileBytes += bytes;
  }

  /** Returns the head of the answer. */
  headOf(order: Order): ResponseHead {
    const head = {
      requestId: this.sentId,
      id: this.idHex,
      created: Math.floor(this.startedAt / 1000),
      model: order.model.answersAs ?? order.model.id,
      tier: shownTier(order),
      signer: this.host.services.reasoningKeys.for(this.account.id),
      now: () => Math.floor((this.startedAt + this.totalMs) / 1000),
    };
    this.#head = head;
    return head;
  }

  prepared(order: Order): void {
    this.order = order;
    // The content read from the files stays, their bytes do not.
    if (this.#fileBytes > 0) this.memory.give(Math.max(0, this.#fileBytes - promptBytes(order.request.prompt)));
  }

  falls(to: Order): void {
    const asked = this.fallbackFrom ?? this.order?.model.id;
    this.order = to;
    this.fallbackFrom = to.model.id === asked ? undefined : asked;
    if (this.#head === undefined) return;
    this.#head.model = to.model.id;
    this.#head.tier = shownTier(to);
  }

  ended(receipt: Receipt): void {
    this.receipt = receipt;
    this.host.services.log.answer(receipt);
  }

  /** Whole milliseconds so far. */
  get totalMs(): number {
    return elapsedMs(this);
  }

  /** Releases everything that it holds. */
  end(): void {
    this.deadline?.end();
    this.slot?.release();
    this.share?.end();
    this.running.end();
    this.lease.release();
  }
}

/** `undefined`: the usual one, and none was asked for. */
const shownTier = ({ tier, tierAsked }: Order): Tier | undefined =>
  tier === 'default' && !tierAsked ? undefined : tier;

function known(caller: Caller | undefined): Caller {
  if (caller === undefined) throw new Error('a request without a caller');
  return caller;
}

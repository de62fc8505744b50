import { randomBytes } from 'node:crypto';
import type { RequestFigures } from '../metrics/service-metrics.ts';
import type { Attribute } from './otlp-common.ts';
import type { SpanRecord } from './otlp-spans.ts';
import { traceHeadersOf } from './trace-context.ts';
import type { TraceContext, TraceHeaders } from './trace-context.ts';

/**
 * One request as a trace. No content by construction, like the log: a span's data is built here, field by field, from our ids,
 * figures, codes, and names from the configuration and from closed tables; attribute names are those of OpenTelemetry's semantic
 * conventions (docs/decisions/034-telemetry.md), or begin with `tokenhouse.`.
 */
export interface RequestTrace {
  /** Headers for a backend, unless the span of an attempt has its own. */
  readonly headers: TraceHeaders;
  /** Undefined if nothing is recorded. */
  step(name: StepName): OpenStep | undefined;
  /** An attempt at a backend; undefined if nothing is recorded. */
  attempt(facts: AttemptFacts): OpenAttempt | undefined;
  /** Called once, when the request is over; spans that are still open end here, with its error. */
  end(facts: RequestFacts): void;
}

/** Waiting for a place at a backend, setting money aside, making the charge durable. */
export type StepName = 'queue' | 'hold' | 'settle';

export interface OpenStep {
  /** `failure`: the error code it ended with. */
  end(failure?: string): void;
}

export interface AttemptFacts {
  readonly operation: string;
  readonly model: string;
  readonly backend: string;
  /** What kind of server or engine the backend is. */
  readonly provider: string;
  /** 1 for the first of the request. */
  readonly number: number;
  /** How it was chosen; null: there was no choice. */
  readonly chosen: { readonly expectedMs: number; readonly cachedTokens: number; readonly running: number } | null;
}

export interface OpenAttempt {
  /** Headers for the backend, so that its spans are children of this one. */
  readonly headers: TraceHeaders;
  firstToken(): void;
  answered(usage: AttemptUsage): void;
  /** null: its request was cancelled. */
  failed(code: string | null): void;
}

type AttemptUsage = Pick<
  NonNullable<RequestFigures['answer']>,
  'promptTokens' | 'cachedTokens' | 'completionTokens' | 'reasoningTokens'
>;

export interface RequestFacts {
  readonly method: string;
  /** Path of the route, and its operation in the words of the conventions. */
  readonly route: string;
  readonly operation: string;
  /** Our own ids; the client may have sent another. */
  readonly requestId: string;
  readonly accountId: string | undefined;
  readonly keyId: string | undefined;
  readonly figures: RequestFigures;
}

/** Where the spans of a request go when it is over. */
export interface SpanSink {
  take(trace: TraceContext, spans: readonly SpanRecord[]): void;
}

/** A trace that is not recorded here: its context is passed on unchanged. */
export class PassedTrace implements RequestTrace {
  readonly headers: TraceHeaders;

  constructor(context: TraceContext) {
    this.headers = traceHeadersOf(context);
  }

  step(): undefined {
    return undefined;
  }

  attempt(): undefined {
    return undefined;
  }

  end(): void {}
}

const spanKinds = { internal: 1, server: 2, client: 3 } as const;
/** Engines that run in the service itself. */
const ownProviders: ReadonlySet<string> = new Set(['llama.cpp', 'scripted']);

/** The bits of a span's flags in OTLP that say whether its parent is in another process. */
const remoteFlags = { known: 0x100, yes: 0x200 } as const;

/** Six random bytes, and the number of the span in its request: one call for random bytes is enough for all of them. */
export const newSpanId = (): string => `${randomBytes(6).toString('hex')}0001`;

export class RecordedTrace implements RequestTrace {
  readonly #context: TraceContext;
  readonly #sink: SpanSink;
  readonly #root: OpenSpan;
  readonly #children: OpenSpan[] = [];
  /** One clock for all spans of a request, even if the machine's clock is set meanwhile. */
  readonly #startedMs = Date.now();
  readonly #startedAt = performance.now();

  /** The context is that of its server span. `parentId`: the caller's span; undefined if the trace begins here. */
  constructor(context: TraceContext, parentId: string | undefined, sink: SpanSink) {
    this.#root = new OpenSpan(context.spanId, '', parentId, spanKinds.server, this.#startedMs);
    this.#context = context;
    this.#sink = sink;
  }

  get headers(): TraceHeaders {
    return traceHeadersOf(this.#context);
  }

  step(name: StepName): OpenStep {
    const span = this.#open(name, spanKinds.internal);
    return { end: (failure) => span.end(this.#nowMs(), failure) };
  }

  attempt({ operation, model, backend, provider, number, chosen }: AttemptFacts): OpenAttempt {
    const span = this.#open(
      `${operation} ${model}`,
      ownProviders.has(provider) ? spanKinds.internal : spanKinds.client,
    );
    span.attributes.push(
      ['gen_ai.operation.name', operation],
      ['gen_ai.provider.name', provider],
      ['gen_ai.request.model', model],
      ['tokenhouse.backend', backend],
      ['tokenhouse.attempt', number],
    );
    if (chosen !== null)
      span.attributes.push(
        ['tokenhouse.routing.expected_ms', chosen.expectedMs],
        ['tokenhouse.routing.expected_cached_tokens', chosen.cachedTokens],
        ['tokenhouse.routing.running', chosen.running],
      );
    const over = (outcome: string, failure?: string): void => {
      span.attributes.push(['tokenhouse.outcome', outcome]);
      span.end(this.#nowMs(), failure);
    };
    return {
      headers: traceHeadersOf({ ...this.#context, spanId: span.id }),
      firstToken: () => {
        const nowMs = this.#nowMs();
        span.events.push({ name: 'tokenhouse.first_token', atMs: nowMs });
        span.attributes.push(['gen_ai.response.time_to_first_chunk', seconds(nowMs - span.startedMs)]);
      },
      answered: (usage) => {
        span.attributes.push(['gen_ai.response.model', model], ...usageAttributes(usage));
        over('answered');
      },
      failed: (code) => (code === null ? over('cancelled') : over('failed', code)),
    };
  }

  end(facts: RequestFacts): void {
    const { code, status, answer } = facts.figures;
    const failure = code === '' ? undefined : code;
    const nowMs = this.#nowMs();
    // The span of a step that threw: nothing else ends it.
    for (const span of this.#children) if (!span.isOver) span.end(nowMs, failure);
    const root = this.#root;
    root.name = `${methodOf(facts)} ${facts.route}`;
    root.attributes.push(...requestAttributes(facts), ...answerAttributes(answer));
    // HTTP conventions: a client's mistake is not an error of the server.
    root.end(nowMs, failure, status >= 400 && status < 500);
    this.#sink.take(this.#context, [root, ...this.#children]);
  }

  #open(name: string, kind: number): OpenSpan {
    const { id } = this.#root;
    // The server span is 1.
    const number = (this.#children.length + 2).toString(16).padStart(4, '0');
    const span = new OpenSpan(id.slice(0, 12) + number, name, id, kind, this.#nowMs());
    this.#children.push(span);
    return span;
  }

  #nowMs(): number {
    return this.#startedMs + (performance.now() - this.#startedAt);
  }
}

class OpenSpan implements SpanRecord {
  readonly id: string;
  readonly attributes: Attribute[] = [];
  readonly events: { readonly name: string; readonly atMs: number }[] = [];
  readonly parentId: string | undefined;
  readonly kind: number;
  readonly startedMs: number;
  name: string;
  endedMs = 0;
  isError = false;

  constructor(id: string, name: string, parentId: string | undefined, kind: number, startedMs: number) {
    this.id = id;
    this.name = name;
    this.parentId = parentId;
    this.kind = kind;
    this.startedMs = startedMs;
  }

  get isOver(): boolean {
    return this.endedMs > 0;
  }

  get flags(): number {
    return this.kind === spanKinds.server && this.parentId !== undefined
      ? remoteFlags.known | remoteFlags.yes
      : remoteFlags.known;
  }

  /** `isOfClient`: the failure is the client's error, not its own. */
  end(nowMs: number, failure: string | undefined, isOfClient = false): void {
    if (this.isOver) return;
    this.endedMs = nowMs;
    if (failure === undefined) return;
    this.attributes.push(['error.type', failure]);
    this.isError = !isOfClient;
  }
}

const seconds = (ms: number) => ({ double: Math.round(ms * 1_000) / 1e6 });

/** The methods that HTTP defines; a client may send another. */
const methods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH']);

const methodOf = ({ method }: RequestFacts): string => (methods.has(method) ? method : '_OTHER');

function requestAttributes(facts: RequestFacts): readonly Attribute[] {
  const { route, operation, requestId, accountId, keyId, figures } = facts;
  const attributes: Attribute[] = [
    ['http.request.method', methodOf(facts)],
    ['http.route', route],
    ['url.path', route],
    ['url.scheme', 'http'],
    ['gen_ai.operation.name', operation],
    ['gen_ai.provider.name', 'tokenhouse'],
    ['tokenhouse.request.id', requestId],
  ];
  // None was sent to a client that had left.
  if (figures.status !== 0) attributes.push(['http.response.status_code', figures.status]);
  if (figures.model !== '')
    attributes.push(['gen_ai.request.model', figures.model], ['gen_ai.request.stream', figures.streamed]);
  if (accountId !== undefined) attributes.push(['tokenhouse.account.id', accountId]);
  if (keyId !== undefined) attributes.push(['tokenhouse.key.id', keyId]);
  return attributes;
}

function answerAttributes(answer: RequestFigures['answer']): readonly Attribute[] {
  if (answer === undefined) return [];
  const { ending, finish, firstTokenMs } = answer;
  return [
    ['tokenhouse.ending', ending],
    ...usageAttributes(answer),
    ...(finish === null ? [] : [['gen_ai.response.finish_reasons', [finish]] as const]),
    ...(firstTokenMs === null ? [] : [['gen_ai.response.time_to_first_chunk', seconds(firstTokenMs)] as const]),
  ];
}

const usageAttributes = (usage: AttemptUsage): readonly Attribute[] => [
  ['gen_ai.usage.input_tokens', usage.promptTokens],
  ['gen_ai.usage.cache_read.input_tokens', usage.cachedTokens],
  ['gen_ai.usage.output_tokens', usage.completionTokens],
  ['gen_ai.usage.reasoning.output_tokens', usage.reasoningTokens],
];

import { Registry } from './registry.ts';
import { requestSeconds } from './bounds.ts';
import { readingMetrics } from './reading-metrics.ts';
import type { Description, FamilyFigures } from './figures.ts';
import type { Counter, Histogram } from './registry.ts';
import type { ServiceReadings } from './service-readings.ts';

/** An inference request whose last byte has been handed over. */
export interface RequestFigures {
  readonly api: string;
  /** Id of a model of the catalog, empty when none was found: never what the client wrote. */
  readonly model: string;
  readonly streamed: boolean;
  /** Status of the answer's head; 0 when none was sent. */
  readonly status: number;
  /** Empty when there was no error. */
  readonly code: string;
  /** `undefined`: refused before its hold. */
  readonly answer: AnswerFigures | undefined;
  /** Time spent in this service: from the complete request to its end, without the wait for an engine. */
  readonly ownMs: number;
}

export interface AnswerFigures {
  /** The models that did not serve it, starting with the requested one; absent if that one did. */
  readonly fallbacks?: readonly { readonly model: string }[] | undefined;
  readonly ending: string;
  /** Why the model stopped; null when it did not. */
  readonly finish: string | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  readonly unchargedMicrocents: bigint;
  readonly firstTokenMs: number | null;
  readonly totalMs: number;
  readonly tier?: string | null | undefined;
  readonly queued?: { readonly waitMs: number } | undefined;
}

const gapSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];
const ownSeconds = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5];
const batchRows = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
const commitSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** The series of answers of one kind. */
interface AnswerSeries {
  readonly prompt: Counter;
  readonly cached: Counter;
  readonly completion: Counter;
  readonly reasoning: Counter;
  /** Those of the tier `default`. */
  readonly usualTokens: Counter;
  readonly charged: Counter;
  readonly uncharged: Counter;
  readonly duration: Histogram;
  /** `undefined` until an answer had a first token: a series that nothing was observed in is not shown. */
  firstToken: Histogram | undefined;
  readonly own: Histogram;
}

const answerSeriesMax = 10_000;

/** Every metric of the service. Measurements of a request are recorded once, when it has ended. */
export class ServiceMetrics {
  readonly #registry = new Registry();
  readonly #requests;
  readonly #fallbacks;
  readonly #http;
  readonly #tokens;
  readonly #charged;
  readonly #uncharged;
  readonly #duration;
  readonly #firstToken;
  readonly #queue;
  readonly #tierTokens;
  readonly #gaps;
  readonly #own;
  readonly #batchRows;
  readonly #batchSeconds;
  readonly #batchesRefused;
  readonly #settlementsRepaired;
  readonly #idempotent;
  readonly #answers = new Map<string, AnswerSeries>();

  constructor(readings: ServiceReadings) {
    const registry = this.#registry;
    this.#requests = registry.counter(
      'tokenhouse_requests_total',
      'Inference requests. `ending` as in the usage row, or `refused` when there is none; `code` is the error code; `status` of the response head, 0 when none was sent.',
      ['api', 'model', 'streamed', 'ending', 'status', 'code'],
    );
    this.#fallbacks = registry.counter(
      'tokenhouse_fallback_requests_total',
      'Requests that a model with `fallback` could not serve. `to` is the model that served instead, empty when none did.',
      ['model', 'to'],
    );
    this.#http = registry.counter('tokenhouse_http_requests_total', 'Answers of the inference host, by route.', [
      'route',
      'status',
    ]);
    this.#tokens = registry.counter(
      'tokenhouse_tokens_total',
      'Tokens of usage rows. `prompt` includes `cached`, `completion` includes `reasoning`.',
      ['api', 'model', 'kind'],
    );
    this.#charged = registry.counter('tokenhouse_charged_microcents_total', 'Charges of requests.', ['model']);
    this.#uncharged = registry.counter(
      'tokenhouse_uncharged_microcents_total',
      'List cost of work that was not charged.',
      ['model'],
    );
    this.#duration = registry.histogram(
      'tokenhouse_request_seconds',
      'Time from the arrival of a request to its end.',
      ['api', 'model', 'streamed'],
      requestSeconds,
    );
    this.#firstToken = registry.histogram(
      'tokenhouse_first_token_seconds',
      'Time from the arrival of a request to its first content.',
      ['model'],
      requestSeconds,
    );
    this.#queue = registry.histogram(
      'tokenhouse_queue_seconds',
      'Time that requests which found no free slot waited for one, by service tier.',
      ['model', 'tier'],
      requestSeconds,
    );
    this.#tierTokens = registry.counter('tokenhouse_tier_tokens_total', 'Tokens of usage rows, by service tier.', [
      'model',
      'tier',
    ]);
    this.#gaps = registry.histogram(
      'tokenhouse_chunk_gap_seconds',
      'Time between two batches of an answer from the engine; slow readers increase it.',
      ['model'],
      gapSeconds,
    );
    this.#own = registry.histogram(
      'tokenhouse_own_seconds',
      'Time that the service itself adds: from the complete request to the call of an engine, and from its last batch to the end of the answer, settlement included.',
      ['api'],
      ownSeconds,
    );
    this.#batchRows = registry.histogram(
      'tokenhouse_ledger_batch_rows',
      'Settlements that one transaction made durable.',
      [],
      batchRows,
    );
    this.#batchSeconds = registry.histogram(
      'tokenhouse_ledger_commit_seconds',
      'Duration of a transaction, as seen by the main thread.',
      [],
      commitSeconds,
    );
    this.#batchesRefused = registry.counter(
      'tokenhouse_ledger_batches_refused_total',
      'Transactions that the store refused: database locked, disk full.',
    );
    this.#settlementsRepaired = registry.counter(
      'tokenhouse_settlements_repaired_total',
      'Settlements with an unknown outcome that were repaired later (`repaired`) or not (`unrepaired`: see the log).',
      ['outcome'],
    );
    this.#idempotent = registry.counter(
      'tokenhouse_idempotent_requests_total',
      'Requests with an `Idempotency-Key`: executed (`generated`), answered from a running request (`joined`) or an earlier one (`replayed`), or refused (`refused`).',
      ['outcome'],
    );
    for (const { type = 'gauge', labels = [], across = 'sum', read, ...named } of readingMetrics)
      registry.reading({ ...named, type, labels, across }, () => read(readings));
  }

  get descriptions(): readonly Description[] {
    return this.#registry.descriptions;
  }

  /** The figures of this process, to be merged with those of others. */
  figures(): readonly FamilyFigures[] {
    return this.#registry.figures();
  }

  http(route: string, status: number): void {
    this.#http(route, String(status)).add(1);
  }

  request(figures: RequestFigures): void {
    const { api, model, answer } = figures;
    const streamed = figures.streamed ? 'yes' : 'no';
    this.#requests(api, model, streamed, answer?.ending ?? 'refused', String(figures.status), figures.code).add(1);
    if (answer === undefined) return;
    const [asked] = answer.fallbacks ?? [];
    if (asked !== undefined) this.#fallbacks(asked.model, asked.model === model ? '' : model).add(1);
    const kept = this.#ofAnswers(api, model, streamed);
    kept.prompt.add(answer.promptTokens);
    kept.cached.add(answer.cachedTokens);
    kept.completion.add(answer.completionTokens);
    kept.reasoning.add(answer.reasoningTokens);
    const { tier, queued } = answer;
    const isUsual = tier === undefined || tier === null || tier === 'default';
    (isUsual ? kept.usualTokens : this.#tierTokens(model, tier)).add(answer.promptTokens + answer.completionTokens);
    if (queued !== undefined) this.#queue(model, tier ?? 'default').observe(queued.waitMs / 1_000);
    kept.charged.add(Number(answer.costMicrocents));
    kept.uncharged.add(Number(answer.unchargedMicrocents));
    kept.duration.observe(answer.totalMs / 1_000);
    if (answer.firstTokenMs !== null)
      (kept.firstToken ??= this.#firstToken(model)).observe(answer.firstTokenMs / 1_000);
    kept.own.observe(figures.ownMs / 1_000);
  }

  /** Found once for each combination, because nine look-ups by labels took 5 µs of each request; models of the catalog are few. */
  #ofAnswers(api: string, model: string, streamed: 'yes' | 'no'): AnswerSeries {
    const name = `${api} ${streamed} ${model}`;
    const known = this.#answers.get(name);
    if (known !== undefined) return known;
    if (this.#answers.size >= answerSeriesMax) this.#answers.clear();
    const found: AnswerSeries = {
      prompt: this.#tokens(api, model, 'prompt'),
      cached: this.#tokens(api, model, 'cached'),
      completion: this.#tokens(api, model, 'completion'),
      reasoning: this.#tokens(api, model, 'reasoning'),
      usualTokens: this.#tierTokens(model, 'default'),
      charged: this.#charged(model),
      uncharged: this.#uncharged(model),
      duration: this.#duration(api, model, streamed),
      firstToken: undefined,
      own: this.#own(api),
    };
    this.#answers.set(name, found);
    return found;
  }

  /** Looked up once for a request, used for each of its batches; in seconds. */
  chunkGaps(model: string): Histogram {
    return this.#gaps(model);
  }

  ledgerBatch(rows: number, elapsedMs: number, isRefused: boolean): void {
    if (isRefused) {
      this.#batchesRefused().add(1);
      return;
    }
    if (rows > 0) this.#batchRows().observe(rows);
    this.#batchSeconds().observe(elapsedMs / 1_000);
  }

  idempotent(outcome: 'generated' | 'joined' | 'replayed' | 'refused'): void {
    this.#idempotent(outcome).add(1);
  }

  settlement(outcome: 'repaired' | 'unrepaired'): void {
    this.#settlementsRepaired(outcome).add(1);
  }
}

import type { ProcessReadings } from './process-readings.ts';
import { Registry } from './registry.ts';
import type { Across, Description, FamilyFigures } from './figures.ts';
import type { Histogram, Reading } from './registry.ts';

/** Read from the parts of the service on each scrape. */
export interface ServiceReadings {
  readonly version: string;
  readonly process: ProcessReadings;
  readonly requestsRunning: () => number;
  readonly openHolds: () => number;
  readonly heldMicrocents: () => bigint;
  readonly settlementsWaiting: () => number;
  readonly bodyBytes: () => number;
  readonly sockets: () => { readonly inference: number; readonly account: number };
  readonly logLinesDropped: () => number;
  readonly backends: () => readonly BackendReading[];
  /** Requests that wait in the queue, by model. */
  lines(): readonly { readonly model: string; readonly length: number }[];
  readonly config: () => ConfigReading & { readonly leaving: number };
  /** Processes that answer requests. */
  readonly workers: () => number;
  readonly workersEnded: () => number;
  /** The recurring work beside the requests. */
  readonly jobs: () => readonly {
    readonly name: string;
    readonly lastSuccessSeconds: number;
    readonly failures: number;
  }[];
}

export interface ConfigReading {
  readonly version: number;
  readonly failures: number;
  readonly lastSuccess: boolean;
}

export interface BackendReading {
  readonly model: string;
  readonly backend: string;
  readonly isReady: boolean;
  readonly running: number;
  /** Undefined where the backend has no queue of ours. */
  readonly waiting: number | undefined;
}

/** A request for inference, when its last byte has been handed over. */
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
  /** Our own time with it: from the whole request to its end, without the wait for an engine. */
  readonly ownMs: number;
}

export interface AnswerFigures {
  readonly ending: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  readonly unchargedMicrocents: bigint;
  readonly firstTokenMs: number | null;
  readonly totalMs: number;
}

const requestSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const gapSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];
const ownSeconds = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5];
const batchRows = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
const commitSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Every metric of the service. Measurements of a request are recorded once, when it has ended. */
export class ServiceMetrics {
  readonly #registry = new Registry();
  readonly #requests;
  readonly #http;
  readonly #tokens;
  readonly #charged;
  readonly #uncharged;
  readonly #duration;
  readonly #firstToken;
  readonly #gaps;
  readonly #own;
  readonly #batchRows;
  readonly #batchSeconds;
  readonly #batchesRefused;
  readonly #settlementsRepaired;
  readonly #idempotent;

  constructor(readings: ServiceReadings) {
    const registry = this.#registry;
    this.#requests = registry.counter(
      'tokenhouse_requests_total',
      'Inference requests. `ending` as in the usage row, or `refused` when there is none; `code` is the error code; `status` of the response head, 0 when none was sent.',
      ['api', 'model', 'streamed', 'ending', 'status', 'code'],
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
    registerReadings(registry, readings);
  }

  get descriptions(): readonly Description[] {
    return this.#registry.descriptions;
  }

  text(): string {
    return this.#registry.text();
  }

  /** The same as data, to be merged with that of other processes. */
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
    this.#tokens(api, model, 'prompt').add(answer.promptTokens);
    this.#tokens(api, model, 'cached').add(answer.cachedTokens);
    this.#tokens(api, model, 'completion').add(answer.completionTokens);
    this.#tokens(api, model, 'reasoning').add(answer.reasoningTokens);
    this.#charged(model).add(Number(answer.costMicrocents));
    this.#uncharged(model).add(Number(answer.unchargedMicrocents));
    this.#duration(api, model, streamed).observe(answer.totalMs / 1_000);
    if (answer.firstTokenMs !== null) this.#firstToken(model).observe(answer.firstTokenMs / 1_000);
    this.#own(api).observe(figures.ownMs / 1_000);
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

function registerReadings(registry: Registry, readings: ServiceReadings): void {
  const gauge = (name: string, help: string, read: () => number, across: Across = 'sum'): void =>
    registry.gauge(name, help, [], () => [[[], read()]], across);
  const perBackend = (
    name: string,
    help: string,
    read: (backend: BackendReading) => number | undefined,
    across: Across = 'sum',
  ): void =>
    registry.gauge(
      name,
      help,
      ['model', 'backend'],
      () =>
        readings.backends().flatMap((backend): Reading[] => {
          const value = read(backend);
          return value === undefined ? [] : [[[backend.model, backend.backend], value]];
        }),
      across,
    );

  gauge('tokenhouse_requests_running', 'Requests in progress on the inference host.', readings.requestsRunning);
  gauge('tokenhouse_holds_open', 'Requests with a credit hold.', readings.openHolds);
  gauge('tokenhouse_held_microcents', 'Credit held for running requests.', () => Number(readings.heldMicrocents()));
  gauge(
    'tokenhouse_settlements_waiting',
    'Settlements that are submitted and not yet durable.',
    readings.settlementsWaiting,
  );
  gauge('tokenhouse_body_bytes', 'Bytes of request bodies in memory.', readings.bodyBytes);
  perBackend(
    'tokenhouse_backend_ready',
    '1 when the backend can take work; with several workers, when all of them can use it.',
    ({ isReady }) => (isReady ? 1 : 0),
    'least',
  );
  perBackend('tokenhouse_backend_running', 'Requests that run on the backend.', ({ running }) => running);
  perBackend(
    'tokenhouse_backend_waiting',
    'Answers that wait for a slot in the embedded engine.',
    ({ waiting }) => waiting,
  );
  registry.gauge('tokenhouse_model_waiting', 'Requests in the wait queue of a model.', ['model'], () =>
    readings.lines().map(({ model, length }) => [[model], length]),
  );
  registry.gauge('tokenhouse_open_sockets', 'Client connections.', ['host'], () => {
    const { inference, account } = readings.sockets();
    return [
      [['inference'], inference],
      [['account'], account],
    ];
  });
  registry.count(
    'tokenhouse_log_lines_dropped_total',
    'Log lines that were lost because their reader was too slow.',
    readings.logLinesDropped,
  );
  gauge(
    'tokenhouse_config_version',
    'Configurations that took effect since the start, the first included.',
    () => readings.config().version,
    'first',
  );
  gauge(
    'tokenhouse_config_last_reload_success',
    '1 when the most recently read configuration is in force.',
    () => (readings.config().lastSuccess ? 1 : 0),
    'first',
  );
  registry.count(
    'tokenhouse_config_reload_failures_total',
    'Configurations that were refused while running.',
    () => readings.config().failures,
    'first',
  );
  gauge(
    'tokenhouse_backends_leaving',
    'Backends of earlier configurations with running requests.',
    () => readings.config().leaving,
  );
  registry.gauge(
    'tokenhouse_job_last_success_timestamp_seconds',
    'Time of the last success of a background job; 0: none since the start.',
    ['job'],
    () => readings.jobs().map(({ name, lastSuccessSeconds }) => [[name], lastSuccessSeconds]),
    'first',
  );
  registry.gauge(
    'tokenhouse_job_failures',
    'Failures of a background job since the start; it is retried.',
    ['job'],
    () => readings.jobs().map(({ name, failures }) => [[name], failures]),
    'first',
  );
  registry.gauge(
    'tokenhouse_event_loop_delay_seconds',
    'Event loop lag of the main thread over the last 15 s: `max`, and two quantiles.',
    ['quantile'],
    () => {
      const { p50, p99, max } = readings.process.delay;
      return [
        [['0.5'], p50],
        [['0.99'], p99],
        [['max'], max],
      ];
    },
    'each',
  );
  gauge(
    'tokenhouse_event_loop_utilization',
    'Share of the last 15 s in which the main thread was busy.',
    () => readings.process.utilization,
    'each',
  );
  gauge(
    'process_resident_memory_bytes',
    'Memory of this process, without those of embedded engines.',
    () => process.memoryUsage.rss(),
    'each',
  );
  gauge(
    'process_heap_used_bytes',
    'Memory of the JavaScript heap in use.',
    () => process.memoryUsage().heapUsed,
    'each',
  );
  registry.count(
    'process_cpu_seconds_total',
    'CPU time of this process, all threads.',
    () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    },
    'each',
  );
  registry.gauge(
    'process_open_fds',
    'Open files and sockets, where the system reports them.',
    [],
    () => (readings.process.openFiles === undefined ? [] : [[[], readings.process.openFiles]]),
    'each',
  );
  gauge(
    'process_start_time_seconds',
    'Start time of the process, in seconds since 1970.',
    () => Math.round(Date.now() / 1_000 - process.uptime()),
    'each',
  );
  gauge('tokenhouse_workers', 'Worker processes.', readings.workers, 'first');
  registry.count(
    'tokenhouse_workers_ended_total',
    'Workers that ended unexpectedly and were restarted.',
    readings.workersEnded,
    'first',
  );
  registry.gauge(
    'tokenhouse_build_info',
    'Always 1.',
    ['version', 'node'],
    () => [[[readings.version, process.versions.node], 1]],
    'first',
  );
}

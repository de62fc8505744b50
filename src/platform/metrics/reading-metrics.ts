import {
  backendLabels,
  perAnswers,
  perBackend,
  perModel,
  perSource,
  perWork,
  sourceLabels,
  type ReadingMetric,
} from './reading-metric.ts';
import type { Reading } from './registry.ts';

/** In the order of the page. */
export const readingMetrics: readonly ReadingMetric[] = [
  {
    name: 'tokenhouse_requests_running',
    help: 'Requests in progress on the inference host.',
    read: (service) => service.requestsRunning(),
  },
  {
    name: 'tokenhouse_holds_open',
    help: 'Requests with a credit hold.',
    read: (service) => service.openHolds(),
  },
  {
    name: 'tokenhouse_held_microcents',
    help: 'Credit held for running requests.',
    read: (service) => Number(service.heldMicrocents()),
  },
  {
    name: 'tokenhouse_settlements_waiting',
    help: 'Settlements that are submitted and not yet durable.',
    read: (service) => service.settlementsWaiting(),
  },
  {
    name: 'tokenhouse_body_bytes',
    help: 'Bytes of memory that are taken for request bodies and what is made of them.',
    read: (service) => service.bodyBytes(),
  },
  {
    name: 'tokenhouse_work_total',
    help: 'Work before an answer that accounts take turns at, as it began: forms compiled, files decoded, PDFs read, addresses fetched, prompts counted.',
    type: 'counter',
    labels: ['kind'],
    read: perWork(({ begun }) => begun),
  },
  {
    name: 'tokenhouse_work_waiting',
    help: 'Such work that waits for its turn.',
    labels: ['kind'],
    read: perWork(({ waiting }) => waiting),
  },
  {
    name: 'tokenhouse_work_refused_total',
    help: 'Such work that did not get its turn, because too much of it waited, or it waited too long.',
    type: 'counter',
    labels: ['kind'],
    read: perWork(({ refused }) => refused),
  },
  {
    name: 'tokenhouse_backend_ready',
    help: '1 when the backend can take work; with several workers, when all of them can use it.',
    labels: backendLabels,
    across: 'least',
    read: perBackend(({ isReady }) => (isReady ? 1 : 0)),
  },
  {
    name: 'tokenhouse_backend_running',
    help: 'Requests that run on the backend.',
    labels: backendLabels,
    read: perBackend(({ running }) => running),
  },
  {
    name: 'tokenhouse_backend_waiting',
    help: 'Answers that wait for a slot in the embedded engine.',
    labels: backendLabels,
    read: perBackend(({ waiting }) => waiting),
  },
  {
    name: 'tokenhouse_backend_loaded',
    help: 'Serving processes that have the embedded model in memory.',
    labels: backendLabels,
    read: perBackend(({ isLoaded }) => (isLoaded === undefined ? undefined : Number(isLoaded))),
  },
  {
    name: 'tokenhouse_backend_waiting_for_memory',
    help: 'Serving processes in which the embedded model waits for others to make room.',
    labels: backendLabels,
    read: perBackend(({ isWaitingForMemory }) =>
      isWaitingForMemory === undefined ? undefined : Number(isWaitingForMemory),
    ),
  },
  {
    name: 'tokenhouse_backend_server_running',
    help: '1 while the server that the service starts for the backend is there and awake, 0 while it is not.',
    labels: backendLabels,
    read: perBackend(({ server }) => (server === undefined ? undefined : Number(server.state === 'ready'))),
  },
  {
    name: 'tokenhouse_backend_server_starts_total',
    help: 'How often the server that the service starts for the backend was started (cold starts).',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ server }) => server?.starts),
  },
  {
    name: 'tokenhouse_backend_server_failures_total',
    help: 'How often that server has ended by itself, was not ready in time, or did not answer any more.',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ server }) => server?.failures),
  },
  {
    name: 'tokenhouse_backend_server_start_seconds',
    help: 'How long its last start took; 0: there was none.',
    labels: backendLabels,
    read: perBackend(({ server }) => (server === undefined ? undefined : server.loadMs / 1_000)),
  },
  {
    name: 'tokenhouse_backend_memory_bytes',
    help: 'What the embedded model takes of the memory; 0 while it is not loaded.',
    labels: backendLabels,
    read: perBackend(({ memoryBytes }) => memoryBytes),
  },
  {
    name: 'tokenhouse_backend_tokens_per_second',
    help: 'Speed of one answer of the embedded engine; of an embedding model, of what it reads.',
    labels: backendLabels,
    across: 'least',
    read: perBackend(({ tokensPerSecond }) => tokensPerSecond),
  },
  {
    name: 'tokenhouse_model_waiting',
    help: 'Requests in the wait queue of a model, by service tier.',
    labels: ['model', 'tier'],
    read: (service) =>
      service
        .models()
        .flatMap(({ model, waiting }) =>
          Object.entries(waiting).map(([tier, count]): Reading => [[model, tier], count]),
        ),
  },
  {
    name: 'tokenhouse_model_slots_free',
    help: 'Slots of the ready backends of a model that no request of this service has; absent where a backend takes any number.',
    labels: ['model'],
    read: perModel(({ slotsFree }) => slotsFree),
  },
  {
    name: 'tokenhouse_backend_ejected',
    help: 'Serving processes that leave the backend out because it has failed their requests.',
    labels: backendLabels,
    read: perBackend(({ isEjected }) => (isEjected ? 1 : 0)),
  },
  {
    name: 'tokenhouse_backend_ejections_total',
    help: 'How often a serving process has left the backend out because it failed requests.',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ ejections }) => ejections),
  },
  {
    name: 'tokenhouse_backend_worse',
    help: 'Serving processes that use the backend less, because it fails more than its peers beyond chance: `backend_worse` in the log says what.',
    labels: backendLabels,
    read: perBackend(({ isWorse }) => (isWorse ? 1 : 0)),
  },
  {
    name: 'tokenhouse_backend_answers_total',
    help: 'Requests that the backend has answered, and that it has failed by its own fault.',
    type: 'counter',
    labels: [...backendLabels, 'outcome'],
    read: perAnswers(({ answered, failed }) => ({ answered, failed })),
  },
  {
    name: 'tokenhouse_backend_tool_calls_total',
    help: 'Tool calls in its answers: `sound`; with arguments that are no JSON object (`unreadable`); of a function that was not offered (`unknown`); with arguments that do not fit its schema (`misfit`, looked at where there is time); left in the text (`in_text`).',
    type: 'counter',
    labels: [...backendLabels, 'outcome'],
    read: perAnswers(({ calls, callsUnreadable, callsUnknown, callsMisfit, callsInText }) => ({
      sound: calls - callsUnreadable - callsUnknown - callsMisfit - callsInText,
      unreadable: callsUnreadable,
      unknown: callsUnknown,
      misfit: callsMisfit,
      in_text: callsInText,
    })),
  },
  {
    name: 'tokenhouse_backend_json_answers_total',
    help: 'Answers that had to be JSON: those that fit what was asked for (`sound`), and others (`misfit`).',
    type: 'counter',
    labels: [...backendLabels, 'outcome'],
    read: perAnswers(({ forms, formsMisfit }) => ({ sound: forms - formsMisfit, misfit: formsMisfit })),
  },
  {
    name: 'tokenhouse_backend_answer_tokens_total',
    help: 'Tokens of its answers: of prompts, of prompts in its cache (`cached`), and written (`completion`).',
    type: 'counter',
    labels: [...backendLabels, 'kind'],
    read: perAnswers(({ promptTokens, cachedTokens, completionTokens }) => ({
      prompt: promptTokens,
      cached: cachedTokens,
      completion: completionTokens,
    })),
  },
  {
    name: 'tokenhouse_backend_answer_seconds_total',
    help: 'Time from the first content of its answers to their ends: the `completion` tokens through it are the speed of one answer.',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ answers }) => (answers === undefined ? undefined : answers.generatedCentiseconds / 100)),
  },
  {
    name: 'tokenhouse_backend_first_token_seconds',
    help: 'Time from the call of the backend to the first content of its answers, of those that it completed.',
    type: 'histogram',
    labels: backendLabels,
    read: perBackend(({ firstToken }) => firstToken),
  },
  {
    name: 'tokenhouse_backend_expected_cached_tokens_total',
    help: 'Prompt tokens that were expected in the cache of the backend when a request was given to it; where there was a choice.',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ cachedTokensExpected }) => cachedTokensExpected),
  },
  {
    name: 'tokenhouse_backend_found_cached_tokens_total',
    help: 'Prompt tokens of the same requests that the backend reported as cached.',
    type: 'counter',
    labels: backendLabels,
    read: perBackend(({ cachedTokensFound }) => cachedTokensFound),
  },
  {
    name: 'tokenhouse_backend_cache_tokens',
    help: 'Tokens that the prompt cache of the server holds, where it says so; asked where several servers share the load of a model.',
    labels: backendLabels,
    across: 'first',
    read: perBackend(({ cacheTokens }) => cacheTokens),
  },
  {
    name: 'tokenhouse_backend_foreign_running',
    help: 'Requests at the server that this service did not send, by what the server says of itself.',
    labels: backendLabels,
    across: 'first',
    read: perBackend(({ foreign }) => foreign?.running),
  },
  {
    name: 'tokenhouse_backend_foreign_waiting_tokens',
    help: 'Prompt tokens of such requests that wait there, if they are as long as those of this service usually are.',
    labels: backendLabels,
    across: 'first',
    read: perBackend(({ foreign }) => foreign?.waitingTokens),
  },
  {
    name: 'tokenhouse_model_retries_total',
    help: 'Requests that failed before their first token and were tried at another backend.',
    type: 'counter',
    labels: ['model'],
    read: perModel(({ retries }) => retries),
  },
  {
    name: 'tokenhouse_model_retries_refused_total',
    help: 'Requests that were not tried again, because a tenth of the requests had been already.',
    type: 'counter',
    labels: ['model'],
    read: perModel(({ retriesRefused }) => retriesRefused),
  },
  {
    name: 'tokenhouse_source_backends',
    help: 'Servers that a source of backends names: in use, or not yet (`waiting`).',
    labels: [...sourceLabels, 'state'],
    across: 'first',
    read: (service) =>
      service.sources().flatMap(({ model, source, listed, inUse }): Reading[] => [
        [[model, source, 'in_use'], inUse],
        [[model, source, 'waiting'], listed - inUse],
      ]),
  },
  {
    name: 'tokenhouse_source_problem',
    help: '1 while a source of backends cannot be read, or some of its servers cannot be used: see `doctor` and the log. The last list stays in use.',
    labels: sourceLabels,
    across: 'first',
    read: perSource(({ problem }) => (problem === null ? 0 : 1)),
  },
  {
    name: 'tokenhouse_source_last_success_timestamp_seconds',
    help: 'When a source of backends could last be read, in seconds since 1970; 0: never.',
    labels: sourceLabels,
    across: 'first',
    read: perSource(({ lastReadAt }) => Math.floor((lastReadAt ?? 0) / 1_000)),
  },
  {
    name: 'tokenhouse_source_failures_total',
    help: 'How often a source of backends could not be read.',
    type: 'counter',
    labels: sourceLabels,
    across: 'first',
    read: perSource(({ failures }) => failures),
  },
  {
    name: 'tokenhouse_open_sockets',
    help: 'Client connections.',
    labels: ['host'],
    read: (service) => {
      const { inference, account } = service.sockets();
      return [
        [['inference'], inference],
        [['account'], account],
      ];
    },
  },
  {
    name: 'tokenhouse_log_lines_dropped_total',
    help: 'Log lines that were lost because their reader was too slow.',
    type: 'counter',
    read: (service) => service.logLinesDropped(),
  },
  {
    name: 'tokenhouse_peer_reports_total',
    help: 'Reports on backends that serving processes have sent to each other, and that they have heard.',
    type: 'counter',
    labels: ['direction'],
    read: (service) => {
      const { sent, heard } = service.peerReports();
      return [
        [['sent'], sent],
        [['heard'], heard],
      ];
    },
  },
  {
    name: 'tokenhouse_telemetry_spans_total',
    help: 'Spans that a collector has taken (`sent`), or that were lost because it did not (`dropped`).',
    type: 'counter',
    labels: ['outcome'],
    read: (service) => {
      const { sent, dropped } = service.telemetry().spans;
      return [
        [['sent'], sent],
        [['dropped'], dropped],
      ];
    },
  },
  {
    name: 'tokenhouse_telemetry_failures_total',
    help: 'Posts to a collector that failed; those of spans are repeated.',
    type: 'counter',
    labels: ['signal'],
    read: (service) => {
      const { traces, metrics } = service.telemetry().failures;
      return [
        [['traces'], traces],
        [['metrics'], metrics],
      ];
    },
  },
  {
    name: 'tokenhouse_config_version',
    help: 'Configurations that took effect since the start, the first included.',
    across: 'first',
    read: (service) => service.config().version,
  },
  {
    name: 'tokenhouse_config_last_reload_success',
    help: '1 when the most recently read configuration is in force.',
    across: 'first',
    read: (service) => (service.config().lastSuccess ? 1 : 0),
  },
  {
    name: 'tokenhouse_config_reload_failures_total',
    help: 'Configurations that were refused while running.',
    type: 'counter',
    across: 'first',
    read: (service) => service.config().failures,
  },
  {
    name: 'tokenhouse_backends_leaving',
    help: 'Backends of earlier configurations with running requests.',
    read: (service) => service.config().leaving,
  },
  {
    name: 'tokenhouse_job_last_success_timestamp_seconds',
    help: 'Time of the last success of a background job; 0: none since the start.',
    labels: ['job'],
    across: 'first',
    read: (service) => service.jobs().map(({ name, lastSuccessSeconds }) => [[name], lastSuccessSeconds]),
  },
  {
    name: 'tokenhouse_job_failures',
    help: 'Failures of a background job since the start; it is retried.',
    labels: ['job'],
    across: 'first',
    read: (service) => service.jobs().map(({ name, failures }) => [[name], failures]),
  },
  {
    name: 'tokenhouse_event_loop_delay_seconds',
    help: 'Event loop lag of the main thread over the last 15 s: `max`, and two quantiles.',
    labels: ['quantile'],
    across: 'each',
    read: (service) => {
      const { p50, p99, max } = service.process.delay;
      return [
        [['0.5'], p50],
        [['0.99'], p99],
        [['max'], max],
      ];
    },
  },
  {
    name: 'tokenhouse_event_loop_utilization',
    help: 'Share of the last 15 s in which the main thread was busy.',
    across: 'each',
    read: (service) => service.process.utilization,
  },
  {
    name: 'process_resident_memory_bytes',
    help: 'Memory of this process, without those of embedded engines.',
    across: 'each',
    read: () => process.memoryUsage.rss(),
  },
  {
    name: 'process_heap_used_bytes',
    help: 'Memory of the JavaScript heap in use.',
    across: 'each',
    read: () => process.memoryUsage().heapUsed,
  },
  {
    name: 'process_cpu_seconds_total',
    help: 'CPU time of this process, all threads.',
    type: 'counter',
    across: 'each',
    read: () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    },
  },
  {
    name: 'process_open_fds',
    help: 'Open files and sockets, where the system reports them.',
    across: 'each',
    read: (service) => service.process.openFiles ?? [],
  },
  {
    name: 'process_start_time_seconds',
    help: 'Start time of the process, in seconds since 1970.',
    across: 'each',
    read: () => Math.round(Date.now() / 1_000 - process.uptime()),
  },
  {
    name: 'tokenhouse_workers',
    help: 'Worker processes.',
    across: 'first',
    read: (service) => service.workers(),
  },
  {
    name: 'tokenhouse_workers_ended_total',
    help: 'Workers that ended unexpectedly and were restarted.',
    type: 'counter',
    across: 'first',
    read: (service) => service.workersEnded(),
  },
  {
    name: 'tokenhouse_build_info',
    help: 'Always 1.',
    labels: ['version', 'node'],
    across: 'first',
    read: (service) => [[[service.version, process.versions.node], 1]],
  },
];

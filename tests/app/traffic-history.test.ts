/** From the metrics of processes to rows of the history: by a clock of the test, from the metrics that the service really has. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { quantile } from '../../src/account-api/history-object.ts';
import { TrafficHistory } from '../../src/app/traffic-history.ts';
import { requestSeconds } from '../../src/platform/metrics/bounds.ts';
import { mergedFigures, type FamilyFigures } from '../../src/platform/metrics/figures.ts';
import { Buckets } from '../../src/platform/metrics/registry.ts';
import { ServiceMetrics, type RequestFigures } from '../../src/platform/metrics/service-metrics.ts';
import type { BackendReading, ServiceReadings } from '../../src/platform/metrics/service-readings.ts';
import { noFigures, together, type HistoryFigures, type HistoryRow } from '../../src/store/history-steps.ts';

const minuteMs = 60_000;
const begin = 1_800_000_000_000;

const answers = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, generatedCentiseconds: 0, answered: 0 };
const checks = { failed: 0, calls: 0, callsUnreadable: 0, callsUnknown: 0, callsMisfit: 0, callsInText: 0 };

/** The metrics of one process; what its backends report can be set. */
function metricsOf() {
  const backends: Partial<BackendReading>[] = [];
  const none = (): number => 0;
  const process = { delay: { p50: 0, p99: 0, max: 0 }, utilization: 0, openFiles: undefined, stop: () => {} };
  const readings: ServiceReadings = {
    ...{ version: '', process, requestsRunning: none, openHolds: none, heldMicrocents: () => 0n },
    ...{ settlementsWaiting: none, bodyBytes: none, work: () => [], sockets: () => ({ inference: 0, account: 0 }) },
    ...{ logLinesDropped: none, peerReports: () => ({ sent: 0, heard: 0 }), models: () => [], sources: () => [] },
    telemetry: () => ({ spans: { sent: 0, dropped: 0 }, failures: { traces: 0, metrics: 0 } }),
    config: () => ({ version: 1, failures: 0, lastSuccess: true, leaving: 0 }),
    ...{ workers: none, workersEnded: none, jobs: () => [] },
    backends: () => backends as readonly BackendReading[],
  };
  const metrics = new ServiceMetrics(readings);
  const request = (changes: Omit<Partial<RequestFigures>, 'answer'> & { readonly answer?: object } = {}): void =>
    metrics.request({
      ...{ api: 'chat', model: 'demo', streamed: true, status: 200, code: '', ownMs: 1 },
      ...changes,
      answer: changes.answer === undefined ? undefined : ({ ...finished, ...changes.answer } as typeof finished),
    });
  const backend = (of: string, counts: Partial<typeof answers & typeof checks>, ...firstTokenMs: readonly number[]) => {
    const buckets = new Buckets(requestSeconds);
    for (const ms of firstTokenMs) buckets.observe(ms / 1_000);
    const found = backends.findIndex((one) => one.backend === of);
    const reading = {
      ...{ model: 'demo', backend: of, isReady: true, running: 0, firstToken: buckets.figures() },
      answers: { ...answers, ...checks, forms: 0, formsMisfit: 0, ...counts },
    };
    backends.splice(found === -1 ? backends.length : found, found === -1 ? 0 : 1, reading);
  };
  return { metrics, request, backend };
}

const finished = {
  ...{
    ending: 'finished',
    finish: 'stop',
    promptTokens: 10,
    cachedTokens: 0,
    completionTokens: 20,
    reasoningTokens: 0,
  },
  ...{ costMicrocents: 1n, unchargedMicrocents: 0n, firstTokenMs: 40, totalMs: 900 },
};

/** A history with a clock and a store in memory. */
function scene(figures: () => readonly FamilyFigures[]) {
  let now = begin + 100;
  let isDown = false;
  const rows: HistoryRow[] = [];
  const history = new TrafficHistory({
    figures,
    now: () => now,
    repositories: {
      addHistory: ({ rows: added }) => {
        if (isDown) return Promise.reject(new Error('the database does not answer'));
        rows.push(...added);
        return Promise.resolve();
      },
    },
  });
  return {
    history,
    rows,
    down: (is: boolean) => void (isDown = is),
    /** To a moment after the end of the minute, at which the job runs. */
    minute: async (): Promise<void> => {
      assert.ok(history.job.everyMs > 0 && history.job.everyMs <= minuteMs);
      now += history.job.everyMs + 3;
      await history.write();
    },
    figuresOf: (model: string, backend: string): HistoryFigures =>
      rows.filter((row) => row.model === model && row.backend === backend).reduce<HistoryFigures>(together, noFigures),
  };
}

const bucket = (...filled: readonly (readonly [index: number, count: number])[]): readonly number[] =>
  noFigures.firstTokens.map((_, index) => filled.find(([at]) => at === index)?.[1] ?? 0);

test('a minute has what was counted in it, of the models and of their backends', async () => {
  const { metrics, request, backend } = metricsOf();
  const { minute, rows } = scene(() => metrics.figures());
  request({ answer: {} });
  request({ answer: { firstTokenMs: 3_000, queued: { waitMs: 700 } } });
  request({
    answer: { ending: 'failed', firstTokenMs: null, completionTokens: 0 },
    code: 'backend_timeout',
    status: 504,
  });
  request({ code: 'rate_limit_exceeded', status: 429 });
  request({ model: '', code: 'invalid_api_key', status: 401 });
  backend(
    'a',
    { answered: 2, failed: 1, promptTokens: 20, completionTokens: 40, generatedCentiseconds: 150 },
    30,
    70_000,
  );
  await minute();
  const at = begin - (begin % minuteMs);
  assert.deepEqual(rows, [
    { ...noFigures, at, model: '', backend: '', requests: 1, refused: 1 },
    {
      ...noFigures,
      ...{ at, model: 'demo', backend: '', requests: 4, refused: 1, failed: 1, promptTokens: 30, completionTokens: 40 },
      ...{ answerTokens: 40, answerMs: 1_500, waits: 1, waitMs: 700, waitLongestMs: 1_000 },
      firstTokens: bucket([1, 1], [7, 1]),
    },
    {
      ...noFigures,
      ...{ at, model: 'demo', backend: 'a', requests: 3, failed: 1, promptTokens: 20, completionTokens: 40 },
      ...{ answerTokens: 40, answerMs: 1_500, firstTokens: bucket([1, 1], [11, 1]) },
    },
  ]);
  // Without traffic there are no rows, and what was counted is not counted again.
  await minute();
  await minute();
  assert.equal(rows.length, 3);
  request({ answer: {} });
  await minute();
  assert.deepEqual(
    rows.slice(3).map(({ at: then, model, requests }) => [(then - at) / minuteMs, model, requests]),
    [[3, 'demo', 1]],
  );
});

test('a backend that is opened anew begins anew, without the counts of the one before', async () => {
  const { metrics, backend } = metricsOf();
  const { minute, figuresOf } = scene(() => metrics.figures());
  backend('a', { answered: 1_000 }, ...Array.from({ length: 50 }, () => 30));
  await minute();
  backend('a', { answered: 4 }, 30);
  await minute();
  backend('a', { answered: 6 }, 30, 30, 30);
  await minute();
  const { requests, firstTokens } = figuresOf('demo', 'a');
  // Of the minute in which it was opened nothing is known.
  assert.deepEqual([requests, firstTokens[1]], [1_002, 52]);
});

test('minutes that the store does not take are written later, each as of its time, and no more than an hour of them', async () => {
  const { metrics, request } = metricsOf();
  const { minute, down, rows } = scene(() => metrics.figures());
  down(true);
  for (let index = 0; index < 100; index++) {
    request({ answer: {} });
    await assert.rejects(minute());
  }
  down(false);
  await minute();
  assert.equal(rows.length, 60);
  assert.equal(new Set(rows.map(({ at }) => at)).size, 60);
  await minute();
  assert.equal(rows.length, 60);
});

test('a service with thousands of models has two hundred series and the sum of the others, in every hour', async () => {
  const { metrics, request } = metricsOf();
  const { minute, rows } = scene(() => metrics.figures());
  const models = 300;
  const sent = (): number => rows.reduce((sum, { requests }) => sum + requests, 0);
  let all = 0;
  for (let index = 0; index < 70; index++) {
    const before = rows.length;
    // Others in every minute, and one that is always the busiest.
    for (let model = 0; model < models; model++) request({ model: `m${(index * 37 + model) % 900}`, answer: {} });
    for (let count = 0; count < 5; count++) request({ model: 'busy', answer: {} });
    all += models + 5;
    await minute();
    assert.ok(rows.length - before <= 202, `${rows.length - before} rows of a minute`);
  }
  assert.equal(sent(), all);
  const names = new Map<number, Set<string>>();
  for (const { at, model } of rows) {
    const hour = at - (at % (60 * minuteMs));
    names.set(hour, (names.get(hour) ?? new Set()).add(model));
  }
  for (const [, of] of names) {
    assert.ok(of.size <= 201, `${of.size} series in an hour`);
    assert.ok(of.has('busy') && of.has('other'));
  }
});

test('the times of two processes make one histogram, whose quantiles are those of all answers', async () => {
  const [one, other] = [metricsOf(), metricsOf()];
  const merged = () =>
    mergedFigures([one, other].map(({ metrics }, index) => ({ process: String(index), families: metrics.figures() })));
  const apart = [one, other].map(({ metrics }) => scene(() => metrics.figures()));
  const both = scene(merged);
  for (let index = 0; index < 900; index++) one.request({ answer: { firstTokenMs: 90 } });
  for (let index = 0; index < 100; index++) other.request({ answer: { firstTokenMs: 4_000 } });
  for (const { minute } of [...apart, both]) await minute();
  const [fast, slow] = apart.map(({ figuresOf }) => figuresOf('demo', ''));
  const sum = together(fast!, slow!);
  assert.deepEqual(sum, both.figuresOf('demo', ''));
  const of = (share: number) => [fast!, slow!, sum].map(({ firstTokens }) => quantile(firstTokens, share));
  const [p50, p95] = [of(0.5), of(0.95)];
  assert.ok(p50[0] === p50[2]! - 3 || Math.abs(p50[0]! - p50[2]!) < 10, String(p50));
  assert.ok(p95[0]! <= 100 && p95[2]! > 2_500 && p95[2]! <= 5_000, String(p95));
});

test('quantiles are within the bucket that they are in', () => {
  assert.equal(quantile(noFigures.firstTokens, 0.5), null);
  assert.equal(quantile(bucket([0, 10]), 0.5), 13);
  assert.equal(quantile(bucket([0, 1], [3, 1]), 0.5), 25);
  assert.equal(quantile(bucket([0, 1], [3, 1]), 0.95), 235);
  assert.equal(quantile(bucket([11, 4]), 0.5), 60_000);
});

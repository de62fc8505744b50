/** A collector may be slow, away or wrong: what waits has a bound, nothing waits for it, and what is lost is counted. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';

import { Collector, type Exported } from '../../../src/platform/telemetry/collector.ts';
import { MetricsExporter } from '../../../src/platform/telemetry/metrics-exporter.ts';
import type { SpanRecord } from '../../../src/platform/telemetry/otlp-spans.ts';
import { SpanExporter, waitingBytesMax } from '../../../src/platform/telemetry/span-exporter.ts';
import { OtlpCollector } from '../../support/otlp-collector.ts';
import { until } from '../../support/service.ts';

const origin = { resource: [['service.name', 'test']], version: '1' } as const;
const trace = { traceId: '1'.repeat(32), spanId: '2'.repeat(16), flags: 1, state: undefined };
const spanOf = (name: string): SpanRecord => ({
  id: '2'.repeat(16),
  parentId: undefined,
  name,
  kind: 2,
  flags: 0x100,
  startedMs: 1.7e12,
  endedMs: 1.7e12,
  attributes: [],
  events: [],
  isError: false,
});

let server: OtlpCollector;
let collector: Collector;
let outcomes: Exported[];
beforeEach(async () => {
  server = await OtlpCollector.start();
  collector = new Collector({ url: server.url, headers: { authorization: 'a secret' }, version: '1' });
  outcomes = [];
});
afterEach(async () => {
  collector.close();
  await server.close();
});

const exporterTo = (to: Pick<Collector, 'post'>): SpanExporter =>
  new SpanExporter(to, origin, (exported) => void outcomes.push(exported));

describe('spans', () => {
  test('of many requests are sent together, each once, and the rest when the service stops', async () => {
    const exporter = exporterTo(collector);
    for (let index = 0; index < 100; index++) exporter.take(trace, [spanOf(`first ${index}`)]);
    await until(() => server.spans.length === 100);
    assert.equal(server.posts.length, 1);
    exporter.take(trace, [spanOf('last')]);
    await exporter.close(5_000);
    assert.deepEqual(
      server.spans.map(({ name }) => name),
      [...Array.from({ length: 100 }, (_, index) => `first ${index}`), 'last'],
    );
    assert.deepEqual(exporter.counts, { sent: 101, dropped: 0 });
    exporter.take(trace, [spanOf('late')]);
    assert.deepEqual(exporter.counts, { sent: 101, dropped: 1 });
  });

  test('fill the memory up to a bound when the collector hangs, and closing takes as long as it may', async () => {
    server.behaviour = () => {};
    const exporter = exporterTo(collector);
    const span = spanOf('x'.repeat(1_000));
    // Its name and 60 bytes beside it.
    const most = Math.ceil(waitingBytesMax / 1_060);
    for (let index = 0; index < 3 * most; index++) exporter.take(trace, [span]);
    const { sent, dropped } = exporter.counts;
    assert.equal(sent, 0);
    assert.ok(dropped >= 1.9 * most && dropped < 2.1 * most, `${dropped} of ${3 * most}`);
    await until(() => server.begun > 0);
    const startedAt = performance.now();
    await exporter.close(300);
    const elapsedMs = performance.now() - startedAt;
    assert.ok(elapsedMs >= 290 && elapsedMs < 5_000, String(elapsedMs));
    collector.close();
    await until(() => exporter.counts.dropped === 3 * most);
    assert.equal(exporter.counts.sent, 0);
  });

  test('are sent in batches of a bounded size when they have waited', async () => {
    const bodies: number[] = [];
    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    const exporter = exporterTo({
      post: async (_path, body) => {
        bodies.push(body.length);
        await held;
        return { type: 'accepted', rejected: 0 };
      },
    });
    const span = spanOf('x'.repeat(1_000));
    for (let index = 0; index < 3_000; index++) exporter.take(trace, [span]);
    release();
    await exporter.close(5_000);
    assert.ok(bodies.length > 10 && bodies.every((length) => length <= 256 * 1024 + 1_000), bodies.join());
    assert.deepEqual(exporter.counts, { sent: 3_000, dropped: 0 });
  });

  test('reach a collector that has a name', async () => {
    const named = new Collector({ url: `http://localhost:${server.port}`, headers: {}, version: '1' });
    const exporter = exporterTo(named);
    exporter.take(trace, [spanOf('named')]);
    await exporter.close(10_000);
    named.close();
    assert.deepEqual(exporter.counts, { sent: 1, dropped: 0 });
  });

  test('are sent again when the collector says later, or is not there yet', async () => {
    const { port } = server;
    await server.close();
    const exporter = exporterTo(collector);
    exporter.take(trace, [spanOf('kept')]);
    await until(() => outcomes.length === 1);
    server = await OtlpCollector.start(port);
    server.behaviour = (_, response) => {
      server.behaviour = undefined;
      response.writeHead(503, { 'retry-after': '1' }).end('wait');
    };
    await until(() => server.spans.length === 1, 30_000);
    assert.deepEqual(
      outcomes.map((outcome) => ('reason' in outcome ? outcome.reason : outcome.type)),
      ['ECONNREFUSED', 'the collector answered 503', 'accepted'],
    );
    assert.deepEqual(exporter.counts, { sent: 1, dropped: 0 });
    await exporter.close(100);
  });

  for (const [status, headers] of [
    [400, {}],
    [401, {}],
    [413, {}],
    [500, {}],
    // It is followed nowhere, with the secret least of all.
    [302, { location: 'http://127.0.0.1:1/' }],
  ] as const)
    test(`are lost, and counted, when the collector answers ${status}`, async () => {
      server.behaviour = (_, response) => void response.writeHead(status, headers).end();
      const exporter = exporterTo(collector);
      exporter.take(trace, ['a', 'b', 'c'].map(spanOf));
      await until(() => exporter.counts.dropped === 3);
      assert.equal(server.begun, 1);
      assert.deepEqual(outcomes, [{ type: 'refused', reason: `the collector answered ${status}` }]);
      await exporter.close(100);
    });

  test('that a collector takes in part are counted as what became of them', async () => {
    server.behaviour = (_, response) => void response.writeHead(200).end(Buffer.from([0x0a, 2, 0x08, 2]));
    const exporter = exporterTo(collector);
    exporter.take(trace, [...'abcde'].map(spanOf));
    await until(() => exporter.counts.sent > 0);
    assert.deepEqual(exporter.counts, { sent: 3, dropped: 2 });
    await exporter.close(100);
  });

  test('an answer without an end is not read to its end', async () => {
    server.behaviour = (_, response) => {
      response.writeHead(200);
      const more = (): void => void (response.destroyed || (response.write(Buffer.alloc(65_536)), setImmediate(more)));
      more();
    };
    const exporter = exporterTo(collector);
    exporter.take(trace, [spanOf('taken')]);
    await until(() => exporter.counts.sent === 1);
    await exporter.close(100);
  });
});

describe('metrics', () => {
  test('are never sent twice at a time, and a collector that hangs does not hold up the end', async () => {
    server.behaviour = () => {};
    let reads = 0;
    const figures = () => {
      reads++;
      return [];
    };
    const exporter = new MetricsExporter({ collector, origin, everyMs: 5, figures, onOutcome: () => {} });
    await until(() => server.begun === 1);
    await exporter.close(200);
    assert.equal(reads, 1);
    assert.equal(server.begun, 1);
  });

  test('are sent a last time at the end', async () => {
    const onOutcome = (exported: Exported): void => void outcomes.push(exported);
    const exporter = new MetricsExporter({ collector, origin, everyMs: 3_600_000, figures: () => [], onOutcome });
    await exporter.close(5_000);
    assert.deepEqual(outcomes, [{ type: 'accepted', rejected: 0 }]);
    assert.equal(server.posts[0]!.path, '/v1/metrics');
  });
});

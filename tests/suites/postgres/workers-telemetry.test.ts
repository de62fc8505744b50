/** Workers send their own spans, and the parent the metrics of all of them; a collector's page is that of `/metrics`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseExposition } from '../../platform/metrics/exposition.ts';
import { OtlpCollector } from '../../support/otlp-collector.ts';
import { TestService, until } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../support/upstream.ts';
import { longMs, serving, workersOf } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

test('spans come from every worker, metrics from the parent, and the last of both when the service stops', async () => {
  const server = await PostgresServer.start({ fsync: 'off' });
  const collector = await OtlpCollector.start();
  const upstream = await Upstream.start((exchange) => {
    exchange.events();
    exchange.chunk(
      chatChunk({ content: 'a' }) +
        chatChunk({}, 'stop') +
        usageChunk({ prompt_tokens: 3, completion_tokens: 1 }) +
        event('[DONE]'),
    );
    exchange.endChunks();
  });
  const service = new TestService({
    workers: 2,
    database: await server.createDatabase(),
    // From the environment, as platforms give it.
    environment: {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-token=from%20the%20environment',
      OTEL_SERVICE_NAME: 'two-workers',
    },
    config: `telemetry: { metrics_interval_seconds: 1 }
models:
  - id: m
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]`,
  });
  try {
    await service.start();
    await serving(service, 2);
    const ask = async (): Promise<void> => {
      // A connection of its own: any worker may take it.
      const headers = { connection: 'close' };
      const answer = await service.chat({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] }, { headers });
      assert.equal(answer.status, 200, await answer.text());
    };
    const pids = (): ReadonlySet<unknown> => new Set(collector.spans.map(({ resource }) => resource['process.pid']));
    let requests = 0;
    await until(async () => {
      await Promise.all(Array.from({ length: 10 }, ask));
      requests += 10;
      return pids().size === 2;
    }, longMs);
    assert.deepEqual([...pids()].toSorted(), workersOf(service).toSorted());
    assert.ok(collector.spans.every(({ resource }) => resource['service.name'] === 'two-workers'));
    assert.ok(collector.posts.every(({ headers }) => headers['x-token'] === 'from the environment'));
    const figure = (name: string): readonly (readonly [object, number])[] => {
      const latest = collector.points.findLast((point) => point.name === name)?.atNs;
      return collector.points.flatMap((point) =>
        point.name === name && point.atNs === latest ? [[point.attributes, point.value] as const] : [],
      );
    };
    const answered = (): number => figure('tokenhouse_requests_total').reduce((sum, [, value]) => sum + value, 0);
    await until(() => answered() === requests, longMs);
    const page = parseExposition(await (await fetch(`${service.accountUrl}/metrics`)).text());
    assert.deepEqual(
      new Set(collector.points.map(({ name }) => name)),
      new Set([...page].filter(([, { samples }]) => samples.length > 0).map(([name]) => name)),
    );
    assert.deepEqual(
      figure('tokenhouse_requests_total'),
      page.get('tokenhouse_requests_total')!.samples.map(({ labels, value }) => [labels, value]),
    );
    assert.equal(new Set(collector.points.map(({ resource }) => resource['process.pid'])).size, 1);
    assert.equal(collector.points[0]!.resource['process.pid'], service.pid);
    await ask();
    assert.equal(await service.stop(), 0);
    assert.equal(collector.spans.filter(({ kind }) => kind === 2).length, requests + 1);
  } finally {
    await service.dispose();
    await Promise.all([upstream.close(), collector.close(), server.dispose()]);
  }
});

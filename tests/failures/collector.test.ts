/** A collector that is away, hangs, is slow or fails changes nothing for clients, and holds up the end of the service for seconds at most. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseExposition, total } from '../platform/metrics/exposition.ts';
import { slowness } from '../support/busy.ts';
import { OtlpCollector, type Behaviour } from '../support/otlp-collector.ts';
import { InnerService, scriptedModel, until } from '../support/service.ts';

const atOnce = 25;
/** Spans of so many requests fill what may wait for a collector, 4 MiB. */
const requestsThatFill = 3_300;

const faults: Readonly<Record<string, { readonly behaviour: Behaviour | 'away'; readonly requests: number }>> = {
  'is away': { behaviour: 'away', requests: 100 },
  hangs: { behaviour: () => {}, requests: requestsThatFill },
  'answers after a second': {
    behaviour: (_, response) => void setTimeout(() => response.writeHead(200).end(), 1_000),
    requests: 100,
  },
  'answers 503': { behaviour: (_, response) => void response.writeHead(503).end(), requests: 100 },
  'answers what is no message': { behaviour: (_, response) => void response.end('x'.repeat(1_000_000)), requests: 100 },
};

for (const [name, { behaviour, requests }] of Object.entries(faults))
  test(`a collector that ${name}`, { timeout: 120_000 * slowness }, async () => {
    const collector = await OtlpCollector.start();
    const { url } = collector;
    if (behaviour === 'away') await collector.close();
    else collector.behaviour = behaviour;
    const service = await new InnerService({
      config: `telemetry: { endpoint: "${url}", metrics_interval_seconds: 1 }\n${scriptedModel('- say: [ { text: "hello" } ]')}`,
    }).start();
    try {
      const figure = async (metric: string, labels: Readonly<Record<string, string>>): Promise<number> =>
        total(parseExposition(await (await fetch(`${service.accountUrl}/metrics`)).text()), metric, labels);
      const ask = async (index: number): Promise<void> => {
        const stream = index % 2 === 0;
        const answer = await service.chat({ model: 'demo', stream, messages: [{ role: 'user', content: 'Hi' }] });
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.match(text, stream ? /hello[^]*data: \[DONE\]/ : /"content":"hello"/);
      };
      let next = 0;
      const asking = async (): Promise<void> => {
        while (next < requests) await ask(next++);
      };
      await Promise.all(Array.from({ length: atOnce }, asking));
      if (requests === requestsThatFill)
        assert.ok((await figure('tokenhouse_telemetry_spans_total', { outcome: 'dropped' })) > 0);
      if (name === 'is away' || name === 'answers 503')
        for (const signal of ['traces', 'metrics'])
          await until(async () => (await figure('tokenhouse_telemetry_failures_total', { signal })) > 0);
      const failing = service.log.filter(({ event }) => event === 'telemetry_failing');
      assert.ok(failing.length <= 2, 'once for traces, once for metrics');
      const startedAt = performance.now();
      await service.stop();
      const elapsedMs = performance.now() - startedAt;
      assert.ok(elapsedMs < 10_000 * slowness, `${elapsedMs} ms`);
      await service.verify();
    } finally {
      await service.dispose();
      if (behaviour !== 'away') await collector.close();
    }
  });

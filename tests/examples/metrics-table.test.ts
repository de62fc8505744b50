/** The table of metrics in docs/metrics.md is the code's. `WRITE=1` writes it. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';

import { ServiceMetrics } from '../../src/platform/metrics/service-metrics.ts';
import { inRepository } from '../support/repository.ts';

const file = inRepository('docs/metrics.md');

test('docs/metrics.md has every metric with its labels and meaning, and no other', () => {
  const none = () => 0;
  const { descriptions } = new ServiceMetrics({
    version: '',
    process: { delay: { p50: 0, p99: 0, max: 0 }, utilization: 0, openFiles: 0, stop: () => {} },
    requestsRunning: none,
    openHolds: none,
    heldMicrocents: () => 0n,
    settlementsWaiting: none,
    bodyBytes: none,
    work: () => [],
    sockets: () => ({ inference: 0, account: 0 }),
    logLinesDropped: none,
    telemetry: () => ({ spans: { sent: 0, dropped: 0 }, failures: { traces: 0, metrics: 0 } }),
    peerReports: () => ({ sent: 0, heard: 0 }),
    backends: () => [],
    models: () => [],
    config: () => ({ version: 1, failures: 0, lastSuccess: true, leaving: 0 }),
    workers: () => 1,
    workersEnded: none,
    jobs: () => [],
    sources: () => [],
  });
  const rows = descriptions.map(
    ({ name, type, labels, help }) =>
      `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ') || '–'} | ${help} |`,
  );
  const table = ['| metric | type | labels | what it is |', '|-|-|-|-|', ...rows].join('\n');
  const document = readFileSync(file, 'utf8');
  const between = /(<!-- metrics -->\n)([^]*?)(\n?<!-- \/metrics -->)/.exec(document);
  assert.ok(between);
  if (process.env['WRITE'] === '1') {
    writeFileSync(
      file,
      document.replace(between[0], () => `<!-- metrics -->\n${table}\n<!-- /metrics -->`),
    );
    return;
  }
  assert.equal(between[2], table);
});

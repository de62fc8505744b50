/** What the page of the system says an operator has to do something about. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { findingsOf } from '../../web/src/pages/operator-system/findings.ts';

const well: Parameters<typeof findingsOf>[0] = {
  configuration: { file: null, version: 1, is_in_force: true, failures: 0 },
  stores: {
    database: 'sqlite',
    database_location: 'data/tokenhouse.db',
    database_bytes: 1000,
    free_bytes: 5_000_000_000,
    files: 'data',
  },
  jobs: [{ name: 'alerts', last_success_at: 1, failures: 0 }],
  workers_ended: 0,
  log_lines_dropped: 0,
};
const backend = (model: string, name: string, state: 'ready' | 'failed' | 'starting' = 'ready', ejected = false) => ({
  model,
  name,
  state,
  ejected,
  worse: null as Parameters<typeof findingsOf>[1][number]['worse'],
});
const texts = (system: typeof well, backends: Parameters<typeof findingsOf>[1]): readonly string[] =>
  findingsOf(system, backends, []).map(({ text }) => text);

test('nothing is found where everything is well, or is only starting', () => {
  assert.deepEqual(texts(well, [backend('a', '1'), backend('b', '1', 'starting')]), []);
  assert.deepEqual(texts({ ...well, stores: { ...well.stores, free_bytes: null } }, []), []);
});

test('a model without a backend is one finding, and a failing backend of one that is served another', () => {
  const backends = [
    backend('a', '1', 'failed'),
    backend('a', '2', 'failed', true),
    backend('b', '1', 'ready', true),
    backend('b', '2'),
  ];
  const worse = { by: 'calls', since: 1, failure_share: 0.2, peers_failure_share: 0 } as const;
  const found = findingsOf(well, [...backends, { ...backend('b', '3'), worse }], []);
  assert.deepEqual(found, [
    { text: 'findUnserved', values: { model: 'a' } },
    { text: 'findBackend', values: { model: 'b', name: '1' } },
    { text: 'findWorse', values: { model: 'b', name: '3' } },
  ]);
});

test('a source of backends that cannot be read is found, with its problem; one that is read is not', () => {
  const sources = [
    { model: 'a', name: 'gpu', problem: 'fleet.yaml: there is no such file' },
    { model: 'a', name: 'other', problem: null },
  ];
  assert.deepEqual(findingsOf(well, [backend('a', '1')], sources), [{ text: 'findSource', values: sources[0] }]);
});

test('each fault of the service is found', () => {
  const table: readonly (readonly [Partial<typeof well>, string])[] = [
    [{ stores: { ...well.stores, free_bytes: 999_999_999 } }, 'findDisk'],
    [{ configuration: { ...well.configuration, is_in_force: false } }, 'findConfiguration'],
    [{ jobs: [{ name: 'alerts', last_success_at: null, failures: 2 }] }, 'findJob'],
    [{ workers_ended: 1 }, 'findWorkers'],
    [{ log_lines_dropped: 1 }, 'findLog'],
  ];
  for (const [fault, text] of table) assert.deepEqual(texts({ ...well, ...fault }, []), [text]);
});

/** Endpoints of a Kubernetes service, from a server of the test's own that speaks the protocol of the API. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import type { KubernetesDiscovery } from '../../../src/config/config.ts';
import { openKubernetes } from '../../../src/inference/discovery/kubernetes.ts';
import { eventually } from '../../support/upstream.ts';
import { KubeApi } from './kube-api.ts';
import { Reports } from './reader.ts';

async function scene(t: TestContext, more: Partial<KubernetesDiscovery> = {}) {
  const api = await KubeApi.start();
  t.after(() => api.close());
  const open = () => {
    const reports = new Reports();
    const settings: KubernetesDiscovery = {
      ...{ by: 'kubernetes', maxBackends: 256, warmUp: true, emptyAfterMs: undefined, service: 'vllm' },
      ...{ namespace: undefined, portName: undefined, apiUrl: api.url, credentialsDirectory: api.credentials },
      ...more,
    };
    const source = openKubernetes('http://vllm/v1', settings, reports);
    t.after(() => source.close());
    return { reports, source };
  };
  return { api, open };
}

const at = (...numbers: readonly number[]): readonly string[] => numbers.map((n) => `http://10.0.0.${n}:8000/v1`);
const pods = (...numbers: readonly number[]) => numbers.map((n) => ({ address: `10.0.0.${n}` }));

test('ready endpoints of all pages are servers, and each event of the watch changes them at once', async (t) => {
  const { api, open } = await scene(t);
  api.pageLength = 2;
  for (let n = 1; n <= 5; n++) api.set({ name: `vllm-${n}`, endpoints: pods(n) });
  const { reports } = open();
  await eventually('the list', () => reports.urls.length === 5 && api.watching === 1);
  assert.deepEqual(reports.urls, at(1, 2, 3, 4, 5));
  assert.equal(api.count('list'), 3);
  api.set({ name: 'vllm-6', endpoints: pods(6, 7) });
  await eventually('two more', () => reports.urls.length === 7);
  api.set({ name: 'vllm-6', endpoints: [{ address: '10.0.0.6', ready: false }, ...pods(7)] });
  await eventually('one is not ready', () => reports.urls.length === 6);
  api.delete('vllm-1');
  await eventually('one is gone', () => reports.urls.length === 5);
  api.bookmark();
  api.set({
    name: 'vllm-7',
    endpoints: [
      { address: '10.0.0.9', ready: true, terminating: true },
      { address: '10.0.0.8', ready: null },
    ],
  });
  await eventually('an unknown state is ready, a pod that ends is not', () => reports.urls.length === 6);
  assert.deepEqual(reports.urls, at(2, 3, 4, 5, 7, 8));
  assert.deepEqual(reports.problems, []);
  assert.equal(api.count('list'), 3, 'everything else came over one watch');
  assert.equal(api.count('watch'), 1);
  assert.equal(api.requests.at(-1)!.url.searchParams.get('allowWatchBookmarks'), 'true');
});

test('a watch that ends, by its time or by the network, goes on from the last version, without a list', async (t) => {
  const { api, open } = await scene(t);
  api.set({ name: 'vllm-1', endpoints: pods(1) });
  const { reports } = open();
  await eventually('a watch', () => api.watching === 1);
  api.bookmark();
  api.set({ name: 'vllm-2', endpoints: pods(2) });
  await eventually('an event', () => reports.urls.length === 2);
  for (const isCut of [false, true]) {
    const watches = api.count('watch');
    api.endWatches({ isCut });
    await eventually('another watch', () => api.count('watch') > watches && api.watching === 1, 10_000);
  }
  assert.equal(api.count('list'), 1);
  const [first, ...later] = api.requests.filter(({ kind }) => kind === 'watch');
  assert.equal(first!.url.searchParams.get('resourceVersion'), '101');
  for (const { url } of later) assert.equal(url.searchParams.get('resourceVersion'), '103');
  api.set({ name: 'vllm-3', endpoints: pods(3) });
  await eventually('an event', () => reports.urls.length === 3);
});

for (const way of ['as a status', 'as an event'] as const) {
  test(`a version that is gone (410 ${way}) begins with a list, which has what was missed`, async (t) => {
    const { api, open } = await scene(t);
    api.set({ name: 'vllm-1', endpoints: pods(1) });
    const { reports } = open();
    await eventually('a watch', () => api.watching === 1);
    api.set({ name: 'vllm-2', endpoints: pods(2) }, { isSilent: true });
    api.delete('vllm-1', { isSilent: true });
    if (way === 'as a status') {
      api.oldestVersion = 103;
      api.endWatches();
    } else {
      api.send({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired', message: 'too old' } });
    }
    await eventually('what was missed', () => reports.urls.join() === at(2).join(), 10_000);
    assert.equal(api.count('list'), 2);
    assert.deepEqual(reports.problems, []);
  });
}

test('failures are told in words without the texts of the API, repeat at growing distances, and end by themselves', async (t) => {
  const { api, open } = await scene(t);
  api.set({ name: 'vllm-1', endpoints: pods(1) });
  api.fails = 403;
  const { reports } = open();
  await eventually('two failures', () => reports.problems.length >= 2, 10_000);
  assert.match(reports.problems[0]!, /may not list and watch endpointslices \(403\); give it a Role/);
  assert.ok(!reports.problems.join().includes('secret'));
  api.fails = undefined;
  await eventually('a list', () => reports.urls.length === 1 && api.watching === 1, 10_000);
  api.fails = 500;
  const before = reports.problems.length;
  api.endWatches();
  await eventually('a failure', () => reports.problems.length > before, 10_000);
  assert.equal(reports.problems.at(-1), 'the Kubernetes API answers with status 500');
  assert.deepEqual(reports.urls, at(1), 'the last list stays');
  const lists = reports.lists.length;
  api.fails = undefined;
  await eventually('it is told that all is well again', () => reports.lists.length > lists, 20_000);
});

test('the token is read again for each connection, so one that Kubernetes renews goes on', async (t) => {
  const { api, open } = await scene(t);
  api.set({ name: 'vllm-1', endpoints: pods(1) });
  const { reports } = open();
  await eventually('a watch', () => api.watching === 1);
  api.token = 'token-2';
  api.writeCredentials();
  api.endWatches();
  await eventually('another watch', () => api.count('watch') === 2 && api.watching === 1, 10_000);
  assert.deepEqual(
    api.requests.map(({ token }) => token),
    ['token-1', 'token-1', 'token-2'],
  );
  assert.deepEqual(reports.problems, []);
});

test('a server of another authority gets no token', async (t) => {
  const { api, open } = await scene(t);
  const own = (await import('node:tls')).rootCertificates[0]!;
  api.writeCredentials(own);
  const { reports } = open();
  await eventually('a failure', () => reports.problems.length > 0, 10_000);
  assert.match(reports.problems[0]!, /the Kubernetes API cannot be asked: .*(UNABLE|SELF_SIGNED)/);
  assert.equal(api.requests.length, 0);
});

test('ports: the only one, or the one that is named; neither a list of several nor one of another protocol', async (t) => {
  const { api, open } = await scene(t);
  const udp = { name: 'dns', port: 53, protocol: 'UDP' };
  api.set({ name: 'a', endpoints: pods(1), ports: [udp, { name: 'http', port: 9000 }] });
  const { reports } = open();
  await eventually('a list', () => reports.lists.length > 0);
  assert.deepEqual(reports.urls, ['http://10.0.0.1:9000/v1']);
  api.set({
    name: 'a',
    endpoints: pods(1),
    ports: [
      { name: 'http', port: 9000 },
      { name: 'metrics', port: 9001 },
    ],
  });
  await eventually('a fault', () => reports.problems.length > 0);
  assert.match(reports.problems[0]!, /several ports \(http, metrics\); name one as discover\.port/);
  const named = await scene(t, { portName: 'metrics' });
  named.api.set({
    name: 'a',
    endpoints: pods(1),
    ports: [
      { name: 'http', port: 9000 },
      { name: 'metrics', port: 9001 },
    ],
  });
  const other = named.open();
  await eventually('a list', () => other.reports.lists.length > 0);
  assert.deepEqual(other.reports.urls, ['http://10.0.0.1:9001/v1']);
});

test('a service with both kinds of addresses has each pod once; what no server can have is left out', async (t) => {
  const { api, open } = await scene(t);
  api.set({ name: 'six', type: 'IPv6', endpoints: [{ address: 'fd00::1' }] });
  const { reports } = open();
  await eventually('IPv6 alone', () => reports.urls.join() === 'http://[fd00::1]:8000/v1');
  api.set({
    name: 'four',
    endpoints: [
      ...pods(1),
      ...['169.254.169.254', '0.0.0.0', 'not-an-address', '10.0.0.1 '].map((address) => ({ address })),
    ],
  });
  await eventually('IPv4', () => reports.urls.join() === at(1).join());
  api.set({ name: 'name', type: 'FQDN', endpoints: [{ address: 'other.test' }] });
  api.set({ name: 'more', endpoints: pods(2) });
  await eventually('no names', () => reports.urls.join() === at(1, 2).join());
});

test('whatever a watch sends: it is cut anywhere, has fields of any type, and never ends the source', async (t) => {
  const { api, open } = await scene(t);
  api.set({ name: 'a', endpoints: pods(1) });
  const { reports } = open();
  await eventually('a watch', () => api.watching === 1);
  for (const event of [
    null,
    1,
    [],
    { type: 'ADDED' },
    { type: 'ADDED', object: null },
    { type: 'MODIFIED', object: { metadata: { name: 7 } } },
    {
      type: 'ADDED',
      object: { metadata: { name: 'x' }, addressType: 'IPv4', endpoints: [null, 1, { addresses: 'no' }] },
    },
    { type: 'ADDED', object: { metadata: { name: '__proto__' }, addressType: 'IPv4', ports: [{ port: 99_999 }] } },
    { type: 'DELETED', object: { metadata: { name: 'nothing' } } },
    { type: 'OTHER', object: { metadata: { name: 'a' } } },
  ])
    api.send(event);
  const text = JSON.stringify({
    type: 'ADDED',
    object: {
      metadata: { name: 'ü', resourceVersion: '500' },
      addressType: 'IPv4',
      endpoints: [{ addresses: ['10.0.0.2'] }],
      ports: [{ port: 8000 }],
    },
  });
  for (const byte of Buffer.from(`\r\n${text}\n`)) api.write(String.fromCharCode(byte));
  await eventually('the event in pieces', () => reports.urls.join() === at(1, 2).join());
  assert.deepEqual(reports.problems, []);
  api.write('{ not json }\n');
  await eventually('a fault', () => reports.problems.length === 1, 10_000);
  assert.match(reports.problems[0]!, /something else than JSON/);
  await eventually('another watch', () => api.count('watch') === 2 && api.watching === 1, 10_000);
});

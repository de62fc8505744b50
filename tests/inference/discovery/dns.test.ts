/** Addresses of a name, from a name server of the test's own. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import type { DnsDiscovery } from '../../../src/config/config.ts';
import { openDns } from '../../../src/inference/discovery/dns.ts';
import { DnsServer, type DnsZone } from '../../support/dns-server.ts';
import { eventually } from '../../support/upstream.ts';
import { Reports } from './reader.ts';

async function scene(
  t: TestContext,
  zone: DnsZone,
  {
    by = 'dns',
    ttlSeconds = 0,
    url = 'http://gpu.test:8000/v1',
    ...more
  }: Partial<DnsDiscovery> & {
    readonly ttlSeconds?: number;
    readonly url?: string;
  } = {},
) {
  const server = await DnsServer.start(zone, { ttlSeconds });
  const reports = new Reports();
  const settings = { by, maxBackends: 256, warmUp: true, emptyAfterMs: undefined, ttlMinMs: 20, ttlMaxMs: 30_000 };
  const source = openDns(url, { ...settings, dnsServers: [server.address], ...more }, reports);
  t.after(async () => {
    source.close();
    await server.close();
  });
  return { server, reports, source };
}

test('each address of both kinds is a server with the scheme, port and path of the url, known by its name', async (t) => {
  const { reports } = await scene(t, (name, type) => {
    assert.equal(name, 'gpu.test');
    return type === 'A' ? ['A 10.0.0.2', 'A 10.0.0.1'] : ['AAAA fd00::7'];
  });
  await eventually('a list', () => reports.lists.length > 0);
  assert.deepEqual(reports.lists[0], [
    { url: 'http://10.0.0.1:8000/v1', serverName: 'gpu.test' },
    { url: 'http://10.0.0.2:8000/v1', serverName: 'gpu.test' },
    { url: 'http://[fd00::7]:8000/v1', serverName: 'gpu.test' },
  ]);
  assert.deepEqual(reports.problems, []);
});

test('a name is asked for again when its TTL is over, within the bounds', async (t) => {
  const zone: DnsZone = (_name, type, query) => (type === 'A' ? [`A 10.0.0.${query + 1}`] : []);
  const short = await scene(t, zone, { ttlSeconds: 0, ttlMinMs: 50 });
  const long = await scene(t, zone, { ttlSeconds: 3_600, ttlMaxMs: 60 });
  const kept = await scene(t, zone, { ttlSeconds: 3_600 });
  const startMs = performance.now();
  await eventually('four lists', () => short.reports.lists.length >= 4 && long.reports.lists.length >= 4);
  assert.ok(performance.now() - startMs >= 150, 'not more often than the shortest time');
  assert.deepEqual(short.reports.lists[3], [{ url: 'http://10.0.0.4:8000/v1', serverName: 'gpu.test' }]);
  assert.equal(kept.reports.lists.length, 1, 'an hour is not over');
});

test('an answer that UDP cannot carry is read over TCP', async (t) => {
  const addresses = Array.from({ length: 200 }, (_, index) => `A 10.1.${index >> 6}.${(index & 63) + 1}` as const);
  const { server, reports } = await scene(t, (_name, type) => (type === 'A' ? addresses : []));
  await eventually('a list', () => reports.lists.length > 0);
  assert.equal(reports.urls.length, 200);
  assert.ok(server.truncated > 0 && server.tcpQueries > 0);
});

test('no server, no address that a server can have, and a name that does not exist are answers; SERVFAIL is a failure', async (t) => {
  let records: ReturnType<DnsZone> = ['A 10.0.0.1'];
  const { reports } = await scene(t, (_name, type) => (records === 'fails' || type === 'A' ? records : []));
  await eventually('a list', () => reports.urls.length === 1);
  records = 'fails';
  await eventually('a failure', () => reports.problems.length > 0);
  assert.match(reports.problems[0]!, /^the name server does not answer for gpu\.test: ESERVFAIL$/);
  assert.equal(reports.urls.length, 1);
  records = ['A 0.0.0.0', 'A 169.254.169.254', 'A 224.0.0.1', 'A 255.255.255.255', 'A 10.0.0.9'];
  await eventually('the possible one', () => reports.urls.join() === 'http://10.0.0.9:8000/v1');
  records = [];
  await eventually('nothing', () => reports.lists.at(-1)!.length === 0);
});

test('where one kind of address fails now, those of it that were known stay', async (t) => {
  let six: ReturnType<DnsZone> = 'fails';
  let four = 1;
  const { reports } = await scene(t, (_name, type) => (type === 'A' ? [`A 10.0.0.${four}`] : six));
  await eventually('a list without the other kind', () => reports.urls.join() === 'http://10.0.0.1:8000/v1');
  six = ['AAAA fd00::1'];
  await eventually('both', () => reports.urls.length === 2);
  six = 'fails';
  four = 2;
  await eventually('a new and a known one', () => reports.urls.includes('http://10.0.0.2:8000/v1'));
  assert.deepEqual(reports.urls, ['http://10.0.0.2:8000/v1', 'http://[fd00::1]:8000/v1']);
});

test('SRV records: the port is theirs, the priority a rank, the weight a weight', async (t) => {
  const { reports } = await scene(
    t,
    (name, type) => {
      if (type === 'SRV')
        return name === '_vllm._tcp.test'
          ? ['SRV 20 10 8001 b.test', 'SRV 10 50 8000 a.test', 'SRV 10 100 9000 a.test']
          : [];
      if (type === 'AAAA') return [];
      return name === 'a.test' ? ['A 10.0.0.1'] : ['A 10.0.0.2', 'A 10.0.0.3'];
    },
    { by: 'srv', url: 'https://_vllm._tcp.test/v1' },
  );
  await eventually('a list', () => reports.lists.length > 0);
  assert.deepEqual(reports.lists[0], [
    { url: 'https://10.0.0.1:8000/v1', serverName: 'a.test', rank: 1, weight: 0.5 },
    { url: 'https://10.0.0.1:9000/v1', serverName: 'a.test', rank: 1, weight: 1 },
    { url: 'https://10.0.0.2:8001/v1', serverName: 'b.test', rank: 2, weight: 0.1 },
    { url: 'https://10.0.0.3:8001/v1', serverName: 'b.test', rank: 2, weight: 0.1 },
  ]);
});

test('a source that is closed asks no more and reports nothing, even what it has asked for', async (t) => {
  const { server, reports, source } = await scene(t, () => 'silent');
  await eventually('a question', () => server.queries.length > 0);
  source.close();
  const { length } = server.queries;
  const other = await scene(t, (_name, type) => (type === 'A' ? ['A 10.0.0.1'] : []));
  await eventually('another asks ten times', () => other.server.queries.length > 20);
  assert.equal(server.queries.length, length);
  assert.deepEqual([reports.lists, reports.problems], [[], []]);
});

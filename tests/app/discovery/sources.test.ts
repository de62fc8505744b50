/** Backends come and go while the service runs: from a file, from DNS, from Kubernetes, and as operators say. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { KubeApi } from '../../inference/discovery/kube-api.ts';
import { parseExposition } from '../../platform/metrics/exposition.ts';
import { DnsServer } from '../../support/dns-server.ts';
import { InnerService, until, type TestService } from '../../support/service.ts';
import { addAndRemove } from './add-and-remove.ts';
import { answeredBy, modelOf, request, Server, serversFor } from './scene.ts';

async function started(t: TestContext, config: string, prepare: (service: InnerService) => void = () => {}) {
  const service = new InnerService({ config });
  t.after(() => service.dispose());
  prepare(service);
  await service.start();
  return service;
}

const listFile = (service: TestService): string => join(service.folder, 'backends.yaml');
const write = (service: TestService, ...servers: readonly { readonly url: string }[]): void =>
  writeFileSync(listFile(service), JSON.stringify(servers.map(({ url }) => url)));
const events = (service: TestService, name: string) => service.log.filter(({ event }) => event === name);

const fromFile = modelOf('{ engine: openai, name: gpu, flavor: vllm, discover: { by: file, path: backends.yaml } }');

test('under load servers leave and join, all of them at last, and no request fails', async (t) => {
  const servers = await serversFor(t, 'a', 'b', 'c', 'd');
  const [a, b, c, d] = servers as [Server, Server, Server, Server];
  const service = await started(t, fromFile, (each) => write(each, a, b));
  let over = false;
  const answers = new Map<string, number>();
  const load = Promise.all(
    Array.from({ length: 8 }, async () => {
      while (!over) {
        const name = await answeredBy(service);
        answers.set(name, (answers.get(name) ?? 0) + 1);
      }
    }),
  );
  const served = (name: string): number => answers.get(name) ?? 0;
  load.catch(() => (over = true));
  const whileLoaded = (condition: () => boolean): Promise<void> => until(() => over || condition());
  await whileLoaded(() => served('a') > 20 && served('b') > 20);
  write(service, a, b, c);
  await whileLoaded(() => served('c') > 20);
  write(service, a, c);
  await whileLoaded(() => events(service, 'backends_changed').some(({ changes }) => /removed/.test(String(changes))));
  // What was on its way there is answered, and then it is gone for good.
  await whileLoaded(() => b.upstream.open === 0);
  await b.upstream.close();
  write(service, d);
  await whileLoaded(() => served('d') > 50 && a.upstream.open === 0 && c.upstream.open === 0);
  over = true;
  await load;
  assert.equal(answers.size, 4);
  for (const { name, warmUps, early } of servers) assert.deepEqual([name, warmUps, early], [name, 1, 0]);
  await service.verify();
});

test('a request that runs at a server that leaves ends there; those that wait go to a server that joins', async (t) => {
  const servers = await serversFor(t, 'a', 'b');
  const [a, b] = servers as [Server, Server];
  const service = await started(
    t,
    modelOf('{ engine: openai, flavor: vllm, max_concurrency: 2, discover: { by: file, path: backends.yaml } }'),
    (each) => write(each, a),
  );
  a.isHeld = true;
  const running = [answeredBy(service), answeredBy(service)];
  await until(() => a.held.length === 2);
  const waiting = [answeredBy(service), answeredBy(service)];
  await until(async () => (await metric(service, 'tokenhouse_model_waiting')) === 2);
  write(service, b);
  assert.deepEqual(await Promise.all(waiting), ['b', 'b']);
  assert.equal(await metric(service, 'tokenhouse_backends_leaving'), 1);
  a.free();
  assert.deepEqual(await Promise.all(running), ['a', 'a']);
  await until(() => a.upstream.open === 0);
  assert.equal(await metric(service, 'tokenhouse_backends_leaving'), 0);
});

async function metric(service: TestService, name: string, labels: Readonly<Record<string, string>> = {}) {
  const text = await (await fetch(`${service.accountUrl}/metrics`)).text();
  const found = (parseExposition(text).get(name)?.samples ?? []).filter((sample) =>
    Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  );
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}

test('a server that does not answer joins when it does; a source that fails keeps its servers, and everything says so', async (t) => {
  const servers = await serversFor(t, 'a', 'b');
  const [a, b] = servers as [Server, Server];
  b.fails = true;
  const service = await started(t, fromFile, (each) => write(each, a, b));
  assert.equal(await answeredBy(service), 'a');
  await until(() => events(service, 'source_server_waits').length === 1);
  assert.match(String(events(service, 'source_server_waits')[0]!['problem']), /does not answer a short request/);
  const inUse = () => metric(service, 'tokenhouse_source_backends', { state: 'in_use' });
  assert.deepEqual([await inUse(), await metric(service, 'tokenhouse_source_backends', { state: 'waiting' })], [1, 1]);
  assert.equal(await metric(service, 'tokenhouse_source_problem'), 1);
  b.fails = false;
  await until(async () => (await inUse()) === 2, 20_000);
  assert.equal(await metric(service, 'tokenhouse_source_problem'), 0);
  assert.equal(events(service, 'source_server_joined').length, 1);

  writeFileSync(listFile(service), '["http://10.0.0.1:8000/v1", ');
  await until(() => events(service, 'source_failed').length === 1);
  assert.equal(await inUse(), 2);
  assert.equal(await metric(service, 'tokenhouse_source_problem'), 1);
  assert.equal(await metric(service, 'tokenhouse_source_failures_total'), 1);
  assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
  assert.match(await answeredBy(service), /^[ab]$/);
  write(service, a, b);
  await until(async () => (await metric(service, 'tokenhouse_source_problem')) === 0);
  writeFileSync(listFile(service), '[]');
  await until(async () => (await inUse()) === 0);
  assert.equal((await service.chat(request)).status, 503);
  assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
  await service.verify();
});

test('a reload keeps the servers of a source whose template changes, and refuses one that would leave a model without any', async (t) => {
  const servers = await serversFor(t, 'a');
  const [a] = servers as [Server];
  const service = await started(t, fromFile, (each) => write(each, a));
  assert.equal(await answeredBy(service), 'a');
  const before = a.upstream.exchanges.length;
  service.configure({ config: fromFile.replace('flavor: vllm', 'flavor: vllm, api_key: sk-2') });
  await until(() => events(service, 'config_reloaded').length === 1);
  assert.equal(await answeredBy(service), 'a');
  assert.equal(a.upstream.exchanges.at(-1)!.headers.get('authorization'), 'Bearer sk-2');
  assert.ok(a.upstream.exchanges.length > before);
  service.configure({ config: fromFile.replace('backends.yaml', 'nothing.yaml') });
  await until(() => events(service, 'config_refused').length === 1, 20_000);
  assert.match(String(events(service, 'config_refused')[0]!['what']), /its new source has no server .* ENOENT/);
  assert.equal(await answeredBy(service), 'a');
});

test('DNS: a server joins and leaves with its address; an answer without any is taken for a fault until it has lasted', async (t) => {
  // A name has one port for all of its addresses: one that is free at the first is so at the second, which nothing else uses.
  const one = await Server.start('one', { host: '127.0.0.1' });
  const { port } = one.upstream;
  const two = await Server.start('two', { host: '127.0.0.2', port });
  let addresses = ['A 127.0.0.1'] as `A ${string}`[];
  const dns = await DnsServer.start((_name, type) => (type === 'A' ? addresses : []));
  t.after(() => Promise.all([one.upstream.close(), two.upstream.close(), dns.close()]));
  const discover = `{ by: dns, dns_servers: ["${dns.address}"], ttl_min_seconds: 0.1, empty_after_seconds: 2 }`;
  const service = await started(
    t,
    modelOf(`{ engine: openai, flavor: vllm, url: "http://gpu.test:${port}/v1", discover: ${discover} }`),
  );
  assert.equal(await answeredBy(service), 'one');
  assert.equal(one.upstream.exchanges.at(-1)!.headers.get('host'), `gpu.test:${port}`);
  addresses = ['A 127.0.0.1', 'A 127.0.0.2'];
  await until(async () => (await answeredBy(service)) === 'two');
  addresses = ['A 127.0.0.2'];
  await until(() => one.upstream.open === 0);
  assert.equal(await answeredBy(service), 'two');
  addresses = [];
  await until(() => events(service, 'source_failed').length === 1);
  assert.match(String(events(service, 'source_failed')[0]!['problem']), /names no server, which is taken for a fault/);
  assert.equal(await answeredBy(service), 'two');
  await until(async () => (await service.chat(request)).status === 503, 20_000);
});

test('Kubernetes: pods join and leave as the EndpointSlices of their service say', async (t) => {
  const api = await KubeApi.start();
  const servers = await Promise.all(
    [1, 2].map(async (n) => await Server.start(`pod-${n}`, { host: `127.0.0.${n}`, port: 0 })),
  );
  t.after(async () => {
    await Promise.all(servers.map(({ upstream }) => upstream.close()));
    await api.close();
  });
  const slice = (n: number) => ({
    name: `vllm-${n}`,
    endpoints: [{ address: `127.0.0.${n}` }],
    ports: [{ name: 'http', port: servers[n - 1]!.upstream.port }],
  });
  api.set(slice(1));
  const discover = `{ by: kubernetes, service: vllm, api_url: "${api.url}", credentials_directory: "${api.credentials}" }`;
  const service = await started(
    t,
    modelOf(`{ engine: openai, name: gpu, flavor: vllm, url: http://vllm/v1, discover: ${discover} }`),
  );
  assert.equal(await answeredBy(service), 'pod-1');
  api.set(slice(2));
  await until(async () => (await answeredBy(service)) === 'pod-2');
  api.delete('vllm-1');
  await until(() => servers[0]!.upstream.open === 0);
  assert.equal(await answeredBy(service), 'pod-2');
});

test('what an operator adds is in use at once, and after a restart; what is removed is drained', (t) =>
  addAndRemove(t));

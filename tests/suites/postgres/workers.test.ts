/**
 * `server.workers`: each worker is a replica, and the parent one that answers no requests. They are one service: what is changed holds
 * at all of them, and what they say of themselves is the whole.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';

import { total } from '../../platform/metrics/exposition.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient } from '../../support/raw-client.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { at, longMs, metrics, replaced, send, report, whole, workersOf } from '../../support/workers.ts';
import type { Sent } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

const count = 3;
const model = (price = 5): string =>
  scriptedModel(
    `- { when: { last_text: slow }, say: [{ text: "one two three four five six" }], pace_ms: 1000 }
- { when: { last_text: endless }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 100 }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  ).replace('input_cents_per_million: 5', `input_cents_per_million: ${price}`);

let server: PostgresServer;
let service: TestService;
const replicas = async (): Promise<number> => (await server.sql(service.database!, 'select 1 from replica')).length;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
  service = new TestService({ config: model(), workers: count, database: await server.createDatabase() });
  await service.start();
  assert.equal(await replicas(), count + 1);
});
after(async () => {
  try {
    // Those of killed workers stay for five seconds.
    await until(async () => (await replicas()) === count + 1, longMs);
    assert.equal(await service.stop(), 0);
    assert.equal(await replicas(), 0);
    await service.verify();
  } finally {
    await service.dispose();
    await server.dispose();
  }
});

const body = (text: string, stream = false) => ({
  model: 'demo',
  stream,
  messages: [{ role: 'user', content: text }],
});

/** One of each worker, in turn. */
async function everywhere(act: () => Promise<Sent>): Promise<readonly Sent[]> {
  const sent: Sent[] = [];
  for (const worker of workersOf(service)) sent.push(await at(service, worker, act));
  return sent;
}

async function newKey(): Promise<{ readonly id: string; readonly key: string }> {
  const { accountId } = service;
  const answer = await report(service, { kind: 'create_key', accountId, name: 'x', expiresAt: undefined });
  return { id: answer.keyId, key: answer.key };
}

/** The catalog, over a connection of its own. */
async function list(): Promise<Sent> {
  const client = await RawClient.connect(service.url);
  client.send(`GET /v1/models HTTP/1.1\r\nhost: test\r\nauthorization: Bearer ${service.key}\r\n\r\n`);
  return { client, id: '' };
}

const statuses = (sent: readonly Sent[]): readonly number[] => sent.map(({ client }) => client.status);
const all = (status: number): readonly number[] => Array.from({ length: count }, () => status);

test('a key works everywhere when it has been made, and nowhere when it has been revoked; its streams are cut', async () => {
  const { id, key } = await newKey();
  const streams = await everywhere(() => send(service, body('endless', true), { key }));
  assert.deepEqual(statuses(streams), all(200));
  await report(service, { kind: 'revoke_key', keyId: id });
  for (const { client } of streams) {
    await until(() => client.text.includes('data: [DONE]\n\n'), longMs);
    assert.match(client.text, /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n/s);
  }
  assert.deepEqual(statuses(await everywhere(() => send(service, body('hi'), { key }))), all(401));
});

test('a rotated key has both of its secrets everywhere, and a paused one is cut and refused everywhere', async () => {
  const { id, key } = await newKey();
  const rotated = await report(service, { kind: 'rotate_key', keyId: id, overlapMs: 3_600_000 });
  const hi = (secret: string) => everywhere(() => send(service, body('hi'), { key: secret }));
  assert.deepEqual(statuses(await hi(key)), all(200));
  assert.deepEqual(statuses(await hi(rotated.key)), all(200));
  const again = await report(service, { kind: 'rotate_key', keyId: id, overlapMs: 0 });
  for (const ended of [key, rotated.key]) assert.deepEqual(statuses(await hi(ended)), all(401));
  const streams = await everywhere(() => send(service, body('endless', true), { key: again.key }));
  assert.deepEqual(statuses(streams), all(200));
  await report(service, { kind: 'edit_key', keyId: id, disabled: true });
  for (const { client } of streams) {
    await until(() => client.text.includes('[DONE]'), longMs);
    assert.match(client.text, /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n/s);
  }
  assert.deepEqual(statuses(await hi(again.key)), all(401));
  await report(service, { kind: 'edit_key', keyId: id, disabled: false });
  assert.deepEqual(statuses(await hi(again.key)), all(200));
});

test('an account that is deleted is cut and refused at all workers, and its names are gone', async () => {
  const made = await report(service, { kind: 'create_account', name: 'Zebulon Limited' });
  const { accountId } = made;
  const keyed = await report(service, { kind: 'create_key', accountId, name: 'Zebulon by hand', expiresAt: undefined });
  await report(service, {
    kind: 'move_credit',
    movement: 'grant',
    accountId,
    microcents: '100000000',
    reference: undefined,
    idempotencyKey: randomUUID(),
  });
  const { key } = keyed;
  await until(async () =>
    statuses(await everywhere(() => send(service, body('hi'), { key }))).every((one) => one === 200),
  );
  const streams = await everywhere(() => send(service, body('endless', true), { key }));
  assert.deepEqual(statuses(streams), all(200));
  const whole = await service.command('accounts', 'export', accountId);
  assert.match(whole.stdout, /Zebulon Limited[^]*Zebulon by hand/);

  const deleted = await report(service, { kind: 'delete_account', accountId, forfeitCredit: true });
  assert.equal(deleted.accountId, accountId);
  for (const { client } of streams) {
    await until(() => client.text.includes('data: [DONE]\n\n'), longMs);
    assert.match(client.text, /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n/s);
  }
  assert.deepEqual(statuses(await everywhere(() => send(service, body('hi'), { key }))), all(401));
  const left = await service.command('accounts', 'export', accountId);
  assert.doesNotMatch(left.stdout, /Zebulon/);
  // Each worker's one request and its cut stream are in the ledger, and what was left has expired.
  await until(async () => {
    const { usage, account } = JSON.parse((await service.command('accounts', 'export', accountId)).stdout) as {
      readonly usage: readonly unknown[];
      readonly account: readonly { readonly available: number }[];
    };
    return usage.length >= 2 * count && account[0]!.available === 0;
  }, longMs);
  await service.verify();
});

test('a suspended account, prices and entitlements are the same at all workers', async () => {
  const { id, key } = await newKey();
  await report(service, { kind: 'allow_key', keyId: id, models: ['another'] });
  assert.deepEqual(statuses(await everywhere(() => send(service, body('hi'), { key }))), all(403));
  await report(service, { kind: 'allow_key', keyId: id, models: undefined });
  const { accountId } = service;
  await report(service, {
    kind: 'set_price',
    accountId,
    model: 'demo',
    input: '9000000',
    output: '9000000',
    cacheRead: undefined,
    validFrom: undefined,
    validTo: undefined,
  });
  const ledger = new TestLedger(service);
  for (const sent of await everywhere(() => send(service, body('hi'), { key }))) {
    await whole(sent);
    const row = await ledger.row(sent.id);
    assert.deepEqual([row.inputPrice, row.outputPrice], [9_000_000n, 9_000_000n]);
  }
  await report(service, { kind: 'remove_price', accountId, model: 'demo' });
  await report(service, { kind: 'suspend_account', accountId });
  assert.deepEqual(statuses(await everywhere(() => send(service, body('hi')))), all(401));
  await report(service, { kind: 'revive_account', accountId });
  assert.deepEqual(statuses(await everywhere(() => send(service, body('hi')))), all(200));
});

test('twins at two workers are one generation, and a third worker repeats it', async () => {
  const ledger = new TestLedger(service);
  const before = await ledger.sums();
  const headers = `idempotency-key: ${randomUUID()}\r\n`;
  const [one, two, three] = workersOf(service) as [number, number, number];
  const asking = (): Promise<Sent> => send(service, body('slow', true), { headers });
  const leading = await at(service, one, asking);
  const twin = await at(service, two, asking);
  const first = await whole(leading);
  assert.match(first, /six/);
  const second = await whole(twin);
  const third = await whole(await at(service, three, asking));
  for (const repeated of [second, third]) {
    assert.match(repeated, /idempotent-replayed: true/i);
    assert.equal(joined(repeated), joined(first));
  }
  assert.equal((await ledger.sums()).count, before.count + 1);
  const other = await at(service, three, () => send(service, body('hi'), { headers }));
  assert.equal(other.client.status, 422);
});

/** The events of a stream, however it was cut into chunks. */
const joined = (text: string): string => [...text.matchAll(/^data: .*$/gm)].join('\n');

test('a twin takes over what a killed worker was running, and it is charged once', async () => {
  const ledger = new TestLedger(service);
  const before = await ledger.sums();
  const headers = `idempotency-key: ${randomUUID()}\r\n`;
  const [one] = workersOf(service) as [number];
  const leading = await at(service, one, () => send(service, body('slow', true), { headers }));
  const twin = await send(service, body('slow', true), { headers });
  const killing = replaced(service, one, count);
  await leading.client.closed;
  const text = await whole(twin);
  if (twin.client.status === 200 && text.includes('[DONE]')) assert.match(text, /six/);
  else {
    // It was the killed one that had taken it.
    const again = await send(service, body('slow', true), { headers });
    assert.match(await whole(again), /six/);
  }
  await killing;
  const { costMicrocents } = await ledger.sums();
  const finished = (await ledger.newest(5)).filter(({ ending }) => ending === 'finished');
  assert.equal(costMicrocents, before.costMicrocents + finished[0]!.costMicrocents);
  await ledger.verify({ owned: true });
});

test('the metrics are the sum of the workers, and do not fall when one of them ends', async () => {
  const ledger = new TestLedger(service);
  const sent = await everywhere(() => send(service, body('hi', true)));
  for (const one of sent) await whole(one);
  for (const { id } of sent) await ledger.row(id);
  const families = await metrics(service);
  const rows = await ledger.everyRow();
  const answered = rows.filter(({ ending }) => ending === 'finished').length;
  const charged = total(families, 'tokenhouse_charged_microcents_total', { model: 'demo' });
  // What a killed worker had counted since it was last asked is not in it.
  assert.ok(total(families, 'tokenhouse_requests_total', { ending: 'finished' }) <= answered);
  assert.ok(BigInt(charged) <= (await ledger.sums()).costMicrocents && charged > 0);
  assert.equal(total(families, 'tokenhouse_workers'), count);
  assert.equal(total(families, 'tokenhouse_backend_ready'), 1);
  assert.equal(
    total(families, 'tokenhouse_config_version'),
    families.get('tokenhouse_config_version')?.samples[0]?.value,
  );
  assert.equal(families.get('tokenhouse_config_version')?.samples.length, 1);
  assert.deepEqual(
    families.get('process_resident_memory_bytes')?.samples.map(({ labels }) => labels['process']),
    ['parent', '1', '2', '3'],
  );
  for (const gauge of ['requests_running', 'holds_open', 'held_microcents', 'settlements_waiting'])
    await until(async () => total(await metrics(service), `tokenhouse_${gauge}`) === 0, longMs);

  await replaced(service, workersOf(service)[0]!, count);
  const later = await metrics(service);
  for (const name of [
    'tokenhouse_requests_total',
    'tokenhouse_charged_microcents_total',
    'tokenhouse_own_seconds_count',
  ])
    assert.ok(total(later, name) >= total(families, name), name);
});

test('a changed configuration comes into force at all workers, a wrong one at none, also after one was started anew', async () => {
  const priceAt = ({ client }: Sent): number => {
    const text = client.text.slice(client.text.indexOf('\r\n\r\n'));
    const { data } = JSON.parse(text) as {
      readonly data: readonly {
        readonly service: { readonly pricing: { readonly input_cents_per_million: number } };
      }[];
    };
    return data[0]!.service.pricing.input_cents_per_million;
  };
  const prices = async (): Promise<readonly number[]> => {
    const lists = await everywhere(list);
    for (const one of lists) await whole(one);
    return lists.map(priceAt);
  };
  service.configure({ config: model(7), workers: count });
  assert.equal((await service.command('reload')).code, 0);
  assert.deepEqual(await prices(), [7, 7, 7]);

  service.configure({ config: model(8).replace('context_length: 8192', 'context_length: none'), workers: count });
  const refused = await service.command('reload');
  assert.equal(refused.code, 78, refused.stdout + refused.stderr);
  assert.deepEqual(await prices(), [7, 7, 7]);
  service.configure({ config: model(8), workers: count + 1 });
  const restart = await service.command('reload');
  assert.equal(restart.code, 78);
  assert.match(restart.stdout + restart.stderr, /server\.workers cannot change while the service runs/);

  await replaced(service, workersOf(service)[0]!, count);
  assert.deepEqual(await prices(), [7, 7, 7]);
  service.configure({ config: model(7), workers: count });
});

test('the commands of an operator work as before', async () => {
  const doctor = await service.command('doctor', '--json');
  const { checks } = JSON.parse(doctor.stdout) as {
    readonly checks: readonly { check: string; state: string; found: string }[];
  };
  const found = checks.find(({ check }) => check === 'service');
  assert.equal(found?.state, 'ok');
  assert.match(found.found, new RegExp(`process ${service.pid} `));
  for (const url of [service.url, service.accountUrl].flatMap((host) => [`${host}/healthz`, `${host}/readyz`])) {
    const answer = await fetch(url, { headers: { connection: 'close' } });
    assert.equal(answer.status, 200);
    await answer.arrayBuffer();
  }
});

test('log lines of all workers are whole', async () => {
  const lines = service.log.length;
  await Promise.all(
    Array.from({ length: 300 }, async () => {
      const answer = await service.chat(body('hi'), { headers: { connection: 'close' } });
      await answer.arrayBuffer();
    }),
  );
  // Reading it parses each line.
  await until(
    () => service.log.slice(lines).filter(({ event }) => event === 'answer' || event === 'refusal').length >= 300,
    longMs,
  );
});

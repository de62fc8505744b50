/** Work is refused before it is done, what runs goes on, and everything passes again afterwards (reliability §3.1, §5). */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { assertEnvelope } from '../../inference/http/envelope.ts';
import { askChat, chatRequest, plainBody } from '../../inference/http/chat.ts';
import { RawConnection, bodyChunk, exchange, requestBytes } from '../../inference/http/raw.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { built } from '../../support/built.ts';

const waitMs = 120_000;
const options = { timeout: 300_000 };

const scripts = `- when: { last_text: for ever }
  say: [ { text: [ "word " ] } ]
  repeat: 100000
  pace_ms: 20
- say: [ { text: "hello" } ]
`;

async function start(t: TestContext, limits: string): Promise<TestService> {
  const service = new TestService({
    config: scriptedModel(scripts, { contextLength: 1_000_000 }),
    limits,
    entry: built('tests/suites/faults/faulty-entry.ts'),
  });
  t.after(() => service.dispose());
  return await service.start();
}

function fault(service: TestService, kind: string): void {
  writeFileSync(join(service.folder, 'fault'), kind);
  process.kill(service.pid, 'SIGUSR2');
}

/** A stream that runs until its client leaves. A machine that is busy with other things may refuse it at first. */
async function running(service: TestService): Promise<RawClient> {
  for (;;) {
    const client = await RawClient.connect(service.url);
    const body = { model: 'demo', stream: true, messages: [{ role: 'user', content: 'for ever' }] };
    client.send(chatBytes(service.key, newRequestId(), body));
    await until(() => client.events.length > 1 || client.status === 429, waitMs);
    if (client.status === 200) return client;
    client.reset();
  }
}

/** What passes whatever the load is: health, the catalog, refusals for other reasons, and the account host. */
async function assertOthersPass(service: TestService): Promise<void> {
  for (const path of ['/healthz', '/readyz', '/v1/models']) {
    assert.equal((await exchange(service.url, { path })).status, 200, path);
  }
  assert.equal((await fetch(`${service.accountUrl}/docs/errors`)).status, 200);
  const stranger = await exchange(service.url, { method: 'POST', path: '/v1/chat/completions', body: '{}' });
  assertEnvelope(stranger, 'missing_api_key');
}

async function assertRecovers(service: TestService): Promise<void> {
  await until(async () => (await askChat(service)).status === 200, waitMs);
}

test('no more requests run than may, and those on top are refused before they are parsed', options, async (t) => {
  const service = await start(t, '  requests_running_max: 2');
  const streams = [await running(service), await running(service)];
  // Not even its JSON is looked at (contracts decision 10: the budget comes before the JSON).
  const refused = await askChat(service, '{"model":');
  assertEnvelope(refused, 'backend_at_capacity');
  assert.equal(refused.headers['retry-after'], '1');
  await assertOthersPass(service);
  const seen = streams.map(({ events }) => events.length);
  await until(() => streams.every(({ events }, index) => events.length > seen[index]! + 3), waitMs);
  streams[0]!.reset();
  await assertRecovers(service);
  assertEnvelope(await askChat(service, '{"model":'), 'invalid_json_request');
  streams[1]!.reset();
  await new TestLedger(service).verify({ owned: true });
});

test('a client that is slow to send takes nobody’s place', options, async (t) => {
  const service = await start(t, '  requests_running_max: 1');
  const slow = await RawConnection.open(service.url);
  slow.write(requestBytes(service.url, chatRequest(service, '', [['Content-Length', '1000']])));
  slow.write('{"model":');
  assert.equal((await askChat(service)).status, 200);
  slow.close();
});

test('every way a request can end gives its place back', options, async (t) => {
  const service = await start(t, '  requests_running_max: 1');
  const endings: readonly (() => Promise<unknown>)[] = [
    () => askChat(service, '{'),
    () => askChat(service, { model: 'nothing', messages: plainBody.messages }),
    () => askChat(service, { ...plainBody, n: 0 }),
    () => askChat(service, { ...plainBody, stream: true }),
    async () => (await running(service)).reset(),
    async () => (await running(service)).close(),
  ];
  for (const end of endings) {
    await end();
    await assertRecovers(service);
  }
});

test('a process without memory takes one request at a time, and closes idle connections', options, async (t) => {
  const service = await start(t, '  memory_bytes_max: 1000000');
  await until(() => service.log.some(({ event, shedLevel }) => event === 'load' && shedLevel === 3), waitMs);
  const idle = await RawClient.connect(service.url);
  idle.send('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
  await idle.closed;
  assert.equal(idle.status, 200);
  const stream = await running(service);
  assertEnvelope(await askChat(service), 'backend_at_capacity');
  await assertOthersPass(service);
  const seen = stream.events.length;
  await until(() => stream.events.length > seen + 3, waitMs);
  stream.reset();
  // It must not lock itself out: memory that is not used is not always returned.
  await assertRecovers(service);
  await new TestLedger(service).verify({ owned: true });
});

test(
  'an event loop that is held up refuses work, what runs goes on, and then everything passes',
  options,
  async (t) => {
    const service = await start(t, '  shed_large_bodies_lag_seconds: 0.05\n  shed_new_work_lag_seconds: 0.1');
    const streams = [await running(service), await running(service), await running(service)];
    fault(service, 'busy');
    await until(() => service.log.some(({ event, shedLevel }) => event === 'load' && shedLevel === 2), waitMs);
    await until(async () => (await askChat(service)).status === 429, waitMs);
    assertEnvelope(await askChat(service), 'backend_at_capacity');
    const large = await askChat(service, ' '.repeat(1_100_000));
    assertEnvelope(large, 'backend_at_capacity');
    await assertOthersPass(service);
    const seen = streams.map(({ events }) => events.length);
    await until(() => streams.every(({ events }, index) => events.length > seen[index]! + 3), waitMs);
    fault(service, 'calm');
    await assertRecovers(service);
    for (const stream of streams) stream.reset();
    await new TestLedger(service).verify({ owned: true });
  },
);

test('at shed level 1 large bodies are refused, declared or not, and small ones are served', options, async (t) => {
  const service = await start(t, '  shed_large_bodies_lag_seconds: 0.02\n  shed_new_work_lag_seconds: 60');
  const large = JSON.stringify(plainBody) + ' '.repeat(1_100_000);
  assert.equal((await askChat(service, large)).status, 200);
  fault(service, 'busy');
  await until(() => service.log.some(({ event, shedLevel }) => event === 'load' && shedLevel === 1), waitMs);
  assertEnvelope(await askChat(service, large), 'backend_at_capacity');
  const connection = await RawConnection.open(service.url);
  connection.write(requestBytes(service.url, chatRequest(service, '', [['Transfer-Encoding', 'chunked']])));
  connection.write(bodyChunk(Buffer.from(large)));
  assertEnvelope(await connection.answer(), 'backend_at_capacity');
  connection.close();
  assert.equal((await askChat(service)).status, 200);
  fault(service, 'calm');
  await until(async () => (await askChat(service, large)).status === 200, waitMs);
});

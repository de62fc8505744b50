import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { TestService, scriptedModel, until } from '../../support/service.ts';
import { chatRequest, eventsOf, plainBody } from './chat.ts';
import { RawConnection, requestBytes } from './raw.ts';

/** SIGTERM: what runs may finish, nothing new is taken, and what lasts too long is cut in words (reliability S7). */
const service = new TestService({
  limits: '  drain_timeout_seconds: 2',
  config: scriptedModel(`
- when: { last_text: "short" }
  say: [ { text: "one two three" } ]
  pace_ms: 400
- when: { last_text: "endless" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 1, type: hang }
- say: [ { text: "hello" } ]
`),
});
before(() => service.start());
after(() => service.dispose());

const opened = async (content: string, stream: boolean): Promise<RawConnection> => {
  const connection = await RawConnection.open(service.url);
  const body = { ...plainBody, messages: [{ role: 'user', content }], stream };
  connection.write(requestBytes(service.url, chatRequest(service, body, [['X-Request-Id', content]])));
  return connection;
};

test('SIGTERM lets short answers finish, cuts endless ones, and exits with 0', async () => {
  const short = await opened('short', true);
  const whole = await opened('short', false);
  const endless = await opened('endless', true);
  // Not idle: the head of a request is half there, so this connection is not closed with the port.
  const probe = await RawConnection.open(service.url);
  probe.write('GET /readyz HTTP/1.1\r\nHost: a\r\n');
  await short.waitFor(() => short.received.includes('one'));
  await endless.waitFor(() => endless.received.includes('one'));
  const idle = await RawConnection.open(service.url);
  idle.write(requestBytes(service.url, { path: '/readyz' }));
  assert.equal((await idle.answer()).status, 200);

  const stopped = service.stop('SIGTERM');
  await idle.waitFor(() => idle.isEnded);
  // Node ends idle connections just before it closes the port; on a busy machine a connection fits between the two.
  await until(() =>
    RawConnection.open(service.url).then(
      (late) => (late.close(), false),
      (error: NodeJS.ErrnoException) => error.code === 'ECONNREFUSED',
    ),
  );
  probe.write('\r\n');
  const readiness = await probe.answer();
  assert.equal(readiness.status, 503);
  assert.deepEqual(readiness.json(), { status: 'not ready' });
  await probe.waitFor(() => probe.isEnded);

  const { body } = await short.answer();
  assert.equal(eventsOf(body).at(-1), '[DONE]');
  assert.match(eventsOf(body).at(-2) ?? '', /"usage"/);
  await short.waitFor(() => short.isEnded);
  assert.equal((await whole.answer()).status, 200);
  await whole.waitFor(() => whole.isEnded);
  const cut = eventsOf((await endless.answer()).body);
  assert.equal(cut.at(-1), '[DONE]');
  assert.match(cut.at(-2) ?? '', /"code":"no_healthy_backends"/);
  assert.equal(await stopped, 0);

  const { requests } = await service.usage();
  const endings = requests.map((line) => `${line.request_id} ${line.ending} ${line.cost_microcents > 0}`).toSorted();
  assert.deepEqual(endings, [
    'client_endless drained false',
    'client_short finished true',
    'client_short finished true',
  ]);
  await service.verify();
});

/** With a delay of which the end is not met, and with a short one. */
async function serviceWith(t: TestContext, delay: number): Promise<TestService> {
  const delayed = new TestService({
    limits: `  drain_delay_seconds: ${delay}`,
    config: scriptedModel('- say: [ { text: "hello" } ]'),
  });
  t.after(() => delayed.dispose());
  await delayed.start();
  return delayed;
}

const readiness = async (url: string): Promise<number> => (await fetch(`${url}/readyz`)).status;

test('with a delay it is not ready at once, and takes requests on old and new connections meanwhile', async (t) => {
  const delayed = await serviceWith(t, 3_600);
  assert.equal(await readiness(delayed.url), 200);
  const kept = await RawConnection.open(delayed.url);
  kept.write(requestBytes(delayed.url, { path: '/healthz' }));
  assert.equal((await kept.answer()).status, 200);
  process.kill(delayed.pid, 'SIGTERM');
  await until(async () => (await readiness(delayed.url)) === 503);
  kept.write(requestBytes(delayed.url, { path: '/healthz' }));
  assert.equal((await kept.answer()).status, 200);
  const answer = await delayed.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 200, await answer.text());
  kept.close();
  await delayed.stop('SIGKILL');
});

test('after the delay it stops', async (t) => {
  const delayed = await serviceWith(t, 0.1);
  assert.equal(await delayed.stop('SIGTERM'), 0);
  assert.match(delayed.output, /stopping: new requests are refused in 0\.1 s, \/readyz says so now/);
});

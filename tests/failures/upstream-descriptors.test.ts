/** No file descriptor is left (reliability S4): refused at accept or 502, nothing charged, and it recovers by itself. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { ask, verifyAndDispose, errorOf, send } from '../endings/endings-service.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import {
  answerWell,
  askFor,
  assertAnswered,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

const sound = await upstreamThat((exchange) => answerWell(exchange));
const service = serviceBefore([remote('far', [sound.url])]);
before(() => service.start());
after(() => verifyAndDispose(service).finally(() => sound.close()));

/** The lowest number that is free: the next file or socket of the service would get it. */
function nextDescriptor(): number {
  const used = new Set(readdirSync(`/proc/${service.pid}/fd`).map(Number));
  let next = 0;
  while (used.has(next)) next++;
  return next;
}

/** The limit of file numbers of the running service; the soft one, so that it can be raised again. */
const limitTo = (count: number): void => {
  execFileSync('prlimit', ['--pid', String(service.pid), `--nofile=${count}:`]);
};

const canLimit = existsSync('/proc/self/fd') && ['/usr/bin/prlimit', '/bin/prlimit'].some((path) => existsSync(path));

test('S4: out of descriptors for the upstream: 502, charged 0; then as before', { skip: !canLimit }, async () => {
  await settled(service, async (ledger) => {
    let failed: string | undefined;
    await until(async () => {
      // The client's connection is there before the last descriptor goes.
      const client = await RawClient.connect(service.url);
      await until(async () => (await fetch(`${service.url}/healthz`)).ok);
      const id = newRequestId();
      limitTo(nextDescriptor());
      try {
        client.send(chatBytes(service.key, id, ask('hi', { model: 'far', stream: false })));
        await until(() => client.text.endsWith('}}'));
      } finally {
        limitTo(4_096);
        client.reset();
      }
      // Another connection may have ended in the same moment and made room; then it is tried again.
      if (client.status === 200) return false;
      assert.equal(client.status, 502, client.text);
      const error = errorOf(client.text.slice(client.text.indexOf('\r\n\r\n') + 4));
      assert.deepEqual([error.code, error.request_id], ['backend_connect_error', id]);
      failed = id;
      return true;
    }, 60_000);
    const row = await ledger.row(failed ?? '');
    assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['failed', 'backend_connect_error', 0n]);
    await assertAnswered(ledger, await askFor(service, 'far', true), { text: 'Hello', stream: true });
  });
});

test('S4: out of descriptors at accept: others wait or are refused; then as before', { skip: !canLimit }, async () => {
  await settled(service, async (ledger) => {
    limitTo(nextDescriptor());
    const late = await send(service, ask('hi', { model: 'far' })).catch(() => undefined);
    late?.client.reset();
    limitTo(4_096);
    await until(async () => {
      const answer = await askFor(service, 'far', false).catch(() => undefined);
      if (answer?.status !== 200) return false;
      await assertAnswered(ledger, answer, { text: 'Hello', stream: false });
      return true;
    });
  });
});

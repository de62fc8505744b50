/** Every wait has a bound (reliability part 5), also when the collector runs while it lasts. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Client } from 'undici';

import { combineSignals } from '../../src/platform/combine-signals.ts';

/** Collects again and again until the test is over. */
function collecting(t: TestContext): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const timer = setInterval(collect, 20);
  t.after(() => clearInterval(timer));
}

test('a time limit among other signals is not forgotten by the collector', { timeout: 30_000 }, async (t) => {
  collecting(t);
  const stop = new AbortController();
  const signal = combineSignals([stop.signal, AbortSignal.timeout(300)]);
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  assert.equal((signal.reason as Error).name, 'TimeoutError');
});

test('nor is one in a list within a list', { timeout: 30_000 }, async (t) => {
  collecting(t);
  const stop = new AbortController();
  const inner = (): AbortSignal => combineSignals([stop.signal, AbortSignal.timeout(300)]);
  const outer = combineSignals([inner(), new AbortController().signal]);
  await new Promise((resolve) => outer.addEventListener('abort', resolve, { once: true }));
  assert.ok(outer.aborted);
});

test('a request to a server that never answers ends', { timeout: 30_000 }, async (t) => {
  const server = createServer(() => {}).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close().closeAllConnections());
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { headersTimeout: 0 });
  t.after(() => client.destroy());
  collecting(t);
  const stop = new AbortController();
  const signal = combineSignals([stop.signal, AbortSignal.timeout(300)]);
  await assert.rejects(client.request({ method: 'POST', path: '/', body: 'x', signal }));
});

test('the first to end is the reason, and one that had ended counts at once', () => {
  const [one, other] = [new AbortController(), new AbortController()];
  const signal = combineSignals([one.signal, other.signal]);
  other.abort('other');
  assert.equal(signal.reason, 'other');
  one.abort('one');
  assert.equal(signal.reason, 'other');
  assert.equal(combineSignals([signal, new AbortController().signal]).reason, 'other');
});

/** A client that does not read: the service waits for it within bounds of memory and of time (reliability C3). */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { until } from '../support/service.ts';
import type { TestService } from '../support/service.ts';
import { ask, assertNothingLeft, endingsService, send, verifyAndDispose } from './endings-service.ts';

/** 400 MB of text, as fast as the reader takes it, in tokens of 2 kB, and cheap. */
const models = `
- id: flood
  context_length: 1000000
  pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
  backends:
    - engine: scripted
      scripts:
        - when: { last_text: once }
          say: [ { text: [ "${'x'.repeat(2_000)}" ] } ]
          repeat: 8000
        - say: [ { text: [ "${'x'.repeat(2_000)}" ] } ]
          repeat: 200000
`;
const flood = (text: string, stream: boolean) => ask(text, { model: 'flood', stream, max_tokens: 200_000 });

const patient = endingsService({ models });
const strict = endingsService({ models, limits: 'reader_stall_timeout_seconds: 0.5\n  drain_timeout_seconds: 0.2' });
before(() => Promise.all([patient.start(), strict.start()]));
after(() => Promise.all([verifyAndDispose(patient), verifyAndDispose(strict)]));

test('reader stalled: the stream is cut after the time, and pays the input and what was produced', async () => {
  const ledger = new TestLedger(strict);
  const balance = await ledger.balance();
  const { client, id } = await send(strict, flood('go', true), { keepsBytes: false });
  await until(() => client.bytesReceived > 0);
  client.pause();
  const row = await ledger.row(id);
  assert.equal(row.ending, 'reader_stalled');
  assert.ok(row.completionTokens > 0 && row.completionTokens < 100_000, `${row.completionTokens} tokens`);
  assert.equal(row.costMicrocents, BigInt(row.promptTokens + row.completionTokens));
  assert.equal(await ledger.balance(), balance - row.costMicrocents);
  client.resume();
  await client.closed;
  await assertNothingLeft(strict);
});

for (const stream of [false, true]) {
  test(`reader stalled at the last bytes, ${stream ? 'streamed' : 'whole'}: the answer is paid for, and the connection is not kept`, async () => {
    const ledger = new TestLedger(strict);
    // 16 MB: more than the kernel takes for a reader that reads nothing.
    const { client, id } = await send(strict, flood('once', stream), { keepsBytes: false });
    client.pause();
    const { localPort } = client;
    assert.ok(isConnected(strict, localPort));
    const row = await ledger.row(id);
    assert.equal(row.ending, stream ? 'reader_stalled' : 'finished');
    await until(() => !isConnected(strict, localPort));
    client.reset();
    await assertNothingLeft(strict);
  });
}

test('a slow reader of an endless answer keeps the memory of the service bounded, and the backend waiting', async () => {
  const ledger = new TestLedger(patient);
  await (await patient.chat(ask('three words'))).text();
  const baseBytes = residentBytes(patient);
  let peakBytes = 0;
  const { client, id } = await send(patient, flood('go', true), { keepsBytes: false });
  // Reads ten times 4 MB, and stands still in between until the service has nothing to do but wait.
  for (let portion = 1; portion <= 10; portion++) {
    client.resume();
    await until(() => client.bytesReceived > portion * 4_000_000 || client.isClosed, 20_000);
    client.pause();
    await untilIdle(patient);
    peakBytes = Math.max(peakBytes, residentBytes(patient));
  }
  assert.equal(client.isClosed, false);
  const growthBytes = peakBytes - baseBytes;
  assert.ok(growthBytes < 100e6, `grew by ${Math.round(growthBytes / 1e6)} MB`);
  client.reset();
  const row = await ledger.row(id);
  assert.equal(row.ending, 'client_left');
  // Every token is 2 kB of text: what was produced is what was read, and what the buffers on the way hold.
  const aheadBytes = row.completionTokens * 2_000 - client.bytesReceived;
  assert.ok(aheadBytes < 30e6, `${Math.round(aheadBytes / 1e6)} MB were produced that nobody had read`);
  await assertNothingLeft(patient);
});

/** Linux says it in the process's own files. */
function residentBytes(service: TestService): number {
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${service.pid}/status`, 'utf8'))?.[1];
  assert.ok(kilobytes !== undefined);
  return Number(kilobytes) * 1024;
}

/** The service has used less than a tenth of a processor for a while: it produces nothing, and its own timers are left. */
async function untilIdle(service: TestService): Promise<void> {
  const ticksPerMs = 0.1;
  let from = { ticks: processorTicks(service), at: performance.now() };
  await until(() => {
    const now = { ticks: processorTicks(service), at: performance.now() };
    const ms = now.at - from.at;
    const isBusy = now.ticks - from.ticks > Math.max(2, (ms * ticksPerMs) / 10);
    if (isBusy) from = now;
    return ms > 1_000 && !isBusy;
  }, 20_000);
}

function processorTicks(service: TestService): number {
  const fields = readFileSync(`/proc/${service.pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** Whether the service has a connection to this port that it has not closed. */
function isConnected(service: TestService, clientPort: number): boolean {
  const hex = (port: number): string => port.toString(16).toUpperCase().padStart(4, '0');
  // Local address, remote address, state (01: established), in each of its lines.
  const established = new RegExp(`:${hex(Number(new URL(service.url).port))} [0-9A-F]+:${hex(clientPort)} 01 `);
  return ['/proc/net/tcp', '/proc/net/tcp6'].some(
    (table) => existsSync(table) && established.test(readFileSync(table, 'utf8')),
  );
}

/** Faults of the disk, the database file and the log's reader, met by the whole service; each ends with the invariants. */
import { DatabaseSync } from '@photostructure/sqlite';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, copyFileSync, createReadStream, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { repositoriesOn } from '../../../src/store/repositories/repositories.ts';
import { openReadOnly } from '../../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { parseExposition, total } from '../../platform/metrics/exposition.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { canCause } from '../../support/machine.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import type { TestServiceOptions } from '../../support/service.ts';

const config = scriptedModel(`
- when: { last_text: paced }
  say: [ { text: [ "word " ] } ]
  repeat: 1500
  pace_ms: 20
- say: [ { text: "one two three" } ]
`);
const ask = (text: string, more: object = {}) => ({
  model: 'demo',
  messages: [{ role: 'user', content: text }],
  ...more,
});

async function startService(t: TestContext, options: Partial<TestServiceOptions> = {}): Promise<TestService> {
  const service = new TestService({ config, ...options });
  t.after(() => service.dispose());
  return await service.start();
}

interface Outcome {
  readonly id: string;
  readonly status: number;
  readonly retryAfter: string | null;
}

async function one(service: TestService): Promise<Outcome> {
  const id = newRequestId();
  const answer = await service.chat(ask('hi'), { headers: { 'x-request-id': id } });
  await answer.text();
  return { id, status: answer.status, retryAfter: answer.headers.get('retry-after') };
}

/** What `/readyz` says on both hosts. */
async function readiness(service: TestService): Promise<readonly number[]> {
  return await Promise.all([service.url, service.accountUrl].map(async (url) => (await fetch(`${url}/readyz`)).status));
}

async function metric(service: TestService, name: string): Promise<number> {
  return total(parseExposition(await (await fetch(`${service.accountUrl}/metrics`)).text()), name);
}

async function stream(service: TestService): Promise<{ readonly client: RawClient; readonly id: string }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url);
  client.send(chatBytes(service.key, id, ask('paced', { stream: true })));
  await until(() => client.events.length > 2, 30_000);
  return { client, id };
}

test('D1: another program locks the database: new work is refused at once, streams go on, charges follow', async (t) => {
  const service = await startService(t);
  const ledger = new TestLedger(service);
  await one(service);
  const running = await stream(service);
  const intruder = new DatabaseSync(ledger.file);
  intruder.exec('begin immediate');
  const outcomes: Outcome[] = [];
  try {
    // The first are let in, because until then all was well.
    await until(async () => {
      outcomes.push(await one(service));
      return outcomes.filter(({ retryAfter }) => retryAfter === '1').length >= 3;
    }, 60_000);
    const startedAt = performance.now();
    const refused = await one(service);
    assert.deepEqual([refused.status, refused.retryAfter], [500, '1']);
    assert.ok(performance.now() - startedAt < 20_000, 'ten times the two seconds that are promised');
    const seen = running.client.events.length;
    await until(() => running.client.events.length > seen + 20, 30_000);
    for (const { status } of outcomes) assert.equal(status, 500, 'nothing is acknowledged that is not durable (I4)');
  } finally {
    intruder.close();
  }
  await until(async () => (await one(service)).status === 200, 30_000);
  await until(() => running.client.text.includes('[DONE]'), 120_000);
  assert.ok(!running.client.text.includes('"error"'));
  const row = await ledger.row(running.id);
  assert.deepEqual([row.ending, row.completionTokens], ['finished', 1_500]);
  assert.ok((await metric(service, 'tokenhouse_ledger_batches_refused_total')) > 0);
  await until(async () => (await metric(service, 'tokenhouse_held_microcents')) === 0, 60_000);
  await service.verify();
});

test('D1: a locked database is not ready on either host, and is ready again before the next request', async (t) => {
  const service = await startService(t);
  assert.deepEqual(await readiness(service), [200, 200]);
  const intruder = new DatabaseSync(new TestLedger(service).file);
  intruder.exec('begin immediate');
  try {
    await until(async () => {
      await Promise.all(Array.from({ length: 8 }, () => one(service)));
      return (await readiness(service)).every((status) => status === 503);
    }, 60_000);
    // It is asked again at each look, and does not answer.
    assert.deepEqual(await readiness(service), [503, 503]);
    assert.equal((await one(service)).status, 500);
  } finally {
    intruder.close();
  }
  // Nobody sends work to a service that is not ready: looking at it is enough.
  await until(async () => (await readiness(service)).every((status) => status === 200), 30_000);
  assert.equal((await one(service)).status, 200);
  await service.verify();
});

test('S3: the disk fills up: new work is refused and not done for nothing, streams go on, and with room again all goes on', async (t) => {
  if (!canCause(t, 'mount')) return;
  const service = await startService(t, {
    within: [
      'unshare',
      '-rm',
      'sh',
      '-c',
      'mkdir -p data && chmod 700 data && mount -t tmpfs -o size=6m tmpfs data && exec "$@"',
      'sh',
    ],
  });
  // The service has a file system of its own; this is the way into it from here.
  const data = join('/proc', String(service.pid), 'root', service.folder, 'data');
  for (let index = 0; index < 5; index++) assert.equal((await one(service)).status, 200);
  const running = await stream(service);

  const ballast = join(data, 'ballast');
  const descriptor = openSync(ballast, 'w');
  const fill = (): void => {
    try {
      for (;;) writeSync(descriptor, Buffer.alloc(4_096));
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
    }
  };
  const lost: Outcome[] = [];
  let refusedInRow = 0;
  await until(async () => {
    fill();
    const outcome = await one(service);
    assert.ok(outcome.status === 200 || outcome.status === 500, String(outcome.status));
    if (outcome.status === 500 && outcome.retryAfter === null) lost.push(outcome);
    refusedInRow = outcome.retryAfter === '1' ? refusedInRow + 1 : 0;
    return refusedInRow >= 20;
  }, 120_000);
  assert.deepEqual(await readiness(service), [503, 503]);
  const seen = running.client.events.length;
  await until(() => running.client.events.length > seen + 5, 30_000);
  closeSync(descriptor);
  rmSync(ballast);

  await until(async () => (await readiness(service)).every((status) => status === 200), 30_000);
  await until(async () => (await one(service)).status === 200, 30_000);
  await until(() => running.client.text.includes('[DONE]'), 120_000);
  await until(async () => (await metric(service, 'tokenhouse_held_microcents')) === 0, 60_000);
  // SQLite would follow the way to its end, which is elsewhere for this process: a copy, now that nothing is written.
  for (const ending of ['', '-wal'])
    copyFileSync(join(data, `tokenhouse.db${ending}`), join(service.folder, `copy.db${ending}`));
  const db = openReadOnly(join(service.folder, 'copy.db'));
  try {
    const rows = await repositoriesOn(db).listUsage({ limit: 1_000 });
    const uncharged = rows.filter(({ ending }) => ending === 'lost');
    // Work that was done for nothing is only what nobody could know of: each lost charge is followed by refusals.
    assert.ok(
      uncharged.length <= lost.length && lost.length <= 5,
      `${uncharged.length} uncharged, ${lost.length} lost`,
    );
    const whole = rows.find(({ publicId }) => publicId === running.id);
    assert.deepEqual([whole?.ending, whole?.completionTokens], ['finished', 1_500]);
    assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
  } finally {
    await db.destroy();
  }
  assert.equal(await service.stop(), 0);
});

test('S11: the reader of the log stalls: the service goes on, its queue is bounded, and what was lost is counted', async (t) => {
  if (!canCause(t, 'fifo')) return;
  const service = new TestService({
    config,
    limits: '  requests_per_connection_max: 1000000',
    within: ['sh', '-c', 'exec "$@" >log.fifo', 'sh'],
  });
  t.after(() => service.dispose());
  const fifo = join(service.folder, 'log.fifo');
  assert.equal(spawnSync('mkfifo', [fifo]).status, 0);
  // Open, and not read.
  const held = openSync(fifo, 'r+');
  await service.start();
  const resident = (): number =>
    Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${service.pid}/status`, 'utf8'))?.[1]) * 1_024;
  await one(service);
  const before = resident();
  const request = 'GET /nowhere HTTP/1.1\r\nhost: test\r\n\r\n';
  const clients = await Promise.all(
    Array.from({ length: 64 }, () => RawClient.connect(service.url, { keepsBytes: false })),
  );
  let sent = 0;
  // As many as may wait on one connection (reliability C6).
  const ahead = 8;
  const dropped = () => metric(service, 'tokenhouse_log_lines_dropped_total');
  await until(async () => {
    const bytes = clients.map(({ bytesReceived }) => bytesReceived);
    for (const client of clients) client.send(request.repeat(ahead));
    sent += ahead * clients.length;
    await until(() => clients.every((client, index) => client.bytesReceived > bytes[index]! + ahead * 100), 60_000);
    return (await dropped()) > 500;
  }, 200_000);
  assert.ok(resident() - before < 200 * 1024 * 1024, `${resident() - before} bytes more after ${sent} requests`);
  assert.equal((await one(service)).status, 200);
  for (const client of clients) client.reset();
  const lost = await dropped();

  let text = '';
  const reader = createReadStream('', { fd: openSync(fifo, 'r'), encoding: 'utf8' });
  t.after(() => reader.destroy());
  reader.on('data', (chunk) => (text += chunk.toString()));
  await until(() => /"event":"log_lines_dropped","count":\d+\}\n/.test(text), 60_000);
  closeSync(held);
  assert.ok(Number(/"event":"log_lines_dropped","count":(\d+)/.exec(text)?.[1]) >= lost);
  for (const line of text.split('\n').slice(0, -1)) JSON.parse(line);
  await service.verify();
});

/** Has the kernel do something else when the service syncs; resolves when it does. */
async function inject(t: TestContext, service: TestService, fault: string): Promise<ChildProcess> {
  const strace = spawn(
    'strace',
    [
      '-f',
      '-p',
      String(service.pid),
      '-o',
      '/dev/null',
      '-e',
      'trace=fsync,fdatasync',
      '-e',
      `inject=fsync,fdatasync:${fault}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  t.after(() => strace.kill('SIGKILL'));
  let said = '';
  strace.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  await until(() => /attached/.test(said), 30_000);
  return strace;
}

test('S12: a sync that takes two seconds delays, and acknowledges nothing that is not durable', async (t) => {
  if (!canCause(t, 'strace')) return;
  const service = await startService(t);
  const ledger = new TestLedger(service);
  await one(service);
  const strace = await inject(t, service, 'delay_enter=2000000');
  const outcomes = await Promise.all(Array.from({ length: 6 }, () => one(service)));
  for (const { id, status } of outcomes) {
    assert.ok(status === 200 || status === 500, String(status));
    if (status === 200) assert.equal((await ledger.rows(id)).length, 1, 'I4');
  }
  const detached = new Promise((resolve) => strace.once('close', resolve));
  strace.kill('SIGINT');
  await detached;
  await until(async () => (await one(service)).status === 200, 60_000);
  // What was reported to cost nothing costs nothing in the end.
  await until(async () => (await metric(service, 'tokenhouse_held_microcents')) === 0, 120_000);
  const { costMicrocents } = await ledger.sums();
  const refunds = (await ledger.transfers()).filter(({ kind }) => kind === 'refund');
  const refunded = refunds.reduce((sum, { amountMicrocents }) => sum + amountMicrocents, 0n);
  const acknowledged = 500_000_000n - (await ledger.balance());
  assert.equal(costMicrocents - refunded, acknowledged);
  await service.verify();
});

test('S12: a sync that fails: nothing more is acknowledged, the process ends, and the next start has all that was', async (t) => {
  if (!canCause(t, 'strace')) return;
  const service = await startService(t);
  const ledger = new TestLedger(service);
  const before = await one(service);
  await inject(t, service, 'error=EIO');
  const outcome = await one(service).catch(() => undefined);
  assert.notEqual(outcome?.status, 200);
  await until(() => service.hasEnded, 60_000);
  assert.match(service.output, /I\/O error/);
  await service.start();
  assert.equal((await ledger.rows(before.id)).length, 1);
  assert.equal((await one(service)).status, 200);
  await service.verify();
});

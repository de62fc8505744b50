/**
 * Somebody sets the clock while requests run (reliability S5; invariants I1 to I5): nobody notices, durations are true,
 * and what is charged does not change.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import {
  ask,
  assertNothingLeft,
  cost,
  exchange,
  endingsService,
  promptTokensOf,
  send,
} from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import { fakeClock } from './fake-clock.ts';

/** From one to the next: an hour ahead, an hour back, far ahead, and home again. */
const jumps = ['+1h', '-1h', '+400d', '+0'] as const;
const tokens = 100;
/** It takes two seconds, and a machine that is busy some more; no jump is as small. */
const totalMsMax = 600_000;

test('the clock is set while requests run: they go on, their durations are true, and their money is right', async (t) => {
  const { service, setClock } = await start(t);
  const ledger = new TestLedger(service);
  for (const jump of jumps) {
    const running = await Promise.all([true, false].map((stream) => send(service, ask('two seconds', { stream }))));
    const leaving = await send(service, ask('paced', { stream: true }));
    await until(() => running[0]!.client.events.length > 2 && leaving.client.events.length > 2);
    setClock(jump);
    await exchange(service, 'three words', false);
    leaving.client.reset();
    for (const { client, id } of running) {
      await until(() => client.text.includes('[DONE]') || client.text.endsWith('}}}'), 60_000);
      const row = await ledger.row(id);
      assert.deepEqual(
        [row.ending, row.costMicrocents],
        ['finished', cost(promptTokensOf('two seconds'), tokens)],
        `${jump}: ${client.text.slice(-300)}`,
      );
      assert.ok(row.totalMs >= 1_000 && row.totalMs < totalMsMax, `${jump}: total_ms ${row.totalMs}`);
      assert.ok((row.firstTokenMs ?? -1) >= 0 && row.firstTokenMs! <= row.totalMs, `${jump}: ${row.firstTokenMs}`);
    }
    const left = await ledger.row(leaving.id);
    assert.equal(left.ending, 'client_left');
    assert.ok(left.totalMs >= 0 && left.totalMs < totalMsMax, `${jump}: total_ms ${left.totalMs}`);
    for (const stream of [true, false]) {
      const { status, id } = await exchange(service, 'three words', stream);
      assert.equal(status, 200);
      assert.equal((await ledger.row(id)).ending, 'finished');
    }
    await assertNothingLeft(service);
  }
  for (const line of service.log)
    if (line['total_ms'] !== undefined)
      assert.ok(Number(line['total_ms']) >= 0 && Number(line['total_ms']) < totalMsMax, JSON.stringify(line));
  await service.verify();
});

test('the clock is set back between a crash and the next start: what ran is recorded, ids stay unique, the ledger is consistent', async (t) => {
  const { service, setClock } = await start(t);
  const ledger = new TestLedger(service);
  for (const jump of jumps) {
    const balance = await ledger.balance();
    await send(service, ask('paced', { stream: true }));
    await until(async () => (await ledger.openRequests()) === 1);
    await service.stop('SIGKILL');
    setClock(jump);
    await service.start();
    assert.equal(await ledger.openRequests(), 0);
    assert.equal(await ledger.balance(), balance);
    await exchange(service, 'three words', true);
    await assertNothingLeft(service);
  }
  const endings = (await ledger.newest(1_000)).map(({ ending }) => ending);
  assert.equal(endings.filter((ending) => ending === 'crashed').length, jumps.length);
  await service.verify();
});

async function start(t: TestContext): Promise<{ service: TestService; setClock(offset: string): void }> {
  const { environment, set } = fakeClock(t);
  const service = endingsService({
    environment,
    firstCreditCents: '450',
    scripts: `
- when: { last_text: two seconds }
  say: [ { text: [ "word " ] } ]
  repeat: ${tokens}
  pace_ms: 20
`,
  });
  t.after(() => service.dispose());
  await service.start();
  return { service, setClock: set };
}

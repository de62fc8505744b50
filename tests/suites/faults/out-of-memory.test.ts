/** V8 runs out of memory under load (reliability S2; invariants I1 to I5): no handler of ours runs, so the start must mend all. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { ask, assertNothingLeft, endingsService, send, slots } from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { until } from '../../support/service.ts';
import { built } from '../../support/built.ts';

const rounds = 3;
/** Ten times what is promised, and three times that, because the tests share their machine. */
const readyMsMax = 60_000;

test(`out of memory, ${rounds} times: aborted without a word of ours, ready again, the ledger consistent, nothing unfinished charged`, async (t) => {
  const probe = pathToFileURL(built('tests/support/allocate-on-signal.ts')).href;
  const service = endingsService({ environment: { NODE_OPTIONS: `--max-old-space-size=96 --import=${probe}` } });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);

  for (let round = 1; round <= rounds; round++) {
    const finished = await send(service, ask('three words', { stream: true }));
    await until(() => finished.client.events.at(-1) === '[DONE]');
    const balance = await ledger.balance();
    const running = await Promise.all(
      Array.from({ length: slots }, (_, index) => send(service, ask('paced', { stream: index % 2 === 0 }))),
    );
    await until(async () => (await ledger.openRequests()) === slots);
    const ended = service.exited();
    process.kill(service.pid, 'SIGUSR2');
    // A shell calls it 134.
    assert.deepEqual(await ended, { code: null, signal: 'SIGABRT' });
    assert.match(service.output, /heap out of memory/);
    for (const { client } of running) {
      await client.closed;
      assert.ok(!client.text.includes('[DONE]') && !client.text.includes('"usage":{'), 'nothing looks finished');
    }

    const restartedAt = performance.now();
    await service.start();
    assert.ok(performance.now() - restartedAt < readyMsMax);
    assert.equal(await ledger.openRequests(), 0);
    // The list of open requests does not know what the client sent as its id.
    for (const row of await ledger.newest(slots)) assert.deepEqual([row.ending, row.costMicrocents], ['crashed', 0n]);
    assert.equal((await ledger.row(finished.id)).ending, 'finished');
    assert.equal(await ledger.balance(), balance);
    await assertNothingLeft(service);
  }
  await service.verify();
});

/** The process is killed (docs/money.md, "the process was killed"; reliability S1). More of it: tests/suites/faults/sigkill. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { until } from '../support/service.ts';
import { ask, assertNothingLeft, cost, exchange, endingsService, promptTokensOf, send } from './endings-service.ts';

/** A model that fails at once, and one that then answers slowly. */
const failing = `
- id: failing
  context_length: 16384
  pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
  fallback: [ demo ]
  backends: [ { engine: scripted, scripts: [ { say: [ { text: "one" } ], fault: { after_tokens: 0, type: error, code: backend_overloaded } } ] } ]
`;

test('process killed while another model serves than the one that was asked for: nothing charged, and that one is recorded', async (t) => {
  const service = endingsService({ models: failing });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const long = await send(service, ask('paced', { model: 'failing', stream: true }));
  await until(() => long.client.text.includes('"model":"demo"'));
  await until(async () => (await ledger.openRequests()) === 1);
  await service.stop('SIGKILL');
  await long.client.closed;

  await service.start();
  const [row] = await ledger.newest(1);
  assert.deepEqual([row?.modelId, row?.ending, row?.costMicrocents], ['demo', 'crashed', 0n]);
  // At least the prompt and a first step of the answer, at the prices of the model that served.
  assert.ok((row?.holdMicrocents ?? 0n) >= cost(promptTokensOf('paced'), 2_048));
  assert.equal(await ledger.balance(), balance);
  assert.equal(await ledger.openRequests(), 0);
  await ledger.verify({ owned: true });
  await assertNothingLeft(service);
  await service.verify();
});

for (const stream of [true, false]) {
  test(`process killed in mid-answer, ${stream ? 'streamed' : 'whole'}: nothing charged, and recorded when it ran for long`, async (t) => {
    const service = endingsService();
    t.after(() => service.dispose());
    await service.start();
    const ledger = new TestLedger(service);
    const finished = await exchange(service, 'three words', stream);
    const balance = await ledger.balance();
    const long = await send(service, ask('paced', { stream }));
    await until(async () => (await ledger.openRequests()) === 1);
    const short = await send(service, ask('silence', { stream }));
    await service.stop('SIGKILL');
    await Promise.all([long.client.closed, short.client.closed]);

    await service.start();
    // The list of open requests does not know what the client saw as its id.
    const [row] = await ledger.newest(1);
    assert.deepEqual([row?.ending, row?.costMicrocents], ['crashed', 0n]);
    assert.ok((row?.holdMicrocents ?? 0n) > 0n);
    assert.equal(row?.unchargedMicrocents, row?.holdMicrocents);
    assert.equal(await ledger.balance(), balance);
    const kept = await ledger.row(finished.id);
    assert.deepEqual([kept.ending, kept.costMicrocents], ['finished', cost(promptTokensOf('three words'), 3)]);
    assert.equal(await ledger.openRequests(), 0);
    await ledger.verify({ owned: true });
    await assertNothingLeft(service);
    await service.verify();
  });
}

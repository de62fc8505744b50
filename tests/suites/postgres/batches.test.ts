/** Batches of three replicas, of which any may be killed: each line is answered once and charged once, whoever ran it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { BatchClient, chatLine, isOver } from '../../support/batch-client.ts';
import { assertEachLineOnce } from '../../support/batch-money.ts';
import { built } from '../../support/built.ts';
import { replicasOf } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const lineCount = 600;
/** Two of three charges take longer than requests wait for them: a kill meets some that are not decided. */
const entry = built('tests/support/slow-settlements-entry.ts');

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('without credit one line of a batch says so, whichever of three replicas runs it; the others run with the next credit', async (t) => {
  const { replicas, ledger } = await replicasOf(t, server, { firstCreditCents: '0.002' });
  const [one, two] = replicas;
  const client = new BatchClient(two);
  const lines = Array.from({ length: 30 }, (_, index) => chatLine(`line-${index}`, 'x', { max_tokens: 10 }));
  const { id } = await client.of(lines);
  const short = await client.when(id, ({ request_counts: counts }) => counts.failed > 0);
  assert.ok(short.request_counts.completed < 29, JSON.stringify(short));
  // Every replica tries once more, and no second line ends.
  await new Promise((resolve) => setTimeout(resolve, 8_000));
  assert.equal((await client.get(id)).request_counts.failed, 1);
  const { code, stderr } = await one.command('credits', 'grant', '--cents', '100', '--account', one.accountId);
  assert.equal(code, 0, stderr);
  const batch = await client.when(id, isOver, 120_000);
  assert.deepEqual([batch.status, batch.request_counts], ['completed', { total: 30, completed: 29, failed: 1 }]);
  assert.equal((await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n).length, 29);
  await one.verify();
});

test(`a batch of ${lineCount} lines, run by three replicas of which two are killed`, async (t) => {
  const { replicas, ledger } = await replicasOf(t, server, { entry });
  const [one, two, three] = replicas;
  const client = new BatchClient(three);
  const credit = await ledger.balance();
  const customIds = Array.from({ length: lineCount }, (_, index) => `line-${index}`);
  const { id } = await new BatchClient(one).of(
    customIds.map((customId, index) => chatLine(customId, index % 3 === 0 ? 'short' : `question of ${customId}`)),
  );
  await client.when(id, ({ request_counts: counts }) => counts.completed > 50, 120_000);
  await one.stop('SIGKILL');
  await client.when(id, ({ request_counts: counts }) => counts.completed > 300, 120_000);
  await two.stop('SIGKILL');
  await one.start();
  const batch = await client.when(id, isOver, 240_000);
  await assertEachLineOnce(batch, customIds, { client, ledger, credit });
  await one.verify();
});

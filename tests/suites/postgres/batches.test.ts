/** Batches of three replicas, of which any may be killed: each line is answered once and charged once, whoever ran it. */
import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { BatchClient, chatLine, isOver } from '../../support/batch-client.ts';
import { assertEachLineOnce } from '../../support/batch-money.ts';
import { built } from '../../support/built.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import type { TestService } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const lineCount = 600;
/** Two of three charges take longer than requests wait for them: a kill meets some that are not decided. */
const entry = built('tests/support/slow-settlements-entry.ts');

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

/** Three replicas of a new database. */
async function replicasOf(
  t: TestContext,
  options: Parameters<typeof serviceOn>[1],
): Promise<{ readonly replicas: readonly [TestService, TestService, TestService]; readonly ledger: TestLedger }> {
  const url = await server.createDatabase();
  const files = join(temporaryFolder(t), 'files');
  mkdirSync(files);
  const replicas: TestService[] = [];
  t.after(() => Promise.all(replicas.map((replica) => replica.dispose())));
  for (let number = 0; number < 3; number++) {
    const replica = serviceOn(url, options);
    replicas.push(replica);
    // What a bucket is for replicas on several machines.
    mkdirSync(join(replica.folder, 'data'), { mode: 0o700 });
    symlinkSync(files, join(replica.folder, 'data', 'files'));
    // Only the first one of a database makes an account, and says so.
    if (number > 0) replica.takesAccountOf(replicas[0]!);
    await replica.start();
  }
  const ledger = new TestLedger(Object.assign(Object.create(replicas[0]!) as TestService, { database: url }));
  return { replicas: replicas as [TestService, TestService, TestService], ledger };
}

test('without credit one line of a batch says so, whichever of three replicas runs it; the others run with the next credit', async (t) => {
  const { replicas, ledger } = await replicasOf(t, { firstCreditCents: '0.002' });
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
  const { replicas, ledger } = await replicasOf(t, { entry });
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

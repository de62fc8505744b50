/** Batches of three replicas, of which any may be killed: each line is answered once and charged once, whoever ran it. */
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

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

test(`a batch of ${lineCount} lines, run by three replicas of which two are killed`, async (t) => {
  const url = await server.createDatabase();
  const files = join(temporaryFolder(t), 'files');
  mkdirSync(files);
  const replicas: TestService[] = [];
  t.after(() => Promise.all(replicas.map((replica) => replica.dispose())));
  for (let number = 0; number < 3; number++) {
    const replica = serviceOn(url, { entry });
    replicas.push(replica);
    // What a bucket is for replicas on several machines.
    mkdirSync(join(replica.folder, 'data'), { mode: 0o700 });
    symlinkSync(files, join(replica.folder, 'data', 'files'));
    // Only the first one of a database makes an account, and says so.
    if (number > 0) replica.takesAccountOf(replicas[0]!);
    await replica.start();
  }
  const [one, two, three] = replicas as [TestService, TestService, TestService];
  const client = new BatchClient(three);
  const ledger = new TestLedger(Object.assign(Object.create(one) as TestService, { database: url }));
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

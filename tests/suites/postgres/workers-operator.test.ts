/** What an operator sees and does is the same with several workers. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { firstDay } from '../../account-api/first-day.ts';
import { addAndRemove } from '../../app/discovery/add-and-remove.ts';
import { downloads } from '../../batches/downloads.ts';
import { describeBackendsAtStart } from '../../cli/backends-at-start.ts';
import { runCommand } from '../../support/command.ts';
import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { PostgresServer } from './server.ts';

const workers = 2;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

test('from the first link to the last request', async (t) => {
  await firstDay(t, { workers, database: await server.createDatabase() });
});

test('results of batches are sent by the process that runs none', async (t) => {
  await downloads(t, { workers, database: await server.createDatabase() });
});

test('what an operator adds is in use by all processes, and after a restart; what is removed is drained', async (t) => {
  await addAndRemove(t, { workers, database: await server.createDatabase() });
});

test('another secret is refused: the workers read the keys', async (t) => {
  const database = await server.createDatabase();
  const config = scriptedModel('- { say: [{ text: "hi" }] }', { settings: noFeatures });
  const service = new TestService({ config, workers, database });
  t.after(() => service.dispose());
  await service.start();
  await service.stop();
  const environment = { TEST_DATABASE: database, TOKENHOUSE_SECRET: 'another'.repeat(8) };
  const { code, stderr } = await runCommand(service.folder, ['serve'], environment);
  assert.equal(code, 78, stderr);
  assert.match(stderr, /API keys in the database were created with another secret/);
  assert.match(stderr, /^ {2}why {5}keys are looked up by a hash that depends on the secret/m);
});

describeBackendsAtStart('backends at a start and at a reload', { workers, database: () => server.createDatabase() });

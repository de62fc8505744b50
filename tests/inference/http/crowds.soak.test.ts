import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService, scriptedModel, until } from '../../support/service.ts';
import { answersIn } from './answers.ts';
import { openFiles, openFilesMax, openMany, outlast } from './crowd.ts';
import { exchange } from './raw.ts';

/** As `crowds.test.ts`, with as many connections as the service takes (reliability C10, I8). */
const service = new TestService({
  limits: '  keep_alive_timeout_seconds: 10',
  config: scriptedModel('- say: [ { text: "hello" } ]'),
});
before(() => service.start());
after(() => service.dispose());

test('10,000 idle connections, or as many as there may be, are closed at the limit', async (context) => {
  // One place is for the ordinary client.
  const count = Math.min(9_990, openFilesMax() - 500);
  const filesBefore = openFiles(service.pid);
  const idlers = await openMany(service.url, count, (socket) =>
    socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'),
  );
  context.diagnostic(
    `${idlers.length} connections, ${idlers.filter(({ isClosed }) => isClosed).length} closed already`,
  );
  await outlast(idlers, '', async () => (await exchange(service.url, { path: '/healthz' })).status);
  for (const { received } of idlers) assert.equal(answersIn(received)[0]?.status, 200);
  await until(() => openFiles(service.pid) <= filesBefore + 10, 60_000);
});

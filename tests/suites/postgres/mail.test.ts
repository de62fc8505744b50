/** The outbox on a real PostgreSQL, with several replicas; the rest in tests/notifications/mail/outbox.test.ts. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Outbox } from '../../../src/notifications/mail/outbox.ts';
import { createLog } from '../../../src/platform/log.ts';
import { startSmtp } from '../../notifications/mail/smtp.ts';
import { uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('three replicas send each mail once', async (t) => {
  const url = await server.createDatabase();
  const smtp = await startSmtp(t);
  const config = {
    from: 'tokenhouse@example.org',
    smtp: { host: '127.0.0.1', port: smtp.port, secure: 'none' as const, user: undefined, password: undefined },
  };
  const log = createLog({ write: () => true, once: () => {} });
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  const outboxes = replicas.map(
    ({ store }) =>
      new Outbox({ repositories: store.repositories, config: () => config, log, newId: uuid, now: () => store.now() }),
  );
  const mail = { to: 'ada@example.org', subject: 'once', text: 'x', kind: 'test', accountId: null };
  for (const outbox of outboxes) outbox.start();
  await Promise.all(
    Array.from({ length: 30 }, (_, index) =>
      outboxes[index % 3]!.send({ ...mail, idempotencyKey: `mail ${index % 20}` }),
    ),
  );
  const { repositories } = replicas[0]!.store;
  await until(
    async () => (await repositories.listMail({ limit: 100 })).filter(({ state }) => state === 'sent').length === 20,
  );
  await Promise.all(outboxes.map((outbox) => outbox.close()));
  assert.equal(smtp.received.length, 20);
  assert.equal(await repositories.forgetMail({ before: 0, keepMax: 15 }), 5);
});

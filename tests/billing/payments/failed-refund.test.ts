/** What the account hears of a refund that has failed: a mail, a webhook, and lines of its statements. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { uuidMaker } from '../../../src/platform/ids/uuid.ts';
import { createLog } from '../../../src/platform/log.ts';
import type { Mail } from '../../../src/notifications/mail/mailer.ts';
import { Notices } from '../../../src/billing/notices/notices.ts';
import { DemoProvider } from '../../../src/billing/payments/demo.ts';
import { Payments } from '../../../src/billing/payments/payments.ts';
import { closeConnection, openConnection } from '../../../src/store/sqlite/connection.ts';
import { WebhookEvents } from '../../../src/notifications/webhooks/events.ts';
import { account, dayMs, issuedTo, openPaper } from '../invoices/invoicing.ts';
import { secret, input } from './claims.ts';

const september = Date.UTC(2026, 8, 1);
const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);

test('a refund of one month that fails in the next is a line of both statements, and is notified of once', async (t) => {
  const paper = await openPaper(t, september);
  const { store, clock, file } = paper;
  const { repositories, ledger } = store;
  await account(paper, 'acct_a', september);
  const connection = openConnection(file);
  for (const [id, role, verified] of [
    ['owner', 'owner', 1],
    ['payer', 'billing', 1],
    ['viewer', 'viewer', 1],
    ['unsure', 'billing', 0],
  ] as const) {
    connection
      .prepare(
        'insert into auth_user (id, name, email, "emailVerified", "createdAt", "updatedAt") values (?, ?, ?, ?, 1, 1)',
      )
      .run(id, id, `${id}@example.org`, verified);
    connection
      .prepare('insert into member (account_id, user_id, role, created_at) values (?, ?, ?, 1)')
      .run('acct_a', id, role);
  }
  closeConnection(connection);
  const now = (): number => clock.now;
  const newId = uuidMaker(now);
  const provider: DemoProvider = new DemoProvider({
    repositories,
    now,
    newId,
    secret,
    accountUrl: () => 'http://localhost:1',
    deliver: async (bytes, signature) => void (await payments.receive(bytes, signature)),
  });
  const payments = new Payments({ ledger, repositories, now, newId, provider, currency: 'usd', log: () => {} });
  const topup = await payments.createTopup(input('acct_a'));
  await provider.play(topup.checkoutId!, 'success');
  clock.now = september + dayMs;
  await provider.play(topup.checkoutId!, 'refund');
  clock.now = october + dayMs;
  await provider.play(topup.checkoutId!, 'refund_failure');

  await repositories.addWebhookEndpoint({
    id: 'whk_1',
    accountId: 'acct_a',
    url: 'http://localhost:1/told',
    description: '',
    events: ['refund.failed'],
    at: clock.now,
    max: 1,
  });
  const mails: Mail[] = [];
  const notices = new Notices({
    repositories,
    mailer: { send: (mail) => Promise.resolve(void mails.push(mail)) },
    events: new WebhookEvents({ repositories, newId, now, woken: () => {} }),
    print: () => Promise.reject(new Error('there is none yet')),
    accountUrl: () => 'http://localhost:1',
    now,
    log: createLog({ write: () => true, once: () => {} }),
  });
  while (await notices.notify());
  while (await notices.notify());
  assert.deepEqual(
    mails.map(({ to }) => to),
    ['owner@example.org', 'payer@example.org'],
  );
  assert.match(mails[0]!.text, new RegExp(`refund of \\$5\\.00 of ${topup.id} has failed`));
  assert.match(mails[0]!.text, /\$5\.00 is back in the credit of account acct_a/);
  const [reported, ...more] = await repositories.listDeliveries({
    accountId: 'acct_a',
    endpointId: 'whk_1',
    limit: 10,
  });
  assert.deepEqual(more, []);
  assert.equal(reported!.type, 'refund.failed');

  clock.now = november + dayMs;
  while (await paper.invoices.issueDue());
  const statements = (await issuedTo(paper, 'acct_a')).map(({ kind, data }) => [
    kind,
    data.statement!.movements.map(({ name, microcents }) => [name, microcents]),
    data.statement!.closingMicrocents,
  ]);
  assert.deepEqual(statements, [
    [
      'statement',
      [
        ['Payments returned', '-500000000'],
        ['Payments', '500000000'],
      ],
      '0',
    ],
    ['statement', [['Returns of payments that failed', '500000000']], '500000000'],
  ]);
});

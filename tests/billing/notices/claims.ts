/** The notices of what has happened, on either store: run by tests/billing/notices and by the suite on PostgreSQL. */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';

import { issueKey } from '../../../src/accounts/key.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { openSecret } from '../../../src/accounts/secret.ts';
import { createLog } from '../../../src/platform/log.ts';
import type { Mail } from '../../../src/notifications/mail/mailer.ts';
import { Notices } from '../../../src/billing/notices/notices.ts';
import { AutoTopups, failuresMax, retryAfterMs } from '../../../src/billing/payments/auto-topup.ts';
import { demoMethods } from '../../../src/billing/payments/demo.ts';
import { WebhookEvents } from '../../../src/notifications/webhooks/events.ts';
import { newCustomer, openTill, type OpenLedger } from '../payments/claims.ts';
import { atEachCall } from '../../store/deaths.ts';
import type { MortalStore } from '../../store/deaths.ts';
import { temporaryFolder, uuid } from '../../store/fixture.ts';

const cent = 1_000_000n;

/** A customer with an endpoint for everything, and an owner. */
async function listener(opened: OpenLedger) {
  const { repositories } = opened.store;
  const accountId = await newCustomer(opened);
  const name = Buffer.from(uuid()).toString('hex');
  const [email, at, tokenHash] = [`${name}@example.org`, opened.store.now(), createSecretKey(randomBytes(32)).export()];
  const invitation = { accountId, email, role: 'owner', invitedBy: 'test', createdAt: at } as const;
  await repositories.createInvitation({ id: `inv_${name}`, tokenHash, expiresAt: at + 60_000, ...invitation });
  const ids = { userId: `user_${name}`, credentialId: `cred_${name}` };
  await repositories.joinAnew({ tokenHash, ...ids, email, name, passwordHash: 'none', at });
  const endpointId = `whk_${name}`;
  await repositories.addWebhookEndpoint({
    id: endpointId,
    accountId,
    url: 'http://localhost:1/told',
    description: '',
    events: null,
    at,
    max: 1,
  });
  const events = async () =>
    (await repositories.listDeliveries({ accountId, endpointId, limit: 100 })).map(({ type, eventId }) => [
      type,
      eventId,
    ]);
  return { accountId, email, events };
}

export function noticeClaims(open: (t: TestContext) => Promise<OpenLedger>): void {
  /** What tells, and the mails that it has sent, each once. */
  const tellers = (store: MortalStore) => {
    const mails = new Map<string, Mail>();
    const notices = new Notices({
      repositories: store.repositories,
      mailer: { send: (mail) => Promise.resolve(void mails.set(mail.idempotencyKey ?? '', mail)) },
      events: new WebhookEvents({
        repositories: store.repositories,
        newId: uuid,
        now: () => store.now(),
        woken: () => {},
      }),
      print: () => Promise.reject(new Error('no invoice is meant')),
      accountUrl: () => 'http://localhost:1',
      now: () => store.now(),
      log: createLog({ write: () => true, once: () => {} }),
    });
    return { notices, mails };
  };

  test('a key that is revoked is notified of once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories, ledger } = opened.store;
    const secret = openSecret({ fromEnvironment: undefined, dataFolder: temporaryFolder(t), warn: () => {} });
    const deaths = await atEachCall(
      opened.store,
      async () => {
        const { accountId, events } = await listener(opened);
        const { row } = issueKey({ accountId, name: 'to be revoked', secret, now: opened.store.now() });
        await repositories.createKey({ key: row, changeId: uuid() });
        return { keyId: row.id, events };
      },
      async (store, { keyId }) => {
        await operate(
          { kind: 'revoke_key', keyId },
          {
            ledger: ledger as never,
            repositories: store.repositories,
            secret,
            newId: uuid,
            now: () => store.now(),
          },
        );
        await tellers(store).notices.notify();
      },
      async ({ keyId, events }, where) => assert.deepEqual(await events(), [['key.revoked', `evt_${keyId}`]], where),
    );
    assert.ok(deaths > 4, `only ${deaths} calls`);
  });

  test('an automatic top-up that stops is notified of once, wherever the process dies', async (t) => {
    const opened = await open(t);
    const { repositories } = opened.store;
    const mailed = new Map<string, Mail>();
    const deaths = await atEachCall(
      opened.store,
      async () => {
        const { accountId, email, events } = await listener(opened);
        await repositories.setAutoTopup({
          accountId,
          enabled: true,
          thresholdMicrocents: 100n * cent,
          amountMicrocents: 500n * cent,
          monthlyCapMicrocents: 5000n * cent,
          by: 'test',
          at: opened.store.now(),
        });
        const methodId = demoMethods.declined;
        await repositories.savePaymentMethod({ accountId, provider: 'demo', customerId: 'c', methodId, savedAt: 1 });
        return { accountId, email, events, clock: { laterMs: 0 } };
      },
      async (store, { accountId, clock }) => {
        const till = openTill({ store });
        const now = (): number => store.now() + clock.laterMs;
        const { notices, mails } = tellers(store);
        const auto = new AutoTopups({
          repositories: store.repositories,
          payments: till.payments,
          mailer: { send: () => Promise.resolve() },
          now,
          newId: uuid,
          accountUrl: () => '',
          log: () => {},
        });
        try {
          // A death may cost a charge its round, and the webhook what the provider said.
          for (let rounds = 0; rounds < 2 * failuresMax; rounds++) {
            await auto.run(AbortSignal.timeout(60_000));
            if (store === opened.store) await till.payments.catchUp(AbortSignal.timeout(60_000));
            clock.laterMs += retryAfterMs + 1;
            if ((await repositories.getAutoTopup({ accountId }))!.stoppedAt !== null) break;
          }
          await notices.notify();
        } finally {
          for (const [key, mail] of mails) mailed.set(key, mail);
        }
      },
      async ({ accountId, email, events }, where) => {
        const [topup] = await repositories.listTopups({ accountId, limit: 1 });
        assert.deepEqual(await events(), [['auto_topup.failed', `evt_${topup!.id}`]], where);
        assert.deepEqual(
          [...mailed.values()].filter(({ to }) => to === email).map(({ kind, subject }) => [kind, subject]),
          [['auto_topup', 'Automatic top-up has stopped']],
          where,
        );
      },
    );
    assert.ok(deaths > 8, `only ${deaths} calls`);
  });
}

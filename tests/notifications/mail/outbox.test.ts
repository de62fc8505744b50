/** Mail from the outbox through a real server; the same on PostgreSQL in tests/suites/postgres/mail.test.ts. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import type { MailConfig, SmtpConfig } from '../../../src/config/config.ts';
import { Secret } from '../../../src/config/secret.ts';
import { createLog } from '../../../src/platform/log.ts';
import type { Mail } from '../../../src/notifications/mail/mailer.ts';
import { mailKeptMs, Outbox, pausesMs } from '../../../src/notifications/mail/outbox.ts';
import type { SqliteStore } from '../../../src/store/sqlite/store.ts';
import { openStore, temporaryFolder, uuid } from '../../store/fixture.ts';
import { testAuthority } from '../../support/https-server.ts';
import { until } from '../../support/service.ts';
import { startSmtp, tlsOfTests } from './smtp.ts';

const hello: Mail = {
  to: 'ada@example.org',
  subject: 'Grüße from Tokenhouse',
  text: 'Hello Ada,\n\nthis is a text — with a long line. '.padEnd(3000, 'x'),
  kind: 'test',
  accountId: null,
};

const smtpAt = (port: number, changes: Partial<SmtpConfig> = {}): MailConfig => ({
  from: 'Tokenhouse <tokenhouse@example.org>',
  smtp: { host: '127.0.0.1', port, secure: 'none', user: undefined, password: undefined, ...changes },
});

interface Scene {
  readonly store: SqliteStore;
  readonly lines: string[];
  readonly clock: { now: number };
  readonly outbox: (config: () => MailConfig, trusted?: string) => Outbox;
  /** The newest mail. */
  readonly newest: () => Promise<NonNullable<Awaited<ReturnType<SqliteStore['repositories']['getMail']>>>>;
}

async function scene(t: TestContext): Promise<Scene> {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  const lines: string[] = [];
  const clock = { now: Date.now() };
  const log = createLog({ write: (line) => lines.push(line) > 0, once: () => {} });
  const outboxes: Outbox[] = [];
  t.after(() => Promise.all(outboxes.map((outbox) => outbox.close())));
  return {
    store,
    lines,
    clock,
    outbox: (config, trusted) => {
      const outbox = new Outbox({
        repositories: store.repositories,
        config,
        log,
        newId: uuid,
        now: () => clock.now,
        trusted,
      });
      outboxes.push(outbox);
      return outbox;
    },
    newest: async () => {
      const [mail] = await store.repositories.listMail({ limit: 1 });
      return (await store.repositories.getMail({ id: mail!.id }))!;
    },
  };
}

test('a mail arrives whole, with its attachment, and its text is no longer kept', async (t) => {
  const { outbox, newest } = await scene(t);
  const smtp = await startSmtp(t);
  const sender = outbox(() => smtpAt(smtp.port));
  sender.start();
  const content = Buffer.from('%PDF-1.7 invoice');
  await sender.send({ ...hello, attachments: [{ name: 'invoice.pdf', contentType: 'application/pdf', content }] });
  await until(async () => (await newest()).state === 'sent');
  const [mail] = smtp.received;
  assert.equal(smtp.received.length, 1);
  assert.equal(mail!.from, 'tokenhouse@example.org');
  assert.deepEqual(mail!.to, ['ada@example.org']);
  assert.match(mail!.source, /Subject: =\?UTF-8\?/);
  assert.match(mail!.source, /auto-submitted: auto-generated/i);
  assert.ok(mail!.source.includes(content.toString('base64')));
  const { id, body, attachments, attempts, sentAt } = await newest();
  assert.match(mail!.source, new RegExp(`Message-ID: <${id}@example\\.org>`, 'i'));
  assert.deepEqual({ body, attachments, attempts }, { body: null, attachments: null, attempts: 1 });
  assert.notEqual(sentAt, null);
});

test('the same idempotency key is sent once, however often and by however many', async (t) => {
  const { outbox, store } = await scene(t);
  const smtp = await startSmtp(t);
  const [one, other] = [outbox(() => smtpAt(smtp.port)), outbox(() => smtpAt(smtp.port))];
  one.start();
  other.start();
  await Promise.all([one, other, one, other].map((each) => each.send({ ...hello, idempotencyKey: 'low:2026-11' })));
  await Promise.all(Array.from({ length: 10 }, (_, index) => one.send({ ...hello, subject: `no ${index}` })));
  const unsent = async () =>
    (await store.repositories.listMail({ limit: 100 })).filter(({ state }) => state !== 'sent').length;
  await until(async () => (await unsent()) === 0);
  assert.equal(smtp.received.length, 11);
});

test('without a server mail waits in the outbox, and is sent when there is one', async (t) => {
  const { outbox, newest, clock, store } = await scene(t);
  const smtp = await startSmtp(t);
  let config: MailConfig = { from: undefined, smtp: undefined };
  const first = outbox(() => config);
  first.start();
  await first.send(hello);
  const waiting = await newest();
  assert.deepEqual([waiting.state, waiting.attempts, waiting.body], ['waiting', 0, hello.text]);
  await first.close();
  config = smtpAt(smtp.port);
  outbox(() => config).start();
  await until(() => smtp.received.length === 1);
  // It is kept for a bounded time, and a bounded number.
  await until(async () => (await newest()).state === 'sent');
  assert.equal(await store.repositories.forgetMail({ before: clock.now - mailKeptMs, keepMax: 5 }), 0);
  for (let index = 0; index < 7; index++) await first.send({ ...hello, subject: `no ${index}` });
  assert.equal(await store.repositories.forgetMail({ before: clock.now - mailKeptMs, keepMax: 5 }), 3);
  assert.deepEqual(
    (await store.repositories.listMail({ limit: 100 })).map(({ subject }) => subject),
    ['no 6', 'no 5', 'no 4', 'no 3', 'no 2'],
  );
  assert.equal(await first.tidy(), false);
  clock.now += mailKeptMs + 1;
  assert.equal(await first.tidy(), true, 'there may be more');
  assert.equal(await first.tidy(), false);
  assert.deepEqual(await store.repositories.listMail({ limit: 1 }), []);
});

test('a server that cannot take a mail now is asked again with growing pauses, and not for ever', async (t) => {
  const { outbox, newest, clock, lines } = await scene(t);
  const smtp = await startSmtp(t);
  smtp.refusals.push(...Array.from({ length: pausesMs.length + 1 }, () => 451));
  await outbox(() => smtpAt(smtp.port)).send(hello);
  for (const [index, pause] of pausesMs.entries()) {
    const sender = outbox(() => smtpAt(smtp.port));
    sender.start();
    await until(async () => (await newest()).attempts === index + 1 && (await newest()).dueAt === clock.now + pause);
    await sender.close();
    clock.now += pause - 1;
    const early = outbox(() => smtpAt(smtp.port));
    early.start();
    await early.close();
    assert.equal((await newest()).attempts, index + 1, 'not before its time');
    clock.now += 1;
  }
  outbox(() => smtpAt(smtp.port)).start();
  await until(async () => (await newest()).state === 'failed');
  const { body, lastError } = await newest();
  assert.equal(body, null);
  assert.match(lastError ?? '', /not now/);
  assert.equal(smtp.received.length, 0);
  assert.doesNotMatch(lines.join(''), /ada@|Hello/, 'the log has no addresses and no texts');
});

test('what a server will never take is given up at once; a server that is not there is asked again', async (t) => {
  const { outbox, newest } = await scene(t);
  const smtp = await startSmtp(t);
  smtp.refusals.push(554);
  const sender = outbox(() => smtpAt(smtp.port));
  sender.start();
  await sender.send(hello);
  await until(async () => (await newest()).state === 'failed');
  await sender.close();
  const nowhere = outbox(() => smtpAt(1));
  nowhere.start();
  await nowhere.send({ ...hello, subject: 'second' });
  await until(async () => (await newest()).lastError !== null);
  const { state, subject } = await newest();
  assert.deepEqual([state, subject], ['waiting', 'second']);
});

test('who died with a mail in hand has it taken over after its claim', async (t) => {
  const { outbox, newest, clock, store } = await scene(t);
  const smtp = await startSmtp(t);
  await outbox(() => smtpAt(smtp.port)).send(hello);
  assert.notEqual(await store.repositories.claimMail({ now: clock.now, untilAt: clock.now + 300_000 }), undefined);
  const early = outbox(() => smtpAt(smtp.port));
  early.start();
  await early.close();
  assert.equal(smtp.received.length, 0);
  clock.now += 300_000;
  outbox(() => smtpAt(smtp.port)).start();
  await until(async () => (await newest()).state === 'sent');
});

test('starttls is used, a server without it gets nothing, and a certificate that nobody vouches for is refused', async (t) => {
  const { outbox, newest } = await scene(t);
  const secured = await startSmtp(t, { ...tlsOfTests(), disabledCommands: [], authOptional: false });
  const config = smtpAt(secured.port, { secure: 'starttls', user: 'mailer', password: new Secret('right') });
  const sender = outbox(() => config, testAuthority());
  sender.start();
  await sender.send(hello);
  await until(() => secured.received.length === 1);
  assert.deepEqual([secured.received[0]!.isSecure, secured.received[0]!.user], [true, 'mailer']);
  await sender.close();

  const mistrustful = outbox(() => config);
  mistrustful.start();
  await mistrustful.send({ ...hello, subject: 'mistrustful' });
  await until(async () => (await newest()).subject === 'mistrustful' && (await newest()).lastError !== null);
  await mistrustful.close();

  const plain = await startSmtp(t);
  const stripped = outbox(() => smtpAt(plain.port, { secure: 'starttls' }), testAuthority());
  stripped.start();
  await stripped.send({ ...hello, subject: 'stripped' });
  await until(async () => (await newest()).subject === 'stripped' && (await newest()).lastError !== null);
  assert.deepEqual([plain.received.length, secured.received.length], [0, 1]);
});

test('a wrong password is tried again later: the operator can mend it', async (t) => {
  const { outbox, newest } = await scene(t);
  const smtp = await startSmtp(t, { authOptional: false, allowInsecureAuth: true });
  const sender = outbox(() => smtpAt(smtp.port, { user: 'mailer', password: new Secret('wrong') }));
  sender.start();
  await sender.send(hello);
  await until(async () => (await newest()).lastError !== null);
  assert.equal((await newest()).state, 'waiting');
});

test('nothing that would become another header or another recipient is taken', async (t) => {
  const { outbox, store } = await scene(t);
  const sender = outbox(() => ({ from: undefined, smtp: undefined }));
  for (const to of ['a@b.c\r\nBcc: x@y.z', 'a@b.c,x@y.z', 'a@b.c x@y.z', 'Ada <a@b.c>', '', 'ada', '@b.c', 'a@'])
    await assert.rejects(sender.send({ ...hello, to }), TypeError, to);
  await assert.rejects(sender.send({ ...hello, subject: 'a\r\nBcc: x@y.z' }), TypeError);
  await assert.rejects(sender.send({ ...hello, text: 'x'.repeat(100_001) }), TypeError);
  assert.deepEqual(await store.repositories.listMail({ limit: 100 }), []);
});

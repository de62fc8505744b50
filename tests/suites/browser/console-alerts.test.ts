/** An alert fires by spending, and a program of one's own hears of it: created, delivered, failed and sent again in the console. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, test } from 'node:test';

import { startReceiver } from '../../notifications/webhooks/receiver.ts';
import type { Received } from '../../notifications/webhooks/receiver.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { signIn } from './console-person.ts';

const service = new TestService({ config: '', console: true });
const visitor = new Visitor(service);
const receiver: { answer: number; started?: Awaited<ReturnType<typeof startReceiver>> } = { answer: 204 };
const closing: (() => void)[] = [];
before(async () => {
  const t = { after: (close: () => void) => void closing.push(close) };
  receiver.started = await startReceiver(t as never, (_, response) => {
    response.statusCode = receiver.answer;
    response.end(receiver.answer === 204 ? '' : '<b>out of order</b>');
  });
  const models = scriptedModel('- { say: [{ text: "It is Paris." }] }', { settings: noFeatures }).replace(
    'input_cents_per_million: 5,',
    'input_cents_per_million: 500000,',
  );
  service.configure({ config: `webhooks: { allow_hosts: ["${receiver.started.host}"] }\n${models}`, console: true });
  await service.start();
  await visitor.becomeOwner();
});
after(async () => {
  await service.dispose();
  for (const close of closing) close();
});

const [phone, desktop] = ['dark, 360 px', 'light, 1280 px'].map((name) => looks.find((look) => look.name === name)!);
/** The time of the longest job between two looks, and that of a busy machine. */
const nextLookMs = 90_000;

test('alerts are suggested, made, changed and deleted; a limit is a bar', async (t) => {
  const person = await Person.at(await openBrowser(t), phone!, [service.accountUrl]);
  const { page } = person;
  await signIn(person, service, owner, { next: '/alerts' });
  await person.reads('None: all keys together spend up to the credit.');
  await person.look();
  await person.press('Add the alert Low credit');
  const rows = page.getByRole('table', { name: 'Alerts' }).locator('[data-row]');
  await until(async () => (await rows.count()) === 1);
  await person.press('Add the alert Daily spending');
  await until(async () => (await rows.count()) === 2);
  assert.equal(await page.getByRole('button', { name: /^Add the alert/ }).count(), 0);
  const [low] = (await visitor.get('/v1/spend_alerts')).data.filter(({ kind }: { kind: string }) => kind === 'balance');
  assert.deepEqual([low.runway_days, low.recipients.members.length, low.webhook], [3, 1, true]);

  await person.press('Actions for Daily spending');
  await page.getByRole('menuitem', { name: 'Change' }).click();
  await page.getByLabel('Amount').fill('0.01');
  await page.getByLabel('Whose spending').selectOption('tag');
  await page.getByLabel('Label').fill('nightly');
  await person.look();
  await page.getByLabel('Whose spending').selectOption('account');
  await person.press('Save');
  await person.reads('when a day costs $0.01');
  await person.press('Actions for Low credit');
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await until(async () => (await rows.count()) === 1);

  await person.press('Set a limit');
  await page.getByLabel('Amount').fill('4,50');
  await page.getByLabel('Per', { exact: true }).selectOption('week');
  await person.press('Save');
  await person.reads('$0.00 of $4.50 spent this week');
  await person.look();
  assert.equal((await visitor.get('/v1/spend_limit')).threshold_amount, 450);
  await person.leave();
});

test('an endpoint gets a ping, and what it refused again; an alert that fires by spending is there too', async (t) => {
  const { url, received } = receiver.started!;
  const person = await Person.at(await openBrowser(t), desktop!, [service.accountUrl]);
  const { page } = person;
  await signIn(person, service, owner, { next: '/alerts' });
  await page.getByRole('button', { name: 'Add endpoint' }).click();
  await page.getByRole('dialog').getByLabel('Address').fill('http://10.0.0.1/hook');
  person.expects(400);
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  await page.locator('dialog [aria-invalid=true]').waitFor();
  await person.look();
  await page.getByRole('dialog').getByLabel('Address').fill(url);
  await page.getByRole('dialog').getByLabel('Description').fill('<b>Pager</b>');
  await page.getByRole('dialog').getByLabel('All events').uncheck();
  await page
    .getByRole('dialog')
    .getByLabel(/^balance\.low/)
    .uncheck();
  await person.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Add endpoint' }).click();
  const field = page.getByLabel('Secret', { exact: true });
  await field.waitFor();
  const secret = await field.inputValue();
  assert.match(secret, /^whsec_/);
  await person.look();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  assert.ok(await field.isVisible(), 'it is not closed before it is safe');
  await person.press('Copy the secret');
  await person.press('Done');
  await page.getByRole('link', { name: url }).click();
  await page.waitForURL(/\/alerts\/webhooks\/whe_/);
  await person.reads('Nothing sent yet');

  const rows = page.getByRole('table', { name: /^Deliveries/ }).locator('[data-row]');
  await person.press('Test');
  await page.getByRole('row', { name: /^ping delivered 204/ }).waitFor();
  assert.equal(received.length, 1);
  assert.equal(received[0]!.headers['webhook-signature'], signatureOf(received[0]!, secret));

  receiver.answer = 503;
  await person.press('Test');
  await page.getByRole('row', { name: /^ping waiting 503/ }).waitFor();
  receiver.answer = 204;
  await page
    .getByRole('row', { name: /^ping waiting 503/ })
    .getByRole('link')
    .click();
  await person.reads('<b>out of order</b>');
  await person.look();
  const before = received.length;
  await person.press('Send again');
  await until(async () => (await page.getByRole('dialog').getByText('delivered').count()) > 0);
  assert.ok(received.length > before);
  const [refused, again] = [received[before - 1]!, received.at(-1)!];
  assert.deepEqual([again.body, again.headers['webhook-id']], [refused.body, refused.headers['webhook-id']]);
  await page.keyboard.press('Escape');

  // More than a cent of this day.
  const made = await visitor.ask('POST', '/v1/keys', { name: 'Spender' });
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${made.body.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'What is the capital of France?' }] }),
  });
  assert.equal(answer.status, 200, await answer.text());
  await until(async () => (await rows.filter({ hasText: 'spend_alert.fired' }).count()) === 1, nextLookMs);
  await page.getByRole('row', { name: /^spend_alert\.fired delivered 204/ }).waitFor();
  await person.look();
  const fired = JSON.parse(received.find(({ body }) => body.includes('spend_alert.fired'))!.body) as { data: object };
  assert.ok(JSON.stringify(fired.data).includes('Daily spending'));
  const { data: mails } = await visitor.get('/v1/admin/outbox?limit=100');
  assert.ok(
    mails.some(({ to, subject }: { to: string; subject: string }) => to === owner.email && /Daily/.test(subject)),
  );

  await page.goto(`${service.accountUrl}/alerts`);
  await page.getByRole('row', { name: /^Daily spending .* fired/ }).waitFor();
  await person.reads(/\$0\.0\d of \$4\.50 spent this week/);
  await person.look();

  // Disabled, nothing is sent; deleted, it is gone.
  await page.getByRole('link', { name: url }).click();
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Disable' }).click();
  await page.getByText('disabled', { exact: true }).waitFor();
  assert.ok(await page.getByRole('button', { name: 'Test' }).isDisabled());
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Enable' }).click();
  await page.getByText('active', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.waitForURL(`${service.accountUrl}/alerts`);
  await person.reads('No endpoints');
  await person.leave();
});

/** As Standard Webhooks says, by hand. */
function signatureOf({ headers, body }: Received, secret: string): string {
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
  return `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
}

/**
 * A whole life in the console, told once: the owner's link, the first request seen arriving, a key, the playground, a payment and
 * its receipt, a member who signs in with codes and revokes a key, credit from the operator, and all of it in the audit log. How
 * it is done is up to the hands: those of `console-keyboard.test.ts` and of `console-mouse.test.ts`.
 */
import assert from 'node:assert/strict';

import type { Browser, Locator } from 'playwright-core';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, ownerToken, Visitor } from '../../support/visitor.ts';
import { Person } from './browser.ts';
import type { Look } from './browser.ts';
import { linkMailedTo } from './console-person.ts';

/** How somebody does things in the console. */
export interface Hands {
  readonly person: Person;
  /** Opens a page by its name in the navigation. */
  goTo(page: string, path: string): Promise<void>;
  /** A button or a link. */
  use(wanted: Locator): Promise<void>;
  /** Fills the fields of a form in their order, and sends it with the button of this name. `begins`: the first has the focus by itself. */
  fill(fields: readonly Filled[], send: string, begins: boolean): Promise<void>;
  /** Copies what a field has that was just shown. */
  copy(secret: Locator, button: string): Promise<void>;
  openTab(name: string): Promise<void>;
  /** An item of the menu behind a button. */
  choose(menu: string, item: string): Promise<void>;
  /** Opens what the first row of a table leads to. */
  openFirstRow(link: Locator): Promise<void>;
  closeDialog(): Promise<void>;
}

/** The label of a field, and what is typed. */
export type Filled = readonly [label: string | RegExp, text: string];

export const fieldOf = ({ page }: Person, label: string | RegExp): Locator => page.getByLabel(label, { exact: true });

export const lifeService = (): TestService =>
  new TestService({
    config: scriptedModel('- { say: [{ text: "It is " }, { text: "Paris." }] }', { settings: noFeatures }),
    console: true,
  });

const member = { email: 'dora@example.org', name: 'Dora', password: 'another horse battery' };

/** From the first start on. Returns the owner's hands, at the audit log. */
export async function live(
  browser: Browser,
  service: TestService,
  look: Look,
  handsOf: (person: Person) => Hands,
): Promise<Hands> {
  const boss = await Person.at(browser, look, [service.accountUrl, service.url]);
  const hands = handsOf(boss);
  await becomesOwner(hands, service);
  await asksFirst(hands, service);
  await makesKey(hands, 'By hand');
  await playsAround(hands);
  const operator = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await operator.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  await paysAndGetsReceipt(hands, service, operator);
  await invites(hands);
  const link = service.accountUrl + (await linkMailedTo(operator, member.email, '/invitation'));
  const dora = await Person.at(browser, look, [service.accountUrl]);
  await joins(handsOf(dora), service, link);
  await dora.leave();
  await grantsCredit(hands, operator);
  await hands.goTo('Audit log', '/audit');
  await hands.openFirstRow(boss.page.getByRole('link', { name: 'credit.move' }));
  await boss.page.getByRole('dialog', { name: 'credit.move' }).waitFor();
  await boss.look();
  await hands.closeDialog();
  await boss.page.getByRole('dialog').waitFor({ state: 'detached' });
  for (const action of ['key.revoke', 'two_factor.enable', 'invite.accept', 'key.create'])
    await boss.page.getByRole('link', { name: action }).first().waitFor();
  return hands;
}

const button = ({ person: { page } }: Hands, name: string): Locator => page.getByRole('button', { name, exact: true });

const inDialog = ({ person: { page } }: Hands, name: string): Locator =>
  page.getByRole('dialog').getByRole('button', { name, exact: true });

async function becomesOwner(hands: Hands, service: TestService): Promise<void> {
  const { page } = hands.person;
  await page.goto(`${service.accountUrl}/welcome#${await ownerToken(service)}`);
  const fields = [
    ['Your name', owner.name],
    ['E-mail address', owner.email],
    ['Password', owner.password],
  ] as const;
  await hands.fill(fields, 'Create the owner account', true);
  await hands.use(button(hands, 'Later'));
  await page.waitForURL(`${service.accountUrl}/`);
}

/** By the button, and then by a program: the light says that it has arrived. */
async function asksFirst(hands: Hands, service: TestService): Promise<void> {
  await hands.goTo('Start', '/start');
  await hands.use(button(hands, 'Send first request'));
  await hands.person.reads('It is Paris.');
  const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 200);
  await hands.person.reads(/It has arrived: demo/);
}

async function makesKey(hands: Hands, name: string): Promise<void> {
  const { page } = hands.person;
  await hands.goTo('Keys', '/keys');
  await hands.use(page.getByRole('main').getByRole('link', { name: 'Create key' }).first());
  await hands.fill([['Name', name]], 'Create key', true);
  await hands.copy(page.getByLabel('The key', { exact: true }), 'Copy the key');
  await hands.use(button(hands, 'Done'));
  await page.getByRole('link', { name }).waitFor();
}

async function playsAround(hands: Hands): Promise<void> {
  const { page } = hands.person;
  await hands.goTo('Playground', '/playground');
  await hands.use(button(hands, 'Create a key for this page'));
  await hands.person.reads(/^Key ….{4}, ends/);
  await hands.fill([['Message', 'capital of France?']], 'Run', false);
  const answer = page.getByRole('article', { name: /^Answer of / });
  await answer.getByText('It is Paris.', { exact: true }).waitFor();
  await answer.getByText(/\$0\.00\d+/).waitFor();
}

/** The receipt of a payment is its invoice (decision 024). */
async function paysAndGetsReceipt(hands: Hands, service: TestService, operator: Visitor): Promise<void> {
  const { page } = hands.person;
  await hands.goTo('Billing', '/billing');
  await hands.use(page.getByRole('main').getByRole('link', { name: 'Add credit' }).first());
  await hands.use(button(hands, 'Continue to payment'));
  await page.waitForURL(/\/v1\/payments\/demo\/cs_demo_/);
  await hands.use(button(hands, 'Pay'));
  await page.waitForURL(`${service.accountUrl}/billing?checkout=done`);
  await hands.person.reads(/ is paid, and the credit can be spent\./);
  await until(async () => (await operator.get('/v1/receipts')).data.length > 0, 60_000);
  await hands.openTab('Receipts');
  const [paper] = await Promise.all([
    page.waitForEvent('download'),
    hands.use(page.getByRole('button', { name: /^Save .* as a PDF$/ })),
  ]);
  assert.match(paper.suggestedFilename(), /\.pdf$/);
}

async function invites(hands: Hands): Promise<void> {
  const { page } = hands.person;
  await hands.goTo('Team', '/team');
  await hands.use(page.getByRole('main').getByRole('link', { name: 'Invite' }).first());
  await hands.fill([['E-mail address', member.email]], 'Send invitation', true);
  await hands.person.reads(`Invitation sent to ${member.email}`);
}

/** The member: sets codes up, signs in with them, and revokes a key of her own. */
async function joins(hands: Hands, service: TestService, link: string): Promise<void> {
  const { page } = hands.person;
  await page.goto(link);
  const fields = [
    [/^Your name/, member.name],
    [/^Password/, member.password],
  ] as const;
  await hands.fill(fields, 'Accept', false);
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await hands.goTo('Settings', '/settings');
  await hands.openTab('Security');
  await hands.use(button(hands, 'Set up codes'));
  await hands.fill([['Password', member.password]], 'Continue', true);
  const code = page.getByLabel('Six-digit code', { exact: true });
  await code.waitFor();
  const secret = (await page.locator('dialog code').innerText()).replaceAll(' ', '');
  await hands.fill([['Six-digit code', totp(secret)]], 'Turn on', true);
  await hands.use(button(hands, 'I have them'));
  await hands.person.reads('After the password, a code of your authenticator app is asked for.');

  await hands.choose('Your account', 'Sign out');
  await page.waitForURL(/\/sign-in/);
  const credentials = [
    ['E-mail address', member.email],
    ['Password', member.password],
  ] as const;
  await hands.fill(credentials, 'Sign in', true);
  await hands.fill([['Code', totp(secret)]], 'Sign in', true);
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await makesKey(hands, 'Laptop');
  await hands.openFirstRow(page.getByRole('link', { name: 'Laptop' }));
  await page.waitForURL(/\/keys\/key_/);
  await hands.choose('More', 'Revoke');
  await hands.use(inDialog(hands, 'Revoke'));
  await page.waitForURL(`${service.accountUrl}/keys`);
}

async function grantsCredit(hands: Hands, operator: Visitor): Promise<void> {
  const { page } = hands.person;
  const [{ id, name, balance_microcents: balance }] = (await operator.get('/v1/admin/accounts')).data;
  await hands.goTo('Accounts', '/operator/accounts');
  await hands.openFirstRow(page.getByRole('main').getByRole('link', { name }));
  await page.waitForURL((url) => url.pathname === `/operator/accounts/${id}`);
  await hands.use(button(hands, 'Grant credit'));
  const fields = [
    ['Amount', '12.50'],
    ['Reason', 'Welcome'],
  ] as const;
  await hands.fill(fields, 'Grant credit', true);
  await hands.person.reads('Welcome');
  await until(async () => (await operator.get('/v1/account')).balance_microcents === balance + 1_250_000_000);
}

/**
 * A whole life in the console, told once: the owner's link, the first request seen arriving, a key, the playground, a payment and
 * its receipt, a member who signs in with codes and revokes a key, credit from the operator, and all of it in the audit log. How
 * it is done is up to the hands: those of `console-keyboard.test.ts` and of `console-mouse.test.ts`, each in a language and on a
 * screen of its own. What is looked for is named by the catalogues of the console.
 */
import assert from 'node:assert/strict';

import type { Browser, Locator } from 'playwright-core';

import { ConsoleWords } from '../../support/console-texts.ts';
import type { ConsoleLanguage } from '../../support/console-texts.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, ownerToken, Visitor } from '../../support/visitor.ts';
import { Person } from './browser.ts';
import type { Look } from './browser.ts';
import { linkMailedTo } from './console-person.ts';

/** How somebody does things in the console. */
export interface Hands {
  readonly person: Person;
  readonly words: ConsoleWords;
  /** Opens a page by its name in the navigation. */
  goTo(page: string, path: string): Promise<void>;
  /** Of a list of options, the value that is given. */
  pick(label: string, value: string): Promise<void>;
  /** A date, as `2026-12-31`. */
  date(label: string | RegExp, day: string): Promise<void>;
  /** A button or a link. */
  use(wanted: Locator): Promise<void>;
  /** Fills the fields of a form in their order, and sends it with the button of this name. `begins`: the first has the focus by itself. */
  fill(fields: readonly Filled[], send: string | RegExp, begins: boolean): Promise<void>;
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

const locales: Readonly<Record<ConsoleLanguage, string>> = { en: 'en-US', de: 'de-DE', zh: 'zh-CN' };

/** Who lives, and how. */
export interface Life {
  readonly browser: Browser;
  readonly service: TestService;
  readonly look: Look;
  readonly language: ConsoleLanguage;
  readonly handsOf: (person: Person, words: ConsoleWords) => Hands;
}

export async function born({ browser, service, look, language, handsOf }: Life): Promise<Hands> {
  const person = await Person.at(browser, look, [service.accountUrl, service.url], locales[language]);
  return handsOf(person, new ConsoleWords(language));
}

/** From the first start to a request with a key, which is revoked then. */
export async function liveShortly(life: Life): Promise<void> {
  const hands = await born(life);
  await becomesOwner(hands, life.service);
  await asksFirst(hands, life.service);
  await makesKey(hands, 'Laptop');
  await revokesNewest(hands, life.service, 'Laptop');
  await fits(hands);
  await hands.person.leave();
}

/** From the first start on. Returns the owner's hands, at the audit log. */
export async function live(life: Life): Promise<Hands> {
  const { service } = life;
  const hands = await born(life);
  const boss = hands.person;
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
  const dora = await born(life);
  await joins(dora, service, link);
  await dora.person.leave();
  await grantsCredit(hands, operator);
  await opens(hands, 'audit', '/audit');
  await hands.openFirstRow(boss.page.getByRole('link', { name: 'credit.move' }));
  await boss.page.getByRole('dialog', { name: 'credit.move' }).waitFor();
  await boss.look();
  await hands.closeDialog();
  await boss.page.getByRole('dialog').waitFor({ state: 'detached' });
  for (const action of ['key.revoke', 'two_factor.enable', 'invite.accept', 'key.create'])
    await boss.page.getByRole('link', { name: action }).first().waitFor();
  return hands;
}

export const button = ({ person: { page }, words }: Hands, area: string, key: string): Locator =>
  page.getByRole('button', { name: words.text(area, key), exact: true });

export const inDialog = ({ person: { page }, words }: Hands, area: string, key: string): Locator =>
  page.getByRole('dialog').getByRole('button', { name: words.text(area, key), exact: true });

export const linkIn = ({ person: { page }, words }: Hands, area: string, key: string): Locator =>
  page
    .getByRole('main')
    .getByRole('link', { name: words.text(area, key), exact: true })
    .first();

/** What is shown is no wider than the screen, and nothing in a dialog than the dialog. */
export async function fits({ person }: Hands): Promise<void> {
  await person.look(false);
  const wide = await person.page.evaluate(
    '[...document.querySelectorAll("dialog[open]")].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)',
  );
  assert.deepEqual(wide, []);
}

/** A page, which fits its screen. */
export async function opens(hands: Hands, area: string, path: string): Promise<void> {
  await hands.goTo(hands.words.page(area, path), path);
  await fits(hands);
}

export async function becomesOwner(hands: Hands, service: TestService): Promise<void> {
  const { words, person } = hands;
  await person.page.goto(`${service.accountUrl}/welcome#${await ownerToken(service)}`);
  const fields = [
    [words.text('sign-in', 'name'), owner.name],
    [words.text('sign-in', 'email'), owner.email],
    [words.text('sign-in', 'password'), owner.password],
  ] as const;
  await hands.fill(fields, words.text('sign-in', 'createOwner'), true);
  await hands.use(button(hands, 'sign-in', 'later'));
  await person.page.waitForURL(`${service.accountUrl}/`);
}

/** By the button, and then by a program: the light says that it has arrived. */
async function asksFirst(hands: Hands, service: TestService): Promise<void> {
  await opens(hands, 'start', '/start');
  await hands.use(button(hands, 'start', 'send'));
  await hands.person.reads('It is Paris.');
  const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 200);
  await hands.person.reads(hands.words.pattern('start', 'arrived', { model: 'demo' }));
}

/** Returns its secret. */
export async function makesKey(hands: Hands, name: string): Promise<string> {
  const { words } = hands;
  const { page } = hands.person;
  await opens(hands, 'keys', '/keys');
  await hands.use(linkIn(hands, 'keys', 'create'));
  await hands.fill([[words.text('keys', 'name'), name]], words.text('keys', 'create'), true);
  const secret = page.getByRole('textbox', { name: words.text('keys', 'secret'), exact: true });
  await secret.waitFor();
  await fits(hands);
  const text = await secret.inputValue();
  await hands.copy(secret, words.text('keys', 'copyKey'));
  await hands.use(button(hands, 'keys', 'done'));
  await page.getByRole('link', { name }).waitFor();
  return text;
}

async function revokesNewest(hands: Hands, service: TestService, name: string): Promise<void> {
  const { page } = hands.person;
  await hands.openFirstRow(page.getByRole('link', { name }));
  await page.waitForURL(/\/keys\/key_/);
  await hands.choose(hands.words.text('keys', 'more'), hands.words.text('keys', 'revoke'));
  await hands.use(inDialog(hands, 'keys', 'revoke'));
  await page.waitForURL(`${service.accountUrl}/keys`);
}

async function playsAround(hands: Hands): Promise<void> {
  const { words } = hands;
  const { page } = hands.person;
  await opens(hands, 'playground', '/playground');
  await hands.person.reads(words.pattern('playground', 'keyOfSession'));
  await hands.fill(
    [[words.text('playground', 'message'), 'capital of France?']],
    words.text('playground', 'run'),
    false,
  );
  const answer = page.getByRole('article', { name: words.pattern('playground', 'answerOf') });
  await answer.getByText('It is Paris.', { exact: true }).waitFor();
  await answer.getByText(/^\$?0[.,]00\d+/).waitFor();
  await fits(hands);
}

/** The receipt of a payment is its invoice (decision 024). The page of the demonstration is no page of the console, and English. */
export async function paysAndGetsReceipt(hands: Hands, service: TestService, operator: Visitor): Promise<void> {
  const { words } = hands;
  const { page } = hands.person;
  await opens(hands, 'billing', '/billing');
  await hands.use(linkIn(hands, 'billing', 'add'));
  await hands.use(button(hands, 'billing', 'toPayment'));
  await page.waitForURL(/\/v1\/payments\/demo\/cs_demo_/);
  await hands.use(page.getByRole('button', { name: /^Pay \$/ }));
  await page.waitForURL(`${service.accountUrl}/billing?checkout=done`);
  await hands.person.reads(words.pattern('billing', 'paidNow'));
  await until(async () => (await operator.get('/v1/receipts')).data.length > 0, 60_000);
  await hands.openTab(words.text('billing', 'receipts'));
  const [paper] = await Promise.all([
    page.waitForEvent('download'),
    hands.use(page.getByRole('button', { name: words.pattern('billing', 'save') })),
  ]);
  assert.match(paper.suggestedFilename(), /\.pdf$/);
}

async function invites(hands: Hands): Promise<void> {
  const { words } = hands;
  await opens(hands, 'team', '/team');
  await hands.use(linkIn(hands, 'team', 'invite'));
  await hands.fill([[words.text('team', 'email'), member.email]], words.text('team', 'sendInvitation'), true);
  await hands.person.reads(words.text('team', 'invited', { email: member.email }));
}

/** The member: sets codes up, signs in with them, and revokes a key of her own. */
async function joins(hands: Hands, service: TestService, link: string): Promise<void> {
  const { words } = hands;
  const { page } = hands.person;
  await page.goto(link);
  // Their labels say that they are optional, too.
  const fields = [
    [words.pattern('sign-in', 'name'), member.name],
    [words.pattern('sign-in', 'password'), member.password],
  ] as const;
  await hands.fill(fields, words.text('sign-in', 'accept'), false);
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await opens(hands, 'settings', '/settings');
  await hands.openTab(words.text('settings', 'security'));
  await hands.use(button(hands, 'settings', 'enableCodes'));
  await hands.fill([[words.text('settings', 'password'), member.password]], words.text('settings', 'continue'), true);
  const label = words.text('settings', 'code');
  await page.getByLabel(label, { exact: true }).waitFor();
  await fits(hands);
  const secret = (await page.locator('dialog code').innerText()).replaceAll(' ', '');
  await hands.fill([[label, totp(secret)]], words.text('settings', 'turnOn'), true);
  await hands.use(button(hands, 'settings', 'haveThem'));
  await hands.person.reads(words.text('settings', 'codesOn'));

  await hands.choose(words.text('app', 'userMenu'), words.text('app', 'signOut'));
  await page.waitForURL(/\/sign-in/);
  const credentials = [
    [words.text('sign-in', 'email'), member.email],
    [words.text('sign-in', 'password'), member.password],
  ] as const;
  const signIn = words.text('sign-in', 'signIn');
  await hands.fill(credentials, signIn, true);
  await hands.fill([[words.text('sign-in', 'code'), totp(secret)]], signIn, true);
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await makesKey(hands, 'Laptop');
  await revokesNewest(hands, service, 'Laptop');
}

async function grantsCredit(hands: Hands, operator: Visitor): Promise<void> {
  const { words } = hands;
  const { page } = hands.person;
  const [{ id, name, balance_microcents: balance }] = (await operator.get('/v1/admin/accounts')).data;
  await opens(hands, 'operator-accounts', '/operator/accounts');
  await hands.openFirstRow(page.getByRole('main').getByRole('link', { name }));
  await page.waitForURL((url) => url.pathname === `/operator/accounts/${id}`);
  await hands.use(button(hands, 'operator-accounts', 'grant'));
  const fields = [
    [words.text('operator-accounts', 'amount'), '12.50'],
    [words.text('operator-accounts', 'reason'), 'Welcome'],
  ] as const;
  await hands.fill(fields, words.text('operator-accounts', 'grant'), true);
  await hands.person.reads('Welcome');
  await until(async () => (await operator.get('/v1/account')).balance_microcents === balance + 1_250_000_000);
}

/**
 * A whole life in the console by keyboard alone: from the owner's link to a member who signs in with codes and revokes a key.
 * What has the focus is always seen, and nothing is farther than a few dozen presses of Tab.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { Locator } from 'playwright-core';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, ownerToken, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { linkMailedTo } from './console-person.ts';

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "It is " }, { text: "Paris." }] }', { settings: noFeatures }),
  console: true,
});
before(() => service.start());
after(() => service.dispose());

const look = looks.find(({ name }) => name === 'light, 1280 px')!;
const member = { email: 'dora@example.org', name: 'Dora', password: 'another horse battery' };
const tabsMax = 60;

/** Somebody who has no mouse. */
class Typist {
  readonly #person: Person;

  constructor(person: Person) {
    this.#person = person;
  }

  async press(...keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.#person.page.keyboard.press(key);
  }

  async type(text: string): Promise<void> {
    await this.#person.page.keyboard.type(text);
  }

  /** Tab until it has the focus, which is then to be seen. */
  async tabTo(wanted: Locator): Promise<void> {
    await wanted.first().waitFor();
    for (let tabs = 0; tabs < tabsMax; tabs++) {
      if (await hasFocus(wanted.first())) {
        const outline = await this.#person.page.evaluate('getComputedStyle(document.activeElement).outlineStyle');
        assert.notEqual(outline, 'none', `the focus of ${String(wanted)} is seen`);
        return;
      }
      await this.press('Tab');
    }
    assert.fail(`${String(wanted)} is not reached within ${tabsMax} presses of Tab`);
  }

  async tabToButton(name: string, within: Pick<Person['page'], 'getByRole'> = this.#person.page): Promise<void> {
    await this.tabTo(within.getByRole('button', { name, exact: true }));
  }

  /** By the palette, as quick as by a mouse. Keys mean something once the frame around the pages is there. */
  async goTo(page: string, path: string): Promise<void> {
    await this.#person.page.getByRole('navigation').first().waitFor();
    await this.press('Control+k');
    await this.#person.page.getByRole('combobox').waitFor();
    await this.type(page);
    await this.press('Enter');
    await this.#person.page.waitForURL(service.accountUrl + path);
    await this.#person.page.getByRole('heading', { level: 1 }).waitFor();
  }

  /** An item of a menu that is open: by its first letters. */
  async choose(item: string): Promise<void> {
    const wanted = this.#person.page.getByRole('menuitem', { name: item, exact: true });
    await wanted.waitFor();
    await this.type(item.slice(0, 5));
    await until(() => hasFocus(wanted));
    await this.press('Enter');
  }

  /** The field that a page or a dialog begins with has the focus by itself. */
  async startsAt(label: string): Promise<void> {
    const field = this.#person.page.getByLabel(label, { exact: true });
    await field.waitFor();
    await until(() => hasFocus(field));
  }
}

const hasFocus = (of: Locator): Promise<boolean> =>
  of.evaluate(
    (element: { readonly ownerDocument: { readonly activeElement: unknown } }) =>
      element === element.ownerDocument.activeElement,
  );

test('owner, first request, key, top-up, invitation, codes, revocation, audit: without a mouse', async (t) => {
  const browser = await openBrowser(t);
  const boss = await Person.at(browser, look, [service.accountUrl, service.url]);
  const { page } = boss;
  const keys = new Typist(boss);
  await page.goto(`${service.accountUrl}/welcome#${await ownerToken(service)}`);
  await keys.startsAt('Your name');
  await keys.type(owner.name);
  await keys.press('Tab');
  await keys.type(owner.email);
  await keys.press('Tab');
  await keys.type(owner.password);
  await keys.press('Enter');
  await keys.tabToButton('Later');
  await keys.press('Enter');
  await page.waitForURL(`${service.accountUrl}/`);

  await keys.goTo('start', '/start');
  await keys.tabToButton('Send first request');
  await keys.press('Enter');
  await boss.reads('It is Paris.');
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }),
  });
  assert.equal(answer.status, 200);
  await boss.reads(/It has arrived: demo/);

  await keys.goTo('keys', '/keys');
  await keys.tabTo(page.getByRole('link', { name: 'Create key' }));
  await keys.press('Enter');
  await keys.startsAt('Name');
  await keys.type('By hand');
  await keys.press('Enter');
  const secret = page.getByLabel('The key', { exact: true });
  await secret.waitFor();
  await until(() => hasFocus(secret));
  // It is selected already.
  await keys.press('Control+c');
  await keys.tabToButton('Done');
  await keys.press('Enter');
  await page.getByRole('link', { name: 'By hand' }).waitFor();

  await keys.goTo('billing', '/billing');
  await keys.tabTo(page.getByRole('link', { name: 'Add credit' }));
  await keys.press('Enter');
  await keys.tabToButton('Continue to payment');
  await keys.press('Enter');
  await page.waitForURL(/\/v1\/payments\/demo\/cs_demo_/);
  await keys.tabTo(page.getByRole('button', { name: 'Pay', exact: true }));
  await keys.press('Enter');
  await page.waitForURL(`${service.accountUrl}/billing?checkout=done`);
  await boss.reads(/ is paid, and the credit can be spent\./);
  // Tabs are walked with arrows.
  await keys.tabTo(page.getByRole('tab', { name: 'Payments' }));
  await keys.press('ArrowRight');
  await page.getByRole('tab', { name: 'Movements', selected: true }).waitFor();

  await keys.goTo('team', '/team');
  await keys.tabTo(page.getByRole('link', { name: 'Invite' }));
  await keys.press('Enter');
  await keys.startsAt('E-mail address');
  await keys.type(member.email);
  await keys.press('Enter');
  await boss.reads(`Invitation sent to ${member.email}`);
  const operator = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await operator.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  await joins(browser, service.accountUrl + (await linkMailedTo(operator, member.email, '/invitation')));

  await keys.goTo('audit', '/audit');
  await page.getByRole('link', { name: 'key.revoke' }).waitFor();
  await keys.press('j', 'j', 'k', 'Enter');
  await page.getByRole('dialog', { name: 'key.revoke' }).waitFor();
  await keys.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await keys.press('/');
  await until(() => hasFocus(page.getByLabel('Who', { exact: true })));
  await boss.leave();
});

/** The member: joins, sets codes up, signs in with them, and revokes a key of her own. */
async function joins(browser: Parameters<typeof Person.at>[0], link: string): Promise<void> {
  const dora = await Person.at(browser, look, [service.accountUrl]);
  const { page } = dora;
  const keys = new Typist(dora);
  await page.goto(link);
  await keys.tabTo(page.getByLabel('Your name'));
  await keys.type(member.name);
  await keys.press('Tab');
  await keys.type(member.password);
  await keys.press('Enter');
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await keys.goTo('settings', '/settings');
  await keys.tabTo(page.getByRole('tab', { name: 'You' }));
  await keys.press('ArrowRight');
  await keys.tabToButton('Set up codes');
  await keys.press('Enter');
  await keys.startsAt('Password');
  await keys.type(member.password);
  await keys.press('Enter');
  await keys.startsAt('Six-digit code');
  const secret = (await page.locator('dialog code').innerText()).replaceAll(' ', '');
  await keys.type(totp(secret));
  await keys.press('Enter');
  await keys.tabToButton('I have them');
  await keys.press('Enter');
  await dora.reads('After the password, a code of your authenticator app is asked for.');

  await keys.tabToButton('Your account');
  await keys.press('Enter');
  await keys.choose('Sign out');
  await page.waitForURL(/\/sign-in/);
  await keys.startsAt('E-mail address');
  await keys.type(member.email);
  await keys.press('Tab');
  await keys.type(member.password);
  await keys.press('Enter');
  await keys.startsAt('Code');
  await keys.type(totp(secret));
  await keys.press('Enter');
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { level: 1 }).waitFor();

  await keys.goTo('keys', '/keys');
  await keys.tabTo(page.getByRole('main').getByRole('link', { name: 'Create key' }));
  await keys.press('Enter');
  await keys.startsAt('Name');
  await keys.type('Laptop');
  await keys.press('Enter');
  await keys.tabToButton('I saved it');
  await keys.press('Enter');
  await page.getByRole('link', { name: 'Laptop' }).waitFor();
  await keys.press('j', 'Enter');
  await page.waitForURL(/\/keys\/key_/);
  await keys.tabToButton('More');
  await keys.press('Enter');
  await keys.choose('Revoke');
  await keys.tabTo(page.getByRole('dialog').getByRole('button', { name: 'Revoke' }));
  await keys.press('Enter');
  await page.waitForURL(`${service.accountUrl}/keys`);
  await dora.leave();
}

/** A whole life in the console by mouse, in the dark. */
import { after, before, test } from 'node:test';

import type { Locator } from 'playwright-core';

import { looks, openBrowser, type Person } from './browser.ts';
import { fieldOf, lifeService, live, type Filled, type Hands } from './console-life.ts';

const service = lifeService();
before(() => service.start());
after(() => service.dispose());

/** Somebody who clicks, and uses the keys for text alone. */
class Clicker implements Hands {
  readonly person: Person;

  constructor(person: Person) {
    this.person = person;
  }

  async goTo(page: string, path: string): Promise<void> {
    const navigation = this.person.page.getByRole('navigation').first();
    await navigation.getByRole('link', { name: page, exact: true }).click();
    await this.person.page.waitForURL(service.accountUrl + path);
    await this.person.page.getByRole('heading', { level: 1 }).waitFor();
  }

  async use(wanted: Locator): Promise<void> {
    await wanted.click();
  }

  async fill(fields: readonly Filled[], send: string): Promise<void> {
    const { page } = this.person;
    for (const [label, text] of fields) {
      const field = fieldOf(this.person, label);
      await field.click();
      await field.fill(text);
    }
    // In the dialog, where there is one.
    await page.getByRole('button', { name: send, exact: true }).last().click();
  }

  async copy(_secret: Locator, button: string): Promise<void> {
    await this.person.press(button);
  }

  async openTab(name: string): Promise<void> {
    await this.person.page.getByRole('tab', { name, exact: true }).click();
  }

  async choose(menu: string, item: string): Promise<void> {
    await this.person.press(menu);
    await this.person.page.getByRole('menuitem', { name: item, exact: true }).click();
  }

  async openFirstRow(link: Locator): Promise<void> {
    await link.first().click();
  }

  async closeDialog(): Promise<void> {
    await this.person.page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).click();
  }
}

test('owner, first request, key, playground, receipt, invitation, codes, revocation, credit, audit: by mouse', async (t) => {
  const browser = await openBrowser(t);
  const look = looks.find(({ name }) => name === 'dark, 1280 px')!;
  const hands = await live(browser, service, look, (person) => new Clicker(person));
  await hands.person.leave();
});

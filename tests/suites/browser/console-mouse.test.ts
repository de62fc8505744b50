/** A whole life in the console by mouse: in Chinese, in the dark, and on a phone; and the first minutes of one in English. */
import { after, before, test } from 'node:test';

import type { Locator } from 'playwright-core';

import { looks, openChromium, type Person } from './browser.ts';
import { business, businessService } from './console-business.ts';
import { fieldOf, lifeService, live, liveShortly, type Filled, type Hands } from './console-life.ts';
import type { ConsoleWords } from '../../support/console-texts.ts';

const services = [lifeService(), lifeService(), businessService()] as const;
before(() => Promise.all(services.map((service) => service.start())));
after(() => Promise.all(services.map((service) => service.dispose())));

/** Somebody who clicks, and uses the keys for text alone. */
class Clicker implements Hands {
  readonly person: Person;
  readonly words: ConsoleWords;

  constructor(person: Person, words: ConsoleWords) {
    this.person = person;
    this.words = words;
  }

  /** On a phone the navigation is behind a button. */
  async goTo(name: string, path: string): Promise<void> {
    const { page } = this.person;
    if ((page.viewportSize()?.width ?? 0) < 800) await this.person.press(this.words.text('app', 'menu'));
    const navigation = page.getByRole('navigation', { name: this.words.text('app', 'navigation') }).last();
    await navigation.getByRole('link', { name, exact: true }).click();
    await page.waitForURL((url) => url.pathname === path);
    await page.getByRole('heading', { level: 1 }).waitFor();
  }

  async pick(label: string, value: string): Promise<void> {
    const field = fieldOf(this.person, label);
    if ((await field.getAttribute('role')) !== 'combobox') return void (await field.selectOption(value));
    await field.click();
    await this.person.page.locator(`[role=option][data-value="${value}"]`).click();
  }

  async date(label: string | RegExp, day: string): Promise<void> {
    await fieldOf(this.person, label).fill(day);
  }

  async use(wanted: Locator): Promise<void> {
    await wanted.click();
  }

  async fill(fields: readonly Filled[], send: string | RegExp): Promise<void> {
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
    await this.person.page
      .getByRole('dialog')
      .getByRole('button', { name: this.words.text('app', 'close'), exact: true })
      .click();
  }
}

const handsOf = (person: Person, words: ConsoleWords): Hands => new Clicker(person, words);

test('owner, first request, key, playground, receipt, invitation, codes, revocation, credit, audit: by mouse', async (t) => {
  const browser = await openChromium(t);
  const look = looks.find(({ name }) => name === 'dark, 360 px')!;
  const hands = await live({ browser, service: services[0], look, language: 'zh', handsOf });
  await hands.person.leave();
});

test('owner, first request, key, revocation: in English on a phone, by daylight', async (t) => {
  const browser = await openChromium(t);
  const look = looks.find(({ name }) => name === 'light, 360 px')!;
  await liveShortly({ browser, service: services[1], look, language: 'en', handsOf });
});

test('a server is added and priced, a customer comes, pays, is refused and refunded, the model ends: on a phone, by daylight', async (t) => {
  const browser = await openChromium(t);
  const look = looks.find(({ name }) => name === 'light, 360 px')!;
  await business(t, { browser, service: services[2], look, language: 'en', handsOf });
});

/**
 * A whole life in the console by keyboard alone, in German. What has the focus is always seen, and nothing is farther than a few dozen presses
 * of Tab.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { Locator } from 'playwright-core';

import type { ConsoleWords } from '../../support/console-texts.ts';
import { until } from '../../support/service.ts';
import { looks, openChromium, type Person } from './browser.ts';
import { business, businessService } from './console-business.ts';
import { fieldOf, lifeService, live, type Filled, type Hands } from './console-life.ts';

const service = lifeService();
const shop = businessService();
before(() => Promise.all([service.start(), shop.start()]));
after(() => Promise.all([service.dispose(), shop.dispose()]));

const tabsMax = 60;

/** Somebody who has no mouse. */
class Typist implements Hands {
  readonly person: Person;
  readonly words: ConsoleWords;

  constructor(person: Person, words: ConsoleWords) {
    this.person = person;
    this.words = words;
  }

  async press(...keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.person.page.keyboard.press(key);
  }

  async type(text: string): Promise<void> {
    await this.person.page.keyboard.type(text);
  }

  /** Tab until it has the focus, which is then to be seen. */
  async tabTo(wanted: Locator): Promise<void> {
    await wanted.first().waitFor();
    for (let tabs = 0; tabs < tabsMax; tabs++) {
      if (await hasFocus(wanted.first())) {
        const outline = await this.person.page.evaluate('getComputedStyle(document.activeElement).outlineStyle');
        assert.notEqual(outline, 'none', `the focus of ${String(wanted)} is seen`);
        return;
      }
      await this.press('Tab');
    }
    assert.fail(`${String(wanted)} is not reached within ${tabsMax} presses of Tab`);
  }

  async pick(label: string, value: string): Promise<void> {
    // The list of a picker has the name of its field.
    const field = fieldOf(this.person, label).first();
    await this.tabTo(field);
    const isPicker = (await field.getAttribute('role')) === 'combobox';
    const meant = async (): Promise<string | null> => {
      if (!isPicker) return await field.inputValue();
      const option = await field.getAttribute('aria-activedescendant');
      return option === null ? null : await this.person.page.locator(`[id="${option}"]`).getAttribute('data-value');
    };
    for (let steps = 0; steps < 20 && (await meant()) !== value; steps++) await this.press('ArrowDown');
    assert.equal(await meant(), value);
    if (isPicker) await this.press('Enter');
  }

  /** Month, day and year: Chromium was installed in English, whatever the page says. */
  async date(label: string | RegExp, day: string): Promise<void> {
    const field = fieldOf(this.person, label);
    await this.tabTo(field);
    const [year, month, date] = day.split('-');
    await this.type(`${month}${date}${year}`);
    assert.equal(await field.inputValue(), day);
  }

  async use(wanted: Locator): Promise<void> {
    await this.tabTo(wanted);
    await this.press('Enter');
  }

  /** By the palette, as quick as by a mouse. Keys mean something once the frame around the pages is there. */
  async goTo(page: string, path: string): Promise<void> {
    await this.person.page.getByRole('navigation').first().waitFor();
    await this.press('Control+k');
    await this.person.page.getByRole('combobox', { name: this.words.text('app', 'palette') }).waitFor();
    await this.type(page);
    await this.press('Enter');
    await this.person.page.waitForURL((url) => url.pathname === path);
    await this.person.page.getByRole('heading', { level: 1 }).waitFor();
  }

  /** The field that a page or a dialog begins with has the focus by itself, the next ones are one Tab away, and Enter sends. */
  async fill(fields: readonly Filled[], _send: string | RegExp, begins: boolean): Promise<void> {
    for (const [at, [label, text]] of fields.entries()) {
      const field = fieldOf(this.person, label);
      await field.waitFor();
      if (at > 0) await this.press('Tab');
      else if (!begins) await this.tabTo(field);
      await until(() => hasFocus(field));
      await this.type(text);
    }
    const isLong = (await this.person.page.evaluate('document.activeElement.tagName')) === 'TEXTAREA';
    await this.press(isLong ? 'Control+Enter' : 'Enter');
  }

  /** It is selected already. */
  async copy(secret: Locator): Promise<void> {
    await secret.waitFor();
    await until(() => hasFocus(secret));
    await this.press('Control+c');
  }

  /** Tabs are walked with arrows. */
  async openTab(name: string): Promise<void> {
    const { page } = this.person;
    await this.tabTo(page.getByRole('tab', { selected: true }));
    const wanted = page.getByRole('tab', { name, exact: true });
    for (let steps = 0; steps < 10 && !(await hasFocus(wanted)); steps++) await this.press('ArrowRight');
    await page.getByRole('tab', { name, exact: true, selected: true }).waitFor();
  }

  /** By its first letters. */
  async choose(menu: string, item: string): Promise<void> {
    const { page } = this.person;
    await this.use(page.getByRole('button', { name: menu, exact: true }));
    const wanted = page.getByRole('menuitem', { name: item, exact: true });
    await wanted.waitFor();
    await this.type(item.slice(0, 5));
    await until(() => hasFocus(wanted));
    await this.press('Enter');
  }

  async openFirstRow(link: Locator): Promise<void> {
    await link.first().waitFor();
    await this.press('j', 'Enter');
  }

  async closeDialog(): Promise<void> {
    await this.press('Escape');
  }
}

const hasFocus = (of: Locator): Promise<boolean> =>
  of.evaluate(
    (element: { readonly ownerDocument: { readonly activeElement: unknown } }) =>
      element === element.ownerDocument.activeElement,
  );

test('owner, first request, key, playground, receipt, invitation, codes, revocation, credit, audit: without a mouse', async (t) => {
  const browser = await openChromium(t);
  const look = looks.find(({ name }) => name === 'light, 1280 px')!;
  const keys = new Map<Person, Typist>();
  const handsOf = (somebody: Person, words: ConsoleWords): Hands => {
    const typist = new Typist(somebody, words);
    keys.set(somebody, typist);
    return typist;
  };
  const { person, words } = await live({ browser, service, look, language: 'de', handsOf });
  // Rows are walked there and back; `/` goes to the filters.
  const typist = keys.get(person)!;
  await typist.press('j', 'j', 'k', 'Enter');
  await person.page.getByRole('dialog', { name: 'credit.move' }).waitFor();
  await typist.closeDialog();
  await person.page.getByRole('dialog').waitFor({ state: 'detached' });
  await typist.press('/');
  await until(() => hasFocus(person.page.getByLabel(words.text('audit', 'who'), { exact: true })));
  await person.leave();
});

test('a server is added and priced, a customer comes, pays, is refused and refunded, the model ends: without a mouse', async (t) => {
  const browser = await openChromium(t);
  const look = looks.find(({ name }) => name === 'dark, 1280 px')!;
  const handsOf = (somebody: Person, words: ConsoleWords): Hands => new Typist(somebody, words);
  await business(t, { browser, service: shop, look, language: 'de', handsOf });
});

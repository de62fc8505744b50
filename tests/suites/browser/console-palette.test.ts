/** Ctrl+K of an account that has more than one answer of the API shows, and what it finds of the documentation. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { ConsoleWords } from '../../support/console-texts.ts';
import { TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import { openConsole, signIn } from './console-person.ts';

const openBrowser = browserOfFile();

const service = new TestService({ config: '' });
before(async () => {
  service.writeConfig(openConsole);
  await service.start();
});
after(() => service.dispose());

test('the palette finds every key, says how many results there are, and leads to the row of a person', async () => {
  const visitor = new Visitor(service);
  await visitor.becomeOwner();
  for (let at = 0; at < 101; at++) {
    const { status, body } = await visitor.ask('POST', '/v1/keys', { name: at === 0 ? 'Quokka' : `Later ${at}` });
    assert.equal(status, 201, JSON.stringify(body));
  }
  const person = await Person.at(await openBrowser(), looks[1]!, [service.accountUrl, service.url]);
  const { page } = person;
  await signIn(person, service, owner, { next: '/keys' });
  const openPalette = async (): Promise<void> => {
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog').getByRole('combobox').waitFor();
  };
  await page.getByRole('link', { name: 'Later 100' }).waitFor();
  await openPalette();
  const said = page.getByRole('dialog').getByRole('status');
  assert.equal(await said.innerText(), '');
  await page.keyboard.type('quokka');
  await page.getByRole('option', { name: /^Quokka/, selected: true }).waitFor();
  // The key, and the search of the documentation, which does not have this word.
  await said.getByText('2 results', { exact: true }).waitFor();
  await person.look();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Quokka' }).waitFor();
  await openPalette();
  await page.keyboard.type(owner.email);
  await page.getByRole('option', { name: new RegExp(owner.email), selected: true }).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/team\?person=/);
  const row = page.locator('[data-row] [data-person]');
  await row.getByText(owner.email).waitFor();
  await until(async () => await row.evaluate((element) => element === element.ownerDocument.activeElement));
  await person.look();
  await person.leave();
});

test('a heading of the documentation is one Enter away, in every language; what looks like a key is not searched for', async () => {
  for (const [language, locale] of [
    ['en', 'en-US'],
    ['de', 'de-DE'],
    ['zh', 'zh-CN'],
  ] as const) {
    const words = new ConsoleWords(language);
    const person = await Person.at(await openBrowser(), looks[0]!, [service.accountUrl], locale);
    const { page } = person;
    const searches: string[] = [];
    page.on('request', (request) => {
      const { pathname, searchParams } = new URL(request.url());
      if (pathname === '/docs/search') searches.push(searchParams.get('q') ?? '');
    });
    await signIn(person, service, owner, { next: '/alerts' });
    const options = page.getByRole('option');
    const openPalette = async (typed: string): Promise<void> => {
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.keyboard.press('Control+k');
      await page.getByRole('dialog').getByRole('combobox').fill(typed);
    };
    await openPalette(`tkh_${'7'.repeat(38)}`);
    // The pause after which the server is asked is over once the number is said.
    await until(async () => (await page.getByRole('dialog').getByRole('status').innerText()) !== '');
    await page.getByRole('combobox').fill('reverse charge');
    const heading = options.filter({ hasText: /^Tax/ });
    await heading.waitFor();
    assert.match(await heading.innerText(), /^Tax\s+Receipts and invoices$/);
    await person.look();
    await page.getByRole('combobox').fill('receipts and invoices');
    // A page by its title.
    await options.locator('small').getByText(words.text('app', 'documentation'), { exact: true }).first().waitFor();
    await page.getByRole('combobox').fill('reverse charge');
    await heading.waitFor();
    while ((await heading.getAttribute('aria-selected')) !== 'true') await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(`${service.accountUrl}/docs/invoices#tax`);
    await until(
      async () => await page.locator('#tax').evaluate((element) => element.getBoundingClientRect().top < 200),
    );
    await page.goBack();
    await openPalette('reverse charge');
    await heading.waitFor();
    await options.last().click();
    await page.waitForURL(`${service.accountUrl}/docs/search?q=reverse%20charge`);
    assert.deepEqual([...new Set(searches)], ['reverse charge', 'receipts and invoices']);
    await person.leave();
  }
});

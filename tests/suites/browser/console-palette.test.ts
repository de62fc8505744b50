/** Ctrl+K of an account that has more than one answer of the API shows. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

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
    const { status, body } = await visitor.ask('POST', '/v1/keys', { name: at === 0 ? 'Oldest' : `Later ${at}` });
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
  await page.keyboard.type('oldest');
  await page.getByRole('option', { name: /^Oldest/, selected: true }).waitFor();
  // The key, and the search of the documentation.
  await said.getByText('2 results', { exact: true }).waitFor();
  await person.look();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Oldest' }).waitFor();
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

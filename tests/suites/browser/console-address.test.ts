/** The console of a service without a configured address, opened by the address of this computer as from another one in its network. */
import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { after, before, test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { signIn } from './console-person.ts';

const service = new TestService({ config: '' });
before(async () => {
  service.writeConfig(
    `server:\n  inference: { host: 0.0.0.0, port: 0 }\n  account: { host: 0.0.0.0, port: 0 }\n${scriptedModel(
      '- { say: [{ text: "It is " }, { text: "Paris." }] }',
      { settings: noFeatures },
    )}`,
  );
  await service.start();
  await new Visitor(service).becomeOwner();
});
after(() => service.dispose());

function ownAddress(): string {
  const found = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal);
  assert.ok(found !== undefined, 'this test needs a network interface with an IPv4 address: connect this computer');
  return found.address;
}

test('the first request and the playground reach the models, and the code to copy names that address', async (t) => {
  const at = (url: string): string => `http://${ownAddress()}:${new URL(url).port}`;
  const [accountUrl, url] = [at(service.accountUrl), at(service.url)];
  const person = await Person.at(await openBrowser(t), looks[1]!, [accountUrl, url]);
  const { page } = person;
  await signIn(person, { accountUrl }, owner, { next: '/start' });
  await person.press('Send first request');
  await person.reads('It is Paris.');
  await page.getByText(`${url}/v1`).first().waitFor();
  await person.look();
  await page.goto(`${accountUrl}/playground`);
  await person.reads('A key of this session, up to $1.00');
  await page.getByRole('textbox', { name: 'Message', exact: true }).fill('capital of France?');
  await page.keyboard.press('Control+Enter');
  await page
    .getByRole('article', { name: /^Answer of / })
    .getByText('It is Paris.', { exact: true })
    .waitFor();
  await person.look();
  // A browser gives no clipboard to a page by plain HTTP; a key is shown once, and has to be copied all the same.
  assert.equal(await page.evaluate('navigator.clipboard'), undefined);
  await page.goto(`${accountUrl}/keys?create=true`);
  await page.getByLabel('Name', { exact: true }).fill('Copied');
  await page.getByRole('dialog').getByRole('button', { name: 'Create key', exact: true }).click();
  const secret = page.getByRole('textbox', { name: 'The key', exact: true });
  const key = await secret.inputValue();
  await person.press('Copy the key');
  await person.press('Done');
  await page.keyboard.press('Control+k');
  const field = page.getByRole('combobox', { name: 'Go to a page, a key, a model, or an id' });
  await field.waitFor();
  await page.keyboard.press('Control+v');
  await until(async () => (await field.inputValue()) === key);
  await person.leave();
});

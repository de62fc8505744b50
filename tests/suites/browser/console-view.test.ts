/** An operator views a customer's account: the banner, what is there to read, nothing that acts, and the way back, in two tabs. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import { signIn } from './console-person.ts';

const openBrowser = browserOfFile();
/** Markup and a long word, shown as they are. */
const name = `<img src=x onerror="alert(1)"> ${'long'.repeat(12)}`;

const service = new TestService({ config: '' });
const visitor = new Visitor(service);
let id = '';
before(async () => {
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: 0 }\n${scriptedModel(
      '- { say: [{ text: "It is Paris." }] }',
      {
        settings: noFeatures,
      },
    )}`,
  );
  await service.start();
  await visitor.becomeOwner();
  const made = await visitor.ask('POST', '/v1/admin/accounts', { name, credit_cents: 500, key_name: 'theirs' });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  id = made.body.id as string;
  const answer = await service.chat(
    { model: 'demo', messages: [{ role: 'user', content: 'hi' }] },
    { key: made.body.key as string },
  );
  assert.equal(answer.status, 200, await answer.text());
});
after(() => service.dispose());

for (const look of [
  looks.find(({ name: one }) => one === 'light, 1280 px')!,
  looks.find(({ name: one }) => one === 'dark, 360 px')!,
])
  test(`an operator views an account and leaves it: ${look.name}`, async () => {
    const person = await Person.at(await openBrowser(), look, [service.accountUrl, service.url]);
    const { page, context } = person;
    await signIn(person, service, owner);
    const banner = page.getByRole('main').getByText(`You view ${name}, read-only`);
    const other = await context.newPage();
    await other.goto(`${service.accountUrl}/operator/accounts`);
    await other.getByRole('heading', { name: 'Accounts' }).waitFor();

    await page.goto(`${service.accountUrl}/operator/accounts/${id}`);
    await person.press('View as customer');
    await page.waitForURL(`${service.accountUrl}/`);
    await banner.waitFor();
    await page
      .getByText(/^\$[45]\.\d+/)
      .first()
      .waitFor();
    await person.look();
    for (const path of [
      '/keys',
      '/requests',
      '/usage',
      '/billing',
      '/team',
      '/settings',
      '/models',
      '/playground',
      '/alerts',
    ]) {
      await page.goto(service.accountUrl + path);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await banner.waitFor();
      const loading = page.locator('[role=status][aria-label]:not([data-example] *)');
      await until(async () => (await loading.count()) === 0);
      await person.look(path === '/keys');
      // The playground compares models; it asks none of them without a key.
      const acting =
        /^(Create|Add(?! a model)|Invite|Revoke|Delete|Save|Change|Grant|Suspend|Rotate|Pause|Remove|Buy)\b/;
      const buttons = page.getByRole('main').getByRole('button', { name: acting });
      const enabled = [];
      for (const button of await buttons.all()) if (await button.isEnabled()) enabled.push(await button.innerText());
      assert.deepEqual(enabled, [], path);
      assert.equal(await page.locator('a[href^="/operator"]').count(), 0, `${path}: no page of the operator`);
    }
    await page.goto(`${service.accountUrl}/keys`);
    await page.getByText('theirs').first().waitFor();

    // The other tab shows the accounts no longer: the session is a viewer's.
    await other.bringToFront();
    await other.getByRole('main').getByText(`You view ${name}, read-only`).waitFor();
    // Until this tab hears of it, it asks for an account that is none of theirs.
    person.forgives(/status of 40[34]/);
    await other.getByRole('button', { name: 'Leave', exact: true }).click();
    await other.getByRole('button', { name: 'Leave', exact: true }).waitFor({ state: 'detached' });
    await page.bringToFront();
    await banner.waitFor({ state: 'detached' });
    await page.goto(`${service.accountUrl}/operator/accounts/${id}`);
    await page.getByRole('button', { name: 'View as customer' }).waitFor();
    await person.leave();
  });

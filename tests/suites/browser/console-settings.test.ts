/** Who one is, how one signs in, and how one goes: each setting in the console does what it says. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { startProvider } from '../../accounts/users/provider.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import { linkMailedTo, signIn } from './console-person.ts';

const openBrowser = browserOfFile();

const provider = await startProvider({ after });
const { id, name, issuer, clientId, domains } = provider.config;
const service = new TestService({
  config: `sign_in: { oidc: [ { id: ${id}, name: ${name}, issuer: "${issuer}", client_id: ${clientId}, domains: [${domains.join()}] } ] }
${scriptedModel('- { say: [{ text: "It is Paris." }] }', { settings: noFeatures })}`,
  console: true,
});
const operator = new Visitor(service);
/** Changes both in what follows. */
const me = { email: owner.email, password: owner.password };
before(async () => {
  await service.start();
  await operator.becomeOwner();
});
after(() => service.dispose());

const [phone, desktop] = ['dark, 360 px', 'light, 1280 px'].map((name) => looks.find((look) => look.name === name)!);
const at = (view: string): string => `${service.accountUrl}/settings?view=${view}`;

test('a changed password ends the other sessions; a passkey is added, signs in and is removed', async () => {
  const browser = await openBrowser();
  const person = await Person.at(browser, desktop!, [service.accountUrl]);
  const { page } = person;
  const other = await Person.at(browser, phone!, [service.accountUrl]);
  const third = await Person.at(browser, phone!, [service.accountUrl]);
  const authenticator = await person.context.newCDPSession(page);
  await authenticator.send('WebAuthn.enable');
  await authenticator.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
    },
  });
  await signIn(person, service, me, { next: '/settings?view=security' });
  await signIn(other, service, me, { next: '/settings?view=security' });
  await signIn(third, service, me, { next: '/keys' });
  await page.reload();
  const sessions = page.getByRole('table', { name: 'Active sessions' }).locator('[data-row]');
  // The operator of the test has one as well.
  await until(async () => (await sessions.count()) === 4);
  await page.getByRole('row', { name: /^Chrome · Linux this one/ }).waitFor();
  await person.look();
  await other.look();

  // One session is ended by hand.
  const before = await sessions.count();
  await page
    .getByRole('row', { name: /^Chrome · Linux (?!this one)/ })
    .first()
    .getByRole('button')
    .click();
  await person.reads('The session has ended');
  await until(async () => (await sessions.count()) === before - 1);

  await person.press('Change password');
  await person.fill('Current password', 'not the password');
  await person.fill('New password', 'a third horse battery');
  person.expects(401);
  await page.getByRole('dialog').getByRole('button', { name: 'Change password' }).click();
  await page.getByRole('alert').getByText('The password is wrong.').waitFor();
  await person.look();
  await person.fill('Current password', me.password);
  await page.getByRole('dialog').getByRole('button', { name: 'Change password' }).click();
  await person.reads('Password changed; all other sessions have ended');
  await until(async () => (await sessions.count()) === 1);
  for (const left of [other, third]) {
    left.expects(401);
    await left.page.goto(`${service.accountUrl}/keys`);
    await left.page.waitForURL(/\/sign-in\?next=/);
    await left.context.close();
  }

  await page.getByRole('button', { name: 'Add a passkey' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('Key <b>of</b> the test');
  await page.getByRole('dialog').getByRole('button', { name: 'Add a passkey' }).click();
  await page.getByRole('row', { name: /^Key <b>of<\/b> the test/ }).waitFor();
  await person.look();
  await page.getByRole('button', { name: 'Sign out: Chrome · Linux' }).click();
  await page.waitForURL(/\/sign-in/);
  await person.press('Sign in with a passkey');
  await page.waitForURL(`${service.accountUrl}/`);
  await page.goto(at('security'));
  await person.press('Remove Key <b>of</b> the test');
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await person.reads('No passkeys');
  await person.leave();
  me.password = 'a third horse battery';
});

test('who is refused by a provider is told so, who signs in there is led on and linked to it, and unlinks it', async () => {
  provider.state.person = undefined;
  const browser = await openBrowser();
  const person = await Person.at(browser, phone!, [service.accountUrl, issuer]);
  const { page } = person;
  // Nobody is signed in, at first and on the way back.
  for (const status of [401, 401]) person.expects(status);
  await page.goto(at('security'));
  await person.press('Sign in with Company');
  await person.reads('The provider did not sign you in.');
  await person.look();
  provider.state.person = { sub: 's1', email: me.email, email_verified: true, name: 'Olga' };
  await person.press('Sign in with Company');
  await page.waitForURL(at('security'));
  await person.press('Unlink Company');
  await person.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Unlink', exact: true }).click();
  await person.reads('Company is unlinked');
  await person.reads('Not used yet: sign in there with your address here.');
  await person.leave();
});

test('name, address, language, time zone and invoices are changed; the export has them', async () => {
  const browser = await openBrowser();
  const person = await Person.at(browser, desktop!, [service.accountUrl]);
  const { page } = person;
  const again = new Visitor(service);
  assert.equal((await again.ask('POST', '/v1/auth/sign-in', me)).status, 200);
  await signIn(person, service, me, { next: '/settings' });
  await page.getByLabel('Name', { exact: true }).fill('Olga Ordinary');
  await person.press('Save');
  await person.reads('Saved');
  assert.equal((await again.get('/v1/me')).name, 'Olga Ordinary');
  await person.look();
  await page.getByLabel('Language').selectOption('de');
  await page.getByRole('heading', { name: 'Einstellungen' }).waitFor();
  await page.getByLabel('Farben').selectOption('dark');
  await person.look();
  await page.getByLabel('Farben').selectOption('system');
  await page.getByLabel('Sprache').selectOption('en');

  // The address is another one when the link in its mail was opened here, not before.
  await person.press('Change address');
  await person.fill('New address', 'olga@example.net');
  await person.press('Send the link');
  await person.reads('We sent a link to olga@example.net. Open it in this browser.');
  await person.look();
  assert.equal((await again.get('/v1/me')).email, me.email);
  await page.goto(service.accountUrl + (await linkMailedTo(again, 'olga@example.net', '/verify-email')));
  await person.press('Confirm');
  await person.reads('Confirmed');
  await page.goto(`${service.accountUrl}/settings`);
  await person.reads('olga@example.net');
  me.email = 'olga@example.net';
  // A link from a mail has no session, so every other one has ended with the old address.
  assert.equal((await again.ask('GET', '/v1/me')).status, 401);
  assert.equal((await again.ask('POST', '/v1/auth/sign-in', me)).status, 200);

  await page.getByRole('tab', { name: 'Account' }).click();
  await page.getByLabel('Name of the account').fill('The <i>Account</i>');
  await page.getByLabel('Time zone').selectOption('Pacific/Auckland');
  await page.getByRole('button', { name: 'Save' }).first().click();
  await person.reads('Saved');
  await page.getByLabel('Legal name').fill('Ordinary & Sons');
  await page.getByLabel('Postal address').fill('1 Main Street\n\n10115 Berlin');
  await page.getByLabel('Country').selectOption('DE');
  await page.getByLabel('Mail invoices to').fill('bills@example.net');
  await page.getByLabel('Tax', { exact: true }).selectOption('reverse_charge');
  person.expects(400);
  await page.getByRole('button', { name: 'Save' }).last().click();
  await page.getByRole('alert').waitFor();
  await person.look();
  await page.getByLabel('Tax', { exact: true }).selectOption('standard');
  await page.getByRole('button', { name: 'Save' }).last().click();
  await until(async () => (await again.get('/v1/account')).billing.country === 'DE');
  const account = await again.get('/v1/account');
  assert.deepEqual(
    [account.name, account.time_zone, account.billing.address_lines],
    ['The <i>Account</i>', 'Pacific/Auckland', ['1 Main Street', '10115 Berlin']],
  );

  await page.getByRole('tab', { name: 'Data' }).click();
  const [file] = await Promise.all([page.waitForEvent('download'), person.press('Export everything')]);
  const exported = await readFile(await file.path(), 'utf8');
  assert.ok(exported.includes('Ordinary & Sons') && JSON.parse(exported) !== undefined);
  // The file is there a moment before the button can be pressed again.
  await until(() => page.getByRole('button', { name: 'Export everything', exact: true }).isEnabled());
  await person.look();

  // The dialog says what it means here: the only model has no backend that retains nothing.
  const dialog = page.getByRole('dialog');
  await person.press('Require it');
  await dialog.getByText('every request would be refused').waitFor();
  await person.look();
  await dialog.getByRole('button', { name: 'Require it', exact: true }).click();
  await person.reads('Requests of every key run only on servers that keep nothing');
  const hello = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
  const statusIs = (status: number) => until(async () => (await service.chat(hello)).status === status);
  await statusIs(400);
  await person.press('No longer require it');
  await dialog.getByRole('button', { name: 'No longer require it', exact: true }).click();
  await person.reads('A request asks for it with a header');
  await statusIs(200);
  await person.leave();
});

test('an account and a person are deleted only when its name was typed, and the last owner not before the account', async () => {
  const browser = await openBrowser();
  const person = await Person.at(browser, phone!, [service.accountUrl]);
  const { page } = person;
  await signIn(person, service, me, { next: '/settings?view=data' });
  const remove = page.getByRole('dialog').getByRole('button', { name: /^Delete/ });
  await person.press('Delete me');
  assert.ok(await remove.isDisabled());
  await page.getByRole('dialog').getByLabel(/^Type/).fill(me.email);
  person.expects(409);
  await remove.click();
  await page
    .getByRole('alert')
    .getByText(/last owner/)
    .waitFor();
  await person.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();

  await person.press('Delete the account');
  await page
    .getByRole('dialog')
    .getByLabel(/^Give up the credit of \$5\.00/)
    .check();
  await page.getByRole('dialog').getByLabel(/^Type/).fill('The Account');
  assert.ok(await remove.isDisabled());
  await page.getByRole('dialog').getByLabel(/^Type/).fill('The <i>Account</i>');
  await person.look();
  await remove.click();
  await page.waitForURL(`${service.accountUrl}/`);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.equal(
    await page.evaluate(`fetch('/v1/me').then((answer) => answer.json()).then((me) => me.accounts.length)`),
    0,
  );
  await person.look();
  await person.leave();
});

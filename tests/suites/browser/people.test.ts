/** How people come in without a password that somebody gave them: sign-up, a forgotten password, a provider, a passkey, a code. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../../src/account-api/routes.ts';
import { openHost } from '../../account-api/host.ts';
import { password, tokenOf } from '../../accounts/users/person.ts';
import { startProvider } from '../../accounts/users/provider.ts';
import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, ownerToken } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';

const openBrowser = browserOfFile();

const look = looks[0]!;

test('signing up, confirming the address, forgetting the password, all by links of the pages and of mails', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, { signIn: { signUp: 'open', oidc: [] } });
  const browser = await openBrowser();
  const person = await Person.at(browser, look, [host.url]);
  const { page } = person;
  await person.open(host.url);
  await page.getByRole('link', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 'Sign up' }).click();
  await person.arrives(`${host.url}/sign-up`);
  await person.fill('Your name', 'Ada');
  await person.fill('E-mail address', 'ada@example.org');
  await person.fill('Password', password);
  await person.press('Sign up');
  await person.reads('A mail is on its way');

  await person.open(`${host.url}/verify-email#${tokenOf(host, 'verification')}`);
  assert.equal(page.url(), `${host.url}/verify-email`, 'the token is out of the address bar');
  await person.press('Confirm');
  await person.reads('Confirmed.');
  await page.getByRole('link', { name: 'Continue' }).click();
  await person.arrives(`${host.url}/sign-in`);

  await page.getByRole('link', { name: 'Forgot your password?' }).click();
  await person.arrives(`${host.url}/forgot-password`);
  await person.fill('E-mail address', 'ada@example.org');
  await person.press('Send the link');
  await person.reads('we have sent a mail');
  await person.open(`${host.url}/reset-password#${tokenOf(host, 'reset')}`);
  await person.fill('Password', 'another horse battery');
  await person.press('Set the password');
  await person.reads('Sign in with the new password.');
  await page.getByRole('link', { name: 'Continue' }).click();
  await person.arrives(`${host.url}/sign-in`);
  await person.fill('E-mail address', 'ada@example.org');
  await person.fill('Password', 'another horse battery');
  await person.press('Sign in');
  await person.arrives(`${host.url}/`);
  await person.reads('Signed in as Ada (ada@example.org).');
  // Nobody else's page is where a link leads after signing in.
  await person.open(`${host.url}/sign-in?next=https://evil.example/`);
  await person.fill('E-mail address', 'ada@example.org');
  await person.fill('Password', 'another horse battery');
  await person.press('Sign in');
  await person.arrives(`${host.url}/`);
  await person.leave();
});

test('a provider signs in, and leads on to where the person came from; one that refuses is said', async (t) => {
  const provider = await startProvider(t);
  const host = await openHost(t, accountRoutes, Date.now, {
    signIn: { signUp: 'invitation', oidc: [provider.config] },
  });
  const browser = await openBrowser();
  const person = await Person.at(browser, look, [host.url, provider.config.issuer]);
  await person.open(`${host.url}/sign-in`);
  assert.equal(await person.page.getByRole('link', { name: 'Sign up' }).count(), 0);
  await person.open(`${host.url}/sign-up`, 404);
  await person.open(`${host.url}/sign-in`);
  await person.press('Sign in with Company');
  await person.arrives(`${host.url}/?sign_in=failed`);
  await person.reads('The provider did not sign you in.');
  await person.leave();
});

test('who signs in at a provider comes back to the page they wanted', async (t) => {
  const provider = await startProvider(t);
  provider.state.person = { sub: 's1', email: 'ada@example.org', email_verified: true, name: 'Ada' };
  const host = await openHost(t, accountRoutes, Date.now, { signIn: { signUp: 'open', oidc: [provider.config] } });
  const browser = await openBrowser();
  const person = await Person.at(browser, look, [host.url, provider.config.issuer]);
  await person.open(`${host.url}/sign-in?next=/topup`);
  await person.press('Sign in with Company');
  await person.arrives(`${host.url}/topup`);
  await person.open(host.url);
  await person.reads('Signed in as Ada (ada@example.org).');
  await person.leave();
});

test('a passkey is registered and signs in, and the code of an authenticator is asked for', async (t) => {
  const service = new TestService({ config: scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }) });
  t.after(() => service.dispose());
  await service.start();
  const browser = await openBrowser();
  const person = await Person.at(browser, look, [service.accountUrl]);
  const { page } = person;
  // Made of software, and checks who holds it.
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
  await person.open(`${service.accountUrl}/welcome#${await ownerToken(service)}`);
  await person.fill('Your name', owner.name);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password', owner.password);
  await person.press('Create the owner account');
  await page.getByRole('link', { name: 'Continue' }).click();
  await person.press('Add a passkey');
  await person.reads('The passkey is registered');
  await person.press('Sign out');
  await page.getByRole('link', { name: 'Sign in' }).click();
  await person.press('Sign in with a passkey');
  await person.arrives(`${service.accountUrl}/`);
  await person.reads('Signed in as Olga');

  const send = async (path: string, body: object): Promise<{ readonly totp_uri: string }> =>
    (await page.evaluate(
      `fetch(${JSON.stringify(path)}, { method: 'POST', headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(JSON.stringify(body))} }).then((answer) => answer.json())`,
    )) as { readonly totp_uri: string };
  const { totp_uri: uri } = await send('/v1/auth/two-factor', { password: owner.password });
  const code = (): string => totp(new URL(uri).searchParams.get('secret')!);
  await send('/v1/auth/two-factor/verify', { code: code() });
  await person.press('Sign out');
  await page.getByRole('link', { name: 'Sign in' }).waitFor();
  await person.open(`${service.accountUrl}/sign-in?next=/topup`);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password', owner.password);
  await person.press('Sign in');
  await person.arrives(/\/sign-in\/code\?next=/);
  await person.fill('Six-digit code', code());
  await person.press('Sign in');
  await person.arrives(`${service.accountUrl}/topup`);
  await person.leave();
});

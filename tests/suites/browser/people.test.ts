/** How people come in without a password that somebody gave them: they sign up, or have forgotten theirs. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { password } from '../../accounts/users/person.ts';
import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import { linkMailedTo, signIn } from './console-person.ts';

const openBrowser = browserOfFile();
const service = new TestService({
  config: `sign_in: { sign_up: open }\n${scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures })}`,
  console: true,
});
const operator = new Visitor(service);
before(async () => {
  await service.start();
  await operator.becomeOwner();
});
after(() => service.dispose());

test('signing up, confirming the address, forgetting the password, all by links of the pages and of mails', async () => {
  const browser = await openBrowser();
  const person = await Person.at(browser, looks[0]!, [service.accountUrl]);
  const { page } = person;
  const email = 'ada@example.org';
  // Nobody is signed in yet.
  person.expects(401);
  await page.goto(service.accountUrl);
  await page.getByRole('link', { name: 'Sign up' }).click();
  await person.arrives(`${service.accountUrl}/sign-up`);
  await person.fill('Your name', 'Ada');
  await person.fill('E-mail address', email);
  await person.fill('Password', password);
  await person.press('Sign up');
  await person.reads(`A mail is on its way to ${email}`);
  await person.look();

  await page.goto(service.accountUrl + (await linkMailedTo(operator, email, '/verify-email')));
  await person.press('Confirm');
  await person.reads('Your address is confirmed');
  assert.equal(page.url(), `${service.accountUrl}/verify-email`, 'the token is out of the address bar');
  await page.getByRole('link', { name: 'Continue' }).click();
  await person.arrives(`${service.accountUrl}/sign-in`);

  await page.getByRole('link', { name: 'Forgot your password?' }).click();
  await person.arrives(`${service.accountUrl}/forgot-password`);
  await person.fill('E-mail address', email);
  await person.press('Send the link');
  await person.reads('a mail is on its way to it');
  await page.goto(service.accountUrl + (await linkMailedTo(operator, email, '/reset-password')));
  await person.fill('Password', 'another horse battery');
  await person.press('Set the password');
  await person.reads('Your password is changed');
  await person.look();
  await signIn(person, service, { email, password: 'another horse battery' });
  await person.leave();
});

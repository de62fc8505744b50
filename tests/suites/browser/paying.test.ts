/** From the link that the first start prints to credit: the operator signs in, pays, fails to pay, and signs out. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, ownerToken, Visitor } from '../../support/visitor.ts';
import { looks, looksInBoth, openChromium, Person } from './browser.ts';

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }),
  firstCreditCents: '0',
});
before(() => service.start());
after(() => service.dispose());

let paidCents = 0;
let receiptsSeen = 0;
const dollars = (): string => `$${(paidCents / 100).toFixed(2)}`;

test('the link of the first start makes the owner, who is led on and signs out', async (t) => {
  const browser = await openChromium(t);
  const person = await Person.at(browser, looks[0]!, [service.accountUrl]);
  const token = await ownerToken(service);
  await person.open(`${service.accountUrl}/welcome#${token}`);
  assert.equal(person.page.url(), `${service.accountUrl}/welcome`, 'the token is out of the address bar');
  await person.fill('Your name', owner.name);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password (10 characters or more)', owner.password);
  await person.press('Create the owner account');
  await person.reads('You are now the operator of this server');
  await person.page.getByRole('link', { name: 'Continue' }).click();
  await person.arrives(`${service.accountUrl}/`);
  await person.reads('Signed in as Olga (owner@example.org).');
  await person.press('Sign out');
  await person.page.getByRole('link', { name: 'Sign in' }).waitFor();
  person.expects(401);
  assert.equal((await person.page.request.get(`${service.accountUrl}/v1/me`)).status(), 401);
});

describe('signing in, paying and signing out', { concurrency: false }, () => {
  for (const look of looksInBoth)
    test(look.name, async (t) => {
      const browser = await openChromium(t);
      const person = await Person.at(browser, look, [service.accountUrl]);
      const { page } = person;

      await person.open(`${service.accountUrl}/topup`);
      person.expects(401);
      await person.press('Continue to payment');
      await person.arrives(/\/v1\/credits\/topup_form$/);
      await person.reads('Sign in first');
      await page.getByRole('link', { name: 'Sign in' }).click();
      await person.arrives(/\/sign-in\?next=\/topup$/);
      await person.fill('E-mail address', owner.email);
      await person.fill('Password', 'not this one');
      person.expects(401);
      await person.press('Sign in');
      await person.reads('The e-mail address or the password is wrong.');
      await person.look();
      await person.fill('Password', owner.password);
      await person.press('Sign in');
      await person.arrives(`${service.accountUrl}/topup`);

      // What is no amount is said on a page.
      await person.fill('Amount in dollars', '0.01');
      person.expects(400);
      await person.press('Continue to payment');
      await person.arrives(/\/v1\/credits\/topup_form$/);
      await person.reads('This did not work');
      await person.open(`${service.accountUrl}/topup`);

      await person.fill('Amount in dollars', '7.00');
      await person.press('Continue to payment');
      await person.arrives(/\/v1\/payments\/demo\/cs_demo_/);
      await person.press('Fail');
      await person.reads('failed');
      await person.look();
      await person.press('Pay');
      await person.arrives(`${service.accountUrl}/topup`);
      paidCents += 700;
      await until(async () => {
        await page.goto(service.accountUrl);
        return (await page.getByRole('cell', { name: dollars(), exact: true }).count()) === 1;
      }, 60_000);
      await person.look();

      // Its receipt is there a moment later.
      const receipts = async (): Promise<readonly { readonly html_url: string }[]> => {
        const answer = await page.request.get(`${service.accountUrl}/v1/receipts`);
        return ((await answer.json()) as { data: readonly { readonly html_url: string }[] }).data;
      };
      const receiptsBefore = receiptsSeen;
      await until(async () => (await receipts()).length > receiptsBefore, 60_000);
      receiptsSeen = (await receipts()).length;
      await person.open((await receipts())[0]!.html_url);
      await person.reads('Total paid (USD)');

      // Each form of the page of a payment that is there: a refund, a dispute and its end.
      await person.open(`${service.accountUrl}/topup`);
      await person.fill('Amount in dollars', '5.00');
      await person.press('Continue to payment');
      await person.arrives(/\/v1\/payments\/demo\/cs_demo_/);
      const checkout = page.url();
      await person.press('Pay, and report it three times');
      await person.arrives(`${service.accountUrl}/topup`);
      await person.open(checkout);
      await person.press('Charge it back (dispute by the bank)');
      await person.reads('disputed');
      await person.look();
      await person.press('Dispute: the seller wins');
      await person.reads('paid');
      await person.press('Refund the rest');
      await page.getByRole('button', { name: 'Make the last refund fail' }).waitFor();
      await person.look();

      // The receipt, and a credit note for the refund at least: a dispute that is won at once needs none.
      await until(async () => (await receipts()).length >= receiptsSeen + 2, 60_000);
      receiptsSeen = (await receipts()).length;
      for (const { html_url: url } of (await receipts()).slice(0, 2)) await person.open(url);

      await person.open(service.accountUrl);
      await person.press('Sign out');
      await page.getByRole('link', { name: 'Sign in' }).waitFor();
      await person.look();
      await person.leave();
    });
});

test('what was paid is credit, once', async () => {
  const visitor = new Visitor(service);
  const signedIn = await visitor.ask('POST', '/v1/auth/sign-in', { email: owner.email, password: owner.password });
  assert.equal(signedIn.status, 200);
  await until(async () => (await visitor.get('/v1/credits')).balance_cents === paidCents, 60_000);
  assert.equal(paidCents, 700 * looksInBoth.length);
  await service.verify();
});

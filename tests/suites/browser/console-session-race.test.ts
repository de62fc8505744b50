/**
 * A session that is replaced while a read is under way that carries the old one (web/src/api/session-changes.ts): what the server
 * says of the old session signs nobody out, whether it is said before or after the change is answered.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { Route } from 'playwright-core';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { signIn } from './console-person.ts';

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "It is Paris." }] }', { settings: noFeatures }),
  console: true,
});
before(async () => {
  await service.start();
  await new Visitor(service).becomeOwner();
});
after(() => service.dispose());

const look = looks.find(({ name }) => name === 'light, 1280 px')!;

/** A read of the page that no change of the session asks for again by itself. */
const held = '**/v1/auth/passkeys';

/** Holds the reads that a page sends, with the cookies of that moment. */
class HeldReads {
  readonly #person: Person;
  readonly #held: Route[] = [];
  #cookie = '';
  #isHolding = true;

  private constructor(person: Person) {
    this.#person = person;
  }

  /** Resolves when there is one: the page looks again when its window is shown. */
  static async begin(person: Person): Promise<HeldReads> {
    const reads = new HeldReads(person);
    const { page, context } = person;
    const cookies = await context.cookies();
    reads.#cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    await page.route(held, async (route) => {
      if (reads.#isHolding) reads.#held.push(route);
      else await route.fallback();
    });
    await until(async () => {
      await page.evaluate(`window.dispatchEvent(new Event('visibilitychange'))`);
      return reads.#held.length > 0;
    }, 60_000);
    return reads;
  }

  /** Lets them go: the server says what it says of the session that they carry, which has ended. */
  async release(): Promise<void> {
    this.#isHolding = false;
    for (const route of this.#held) {
      const answer = await route.fetch({ headers: { ...(await route.request().allHeaders()), cookie: this.#cookie } });
      assert.equal(answer.status(), 401, 'the session that was replaced is over');
      this.#person.expects(401);
      await route.fulfill({ response: answer });
    }
  }
}

/** The page goes on, asks again with the session that is there now, and stays signed in. */
async function staysSignedIn(person: Person, act: () => Promise<void>): Promise<void> {
  const { page } = person;
  const again = page.waitForResponse((answer) => answer.url().endsWith('/v1/auth/passkeys') && answer.ok());
  await act();
  await again;
  await person.reads('No passkeys');
  assert.equal(new URL(page.url()).pathname, '/settings');
}

test('codes are set up while a read of the session before is under way: nobody is signed out', async (t) => {
  const person = await Person.at(await openBrowser(t), look, [service.accountUrl]);
  const { page } = person;
  await signIn(person, service, owner, { next: '/settings?view=security' });
  await person.press('Change password');
  await person.fill('Current password', owner.password);
  await person.fill('New password', 'a third horse battery');

  // The refusal comes before the answer of the change, whose cookie the browser does not have yet.
  const first = await HeldReads.begin(person);
  let isChanged = false;
  await page.route('**/v1/auth/password', async (route) => {
    const answer = await route.fetch();
    await first.release();
    isChanged = true;
    await route.fulfill({ response: answer });
  });
  await staysSignedIn(person, () => page.getByRole('dialog').getByRole('button', { name: 'Change password' }).click());
  assert.ok(isChanged);
  await person.reads('Password changed; all other sessions have ended');
  await page.unrouteAll();

  // It comes after it.
  await person.press('Set up codes');
  await page.getByRole('dialog').getByLabel('Password').fill('a third horse battery');
  await person.press('Continue');
  const code = page.getByLabel('Six-digit code', { exact: true });
  await code.waitFor();
  const secret = (await page.locator('dialog code').innerText()).replaceAll(' ', '');
  const second = await HeldReads.begin(person);
  await code.fill(totp(secret));
  const verified = page.waitForResponse('**/v1/auth/two-factor/verify');
  await person.press('Turn on');
  assert.equal((await verified).status(), 200);
  await person.press('I have saved them');
  await person.reads('After the password, we ask for a code from your authenticator app.');
  await staysSignedIn(person, () => second.release());
  await page.reload();
  await person.reads('After the password, we ask for a code from your authenticator app.');
  await person.leave();
});

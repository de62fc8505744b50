/** A member's whole time in an account, seen by both: invited, joined, made an admin, removed; and all of it in the audit log. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { totp } from '../../support/totp.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { linkMailedTo, signIn } from './console-person.ts';

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "It is Paris." }] }', { settings: noFeatures }),
  console: true,
});
const operator = new Visitor(service);
before(async () => {
  await service.start();
  await operator.becomeOwner();
});
after(() => service.dispose());

const member = { email: 'dora@example.org', password: 'another horse battery' };
const [phone, desktop] = ['dark, 360 px', 'light, 1280 px'].map((name) => looks.find((look) => look.name === name)!);

test('somebody is invited, joins with codes, becomes an admin, and is removed', async (t) => {
  const browser = await openBrowser(t);
  const boss = await Person.at(browser, desktop!, [service.accountUrl]);
  const { page } = boss;
  await signIn(boss, service, owner, { next: '/team' });
  await boss.reads('Only you so far.');
  await page.getByRole('row', { name: /^Delete the account yes no no no no/ }).waitFor();
  await boss.look();

  await page.getByRole('link', { name: 'Invite' }).click();
  await boss.fill('E-mail address', 'no address at all');
  await boss.press('Send invitation');
  assert.equal(await page.getByRole('dialog').count(), 1, 'the browser has refused it');
  await boss.fill('E-mail address', member.email);
  await boss.reads('Makes keys of their own');
  await boss.look();
  await boss.press('Send invitation');
  await page.getByRole('row', { name: new RegExp(`^${member.email} Developer`) }).waitFor();
  await boss.look();

  // On a phone, in the dark: the link of the mail, and codes of an authenticator.
  const dora = await Person.at(browser, phone!, [service.accountUrl]);
  await dora.page.goto(service.accountUrl + (await linkMailedTo(operator, member.email, '/invitation')));
  await dora.fill('Your name', 'Dora');
  await dora.page.getByLabel('Password').fill(member.password);
  await dora.press('Accept');
  await dora.page.waitForURL(`${service.accountUrl}/`);
  await dora.page.goto(`${service.accountUrl}/settings?view=security`);
  await dora.press('Set up codes');
  await dora.fill('Password', 'not the password');
  dora.expects(401);
  await dora.press('Continue');
  await dora.page.getByRole('alert').waitFor();
  await dora.page.getByRole('dialog').getByLabel('Password').fill(member.password);
  await dora.press('Continue');
  await dora.page.getByRole('img', { name: 'QR code for an authenticator app' }).waitFor();
  await dora.look();
  const secret = (await dora.page.locator('dialog code').innerText()).replaceAll(' ', '');
  assert.match(secret, /^[A-Z2-7]{16,}$/);
  await dora.page.getByLabel('Six-digit code').fill(totp(secret));
  await dora.press('Turn on');
  const codes = dora.page.locator('dialog li code');
  await codes.first().waitFor();
  assert.ok((await codes.count()) >= 8);
  await dora.look();
  await dora.page.keyboard.press('Escape');
  await dora.page.keyboard.press('Escape');
  assert.ok(await codes.first().isVisible(), 'they are not closed before they are safe');
  const backup = await codes.first().innerText();
  const [file] = await Promise.all([dora.page.waitForEvent('download'), dora.press('Save as a file')]);
  assert.equal(file.suggestedFilename(), 'tokenhouse-backup-codes.txt');
  await dora.press('Done');
  await dora.reads('After the password, we ask for a code from your authenticator app.');
  await dora.look();
  await dora.page.getByRole('button', { name: /^Sign out: Chrome/ }).click();
  await dora.page.waitForURL(/\/sign-in/);
  await signIn(dora, service, member, { next: '/team', code: () => backup });
  await dora.page.getByRole('row', { name: /^Dora you/ }).waitFor();
  assert.equal(await dora.page.getByRole('link', { name: 'Invite' }).count(), 0, 'a developer invites nobody');
  await dora.look();

  const inPage = async (method: string, path: string, body?: object): Promise<{ status: number; body: never }> =>
    (await dora.page.evaluate(
      `fetch(${JSON.stringify(path)}, { method: '${method}', ${body === undefined ? '' : `headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(JSON.stringify(body))},`} }).then(async (answer) => ({ status: answer.status, body: await answer.json() }))`,
    )) as { status: number; body: never };
  const made = await inPage('POST', '/v1/keys', { name: 'Laptop of Dora' });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const { key } = made.body as { key: string };
  assert.equal(await complete(key), 200);

  // Her spending is on her row, and leads to her requests.
  await page.goto(`${service.accountUrl}/team`);
  const row = page.getByRole('row', { name: /^Dora / });
  await until(async () => /\$0\.0\d/.test(await row.innerText()));
  assert.equal(await page.getByRole('row', { name: /^dora@/ }).count(), 0, 'the invitation is used up');
  await row.getByRole('button', { name: 'Actions for Dora' }).click();
  await page.getByRole('menuitem', { name: 'Requests' }).click();
  await page.waitForURL(/\/requests\?user=[0-9a-f]{32}$/);
  await until(async () => (await page.locator('[data-row]').count()) === 1);

  // What all of her keys may spend together: the owner sets it, and both see what is used of it.
  await page.goto(`${service.accountUrl}/team`);
  await row.getByRole('button', { name: 'Actions for Dora' }).click();
  await page.getByRole('menuitem', { name: 'Set budget' }).click();
  await page.getByRole('textbox', { name: /^Budget/ }).fill('2,50');
  assert.equal(await page.getByLabel('Renews').inputValue(), 'monthly');
  await boss.look();
  await boss.press('Save');
  await boss.reads('The budget of Dora is changed');
  await row.getByRole('meter', { name: 'Budget' }).waitFor();
  assert.match(await row.innerText(), /\$0\.0\d+ of \$2\.50\s+renews \D*1\D/);
  await boss.look();
  await dora.page.goto(`${service.accountUrl}/team`);
  const own = dora.page.getByRole('row', { name: /^Dora you/ });
  await own.getByRole('meter', { name: 'Budget' }).waitFor();
  assert.match(await own.innerText(), / of \$2\.50\s+renews /);
  await dora.page.getByRole('button', { name: 'Actions for Dora' }).click();
  await dora.page.getByRole('menuitem', { name: 'Leave the account' }).waitFor();
  assert.equal(await dora.page.getByRole('menuitem', { name: 'Set budget' }).count(), 0);
  await dora.page.keyboard.press('Escape');
  await dora.look();

  await page.goto(`${service.accountUrl}/team`);
  await row.getByRole('button', { name: 'Actions for Dora' }).click();
  await page.getByRole('menuitem', { name: 'Change role' }).click();
  await page.getByRole('dialog').getByLabel('Role').selectOption('admin');
  await boss.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Change role' }).click();
  await page.getByRole('row', { name: /^Dora .*Admin/ }).waitFor();
  // In the session that she has had all the time.
  await dora.page.goto(`${service.accountUrl}/audit`);
  await dora.page.getByRole('link', { name: 'member.edit' }).waitFor();
  await dora.look();

  await row.getByRole('button', { name: 'Actions for Dora' }).click();
  await page.getByRole('menuitem', { name: 'Remove' }).click();
  await boss.reads('Laptop of Dora');
  await boss.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await boss.reads('Dora is removed, 1 key revoked');
  await row.waitFor({ state: 'detached' });
  await until(async () => (await complete(key)) === 401);
  dora.expects(403);
  assert.equal((await inPage('GET', '/v1/members')).status, 403, 'her session is of nobody here');
  await dora.page.goto(`${service.accountUrl}/team`);
  await dora.reads('You do not belong to an account yet.');
  await dora.leave();

  // All of it is in the log; a row opens what was before and after.
  await page.getByRole('link', { name: 'Audit log', exact: true }).click();
  for (const action of ['invite.create', 'invite.accept', 'member.edit', 'key.create', 'member.remove'])
    await page.getByRole('link', { name: action, exact: true }).first().waitFor();
  await page.getByRole('row', { name: /^key\.create dora@example\.org/ }).waitFor();
  await boss.look();
  await page.getByLabel('What', { exact: true }).fill('member');
  await page.keyboard.press('Enter');
  await page.waitForURL(`${service.accountUrl}/audit?action=member`);
  await until(async () => (await page.locator('[data-row]').count()) === 3);
  await page.keyboard.press('Tab');
  await page.getByRole('link', { name: 'member.edit' }).click();
  await page.getByRole('row', { name: 'role developer admin' }).waitFor();
  await boss.look();
  await page.getByRole('link', { name: 'All its changes' }).click();
  await page.waitForURL(/\/audit\?target=[0-9a-f]{32}$/);
  await until(async () => (await page.locator('[data-row]').count()) >= 3);
  await page.getByLabel('Period').selectOption('today');
  await page.waitForURL(/since=today/);
  await page.getByLabel('Id of the subject').fill('nothing_like_it');
  await page.keyboard.press('Enter');
  await boss.reads('No change matches');
  await boss.look();
  await boss.leave();
});

async function complete(key: string): Promise<number> {
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }),
  });
  await answer.text();
  return answer.status;
}

/** A person sees nothing of another account on any page of the console, also with the ids of that account in the address. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';
import { consolePages } from './console-pages.ts';
import { linkMailedTo, signIn } from './console-person.ts';

/** Stands in everything that the other account has named. */
const canary = 'canary-of-b';
const password = 'a long password of theirs';

const service = new TestService({ config: '' });
const operator = new Visitor(service);
let ids: Awaited<ReturnType<typeof fill>>;
before(async () => {
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: 0 }\nsign_in: { sign_up: open }\n${scriptedModel(
      '- { say: [{ text: "It is Paris." }] }',
      { settings: noFeatures },
    )}`,
  );
  await service.start();
  await operator.becomeOwner();
  await fill('anna');
  ids = await fill(canary);
});
after(() => service.dispose());

/** Somebody with an account of their own that has one of everything, all called after them. Resolves with what addresses may name. */
async function fill(name: string) {
  const visitor = new Visitor(service);
  const made = async (by: Visitor, path: string, json: object, once?: string) => {
    const { status, body } = await by.ask('POST', path, json, once);
    assert.ok(status < 300, `${path}: ${JSON.stringify(body)}`);
    return body;
  };
  const email = `${name}@example.org`;
  await made(visitor, '/v1/auth/sign-up', { email, password, name });
  const link = await linkMailedTo(operator, email, '/verify-email');
  await made(visitor, '/v1/auth/verify-email', { token: link.split('#')[1] });
  await made(visitor, '/v1/auth/sign-in', { email, password });
  const account = await visitor.get('/v1/account');
  const credit = { account_id: account.id, type: 'grant', amount_cents: 1000, reason: `for ${name}` };
  await made(operator, '/v1/admin/credits', credit, `credit-${name}`);
  const key = await made(visitor, '/v1/keys', { name: `key ${name}`, tags: [name] });
  await made(visitor, '/v1/invites', { email: `guest-${name}@example.org`, role: 'viewer' });
  const recipients = { addresses: [`alert-${name}@example.org`] };
  await made(visitor, '/v1/spend_alerts', { kind: 'spend', threshold_amount: 100, interval: 'month', recipients });
  const webhook = await made(visitor, '/v1/webhook_endpoints', { url: `https://${name}.example.com/hook` });
  const body = { model: 'demo', messages: [{ role: 'user', content: `I am ${name}` }], user: `user-${name}` };
  const answer = await service.chat(body, { key: key.key });
  assert.equal(answer.status, 200, await answer.text());
  const me = await visitor.get('/v1/me');
  return {
    ...{ email, account: String(account.id), user: String(me.id), key: String(key.data.id) },
    ...{ webhook: String(webhook.id), request: answer.headers.get('x-request-id')! },
  };
}

/** Signed in, with everything that the API has answered since and the pages have shown. */
async function personOf(t: TestContext, email: string) {
  const person = await Person.at(await openBrowser(t), looks[1]!, [service.accountUrl, service.url]);
  const { page } = person;
  const read: Promise<string>[] = [];
  page.on('response', (answer) => {
    // The body of an answer is gone where a page was left before it had come; nobody has seen it then.
    if (new URL(answer.url()).pathname.startsWith('/v1/')) read.push(answer.text().catch(() => ''));
  });
  await signIn(person, service, { email, password });
  const visit = async (path: string): Promise<string> => {
    read.length = 0;
    await page.goto(service.accountUrl + path);
    await page.getByRole('heading', { level: 1 }).waitFor();
    const loading = page.locator('[role=status][aria-label]:not([data-example] *)');
    await until(async () => (await loading.count()) === 0);
    const answers = await Promise.all(read);
    assert.ok(answers.length > 0, `${path} asks the API`);
    return [await page.content(), ...answers].join('\n');
  };
  return { person, visit };
}

/** With ids of the other account wherever an address takes one. */
const addresses = (): readonly string[] => [
  ...consolePages.flatMap(({ path, signedIn }) => (signedIn === true && path !== '/gallery' ? [path] : [])),
  `/requests?key=${ids.key}`,
  `/usage?key=${ids.key}`,
  `/usage?by=key&show=requests&key=${ids.key}`,
  `/audit?actor=${ids.user}`,
];

const withIds = (path: string): string =>
  path
    .replace('KEY', ids.key)
    .replace(/REQUEST|FAILED/, ids.request)
    .replace(/ACCOUNT|OTHER/, ids.account)
    .replace('ENDPOINT', ids.webhook);

test('its own person sees the words of an account on its pages', async (t) => {
  const { person, visit } = await personOf(t, ids.email);
  for (const path of [
    '/keys/KEY',
    '/requests/REQUEST',
    '/team',
    '/alerts',
    `/alerts/webhooks/${ids.webhook}`,
    '/audit',
  ])
    assert.ok((await visit(withIds(path))).includes(canary), path);
  await person.leave();
});

test('a person of another account sees none of them, and no answer of the API has them', async (t) => {
  const { person, visit } = await personOf(t, 'anna@example.org');
  person.forgives(/status of 40[34]/);
  for (const path of addresses().map(withIds)) assert.ok(!(await visit(path)).includes(canary), path);
  await person.leave();
});

/** What one does with the first pages of the console. How every page looks is in console-light and console-dark. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { hostileName } from '../../support/hostile.ts';
import { TestService, until } from '../../support/service.ts';
import { owner, ownerToken, Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import { openConsole, signIn as signInWith } from './console-person.ts';

const openBrowser = browserOfFile();

const service = new TestService({ config: '' });
before(async () => {
  service.writeConfig(openConsole);
  await service.start();
});
after(() => service.dispose());

const desktop = looks.find(({ name }) => name === 'light, 1280 px')!;

const personAt = async (): Promise<Person> =>
  Person.at(await openBrowser(), desktop, [service.accountUrl, service.url]);

const signIn = (person: Person): Promise<void> => signInWith(person, service, owner, { next: '/keys' });

/** A year of days, each with usage of eight models. */
function yearOfUsage(query: URLSearchParams): object {
  const day = 86_400;
  const first = Math.floor(Date.now() / 1000 / day - 365) * day;
  const result = (model: string | null, cost: number) => ({
    input_tokens: 1,
    input_cached_tokens: 0,
    output_tokens: 1,
    output_reasoning_tokens: 0,
    num_model_requests: 1,
    cost_microcents: cost,
    uncharged_microcents: 0,
    model,
    api_key_id: null,
    user_id: null,
    tag: null,
  });
  const models = query.has('group_by') ? Array.from({ length: 8 }, (_, at) => `model-${at}`) : [null];
  const data = Array.from({ length: Number(query.get('limit')) }, (_, at) => ({
    object: 'bucket',
    start_time: first + at * day,
    end_time: first + (at + 1) * day,
    results: models.map((model, index) => result(model, 1_000_000 + index)),
  }));
  return { object: 'page', time_zone: 'UTC', data, has_more: false };
}

test('the link of the first start makes the owner, whose first key cannot be lost', async () => {
  const person = await personAt();
  const { page } = person;
  await person.open(`${service.accountUrl}/welcome#${await ownerToken(service)}`);
  assert.equal(page.url(), `${service.accountUrl}/welcome`, 'the token is out of the address bar');
  await person.fill('Your name', owner.name);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password', owner.password);
  await person.press('Create the owner account');
  await person.reads('You are the operator of this server');
  await person.look();
  await page.goto(`${service.accountUrl}/keys`);
  await page.getByRole('link', { name: 'Create key' }).click();
  await person.fill('Name', hostileName);
  // What is not set does not look as if it renewed.
  const renews = page.getByLabel('Renews');
  assert.deepEqual([await renews.isDisabled(), await renews.inputValue()], [true, '']);
  await page.getByLabel('Budget (optional)').fill('2,50');
  assert.deepEqual([await renews.isEnabled(), await renews.inputValue()], [true, 'monthly']);
  await page.getByRole('button', { name: 'Create key' }).click();
  const secret = page.getByLabel('The key', { exact: true });
  await secret.waitFor();
  await person.look();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  assert.match(await secret.inputValue(), /^tkh_/, 'it is not closed before it is safe');
  await person.press('Copy the key');
  await person.press('Done');
  await page.getByText('$0.00 of $2.50').waitFor();
  await page.getByRole('link', { name: hostileName }).click();
  await page.waitForURL(/\/keys\/key_/);
  await person.look();
  await person.leave();
});

test('a key that is revoked in one browser is gone in the other within two seconds', async () => {
  const visitor = new Visitor(service);
  assert.equal(
    (await visitor.ask('POST', '/v1/auth/sign-in', { email: owner.email, password: owner.password })).status,
    200,
  );
  const made = await visitor.ask('POST', '/v1/keys', { name: 'Shared' });
  assert.equal(made.status, 201);
  const one = await personAt();
  const other = await personAt();
  await signIn(one);
  await signIn(other);
  const row = other.page.getByRole('link', { name: 'Shared' });
  await row.waitFor();
  await one.page.getByRole('link', { name: 'Shared' }).click();
  await one.page.getByRole('button', { name: 'More' }).click();
  await one.page.getByRole('menuitem', { name: 'Revoke' }).click();
  await one.press('Revoke');
  await one.page.waitForURL(`${service.accountUrl}/keys`);
  // The page asks every two seconds; the rest is what a busy machine takes.
  await row.waitFor({ state: 'detached', timeout: 10_000 });
  await one.leave();
  await other.leave();
});

test('a form sends what was changed alone: a budget with fractions of a cent stays', async () => {
  const visitor = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await visitor.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  const budgets = [{ model: 'demo', limit_microcents: 250 }];
  const made = await visitor.ask('POST', '/v1/keys', {
    name: 'Fine',
    limit_microcents: 1_500_001,
    budgets_by_model: budgets,
  });
  const path = `/v1/keys/${made.body.data.id}`;
  const person = await personAt();
  await signIn(person);
  await person.page.getByRole('link', { name: 'Fine' }).click();
  const change = async (label: string, value: string): Promise<unknown> => {
    await person.press('Change');
    const dialog = person.page.getByRole('dialog');
    await dialog.getByLabel(label).first().fill(value);
    const [request] = await Promise.all([
      person.page.waitForRequest((one) => one.method() === 'PATCH'),
      dialog.getByRole('button', { name: 'Save', exact: true }).click(),
    ]);
    await dialog.waitFor({ state: 'detached' });
    return request.postDataJSON();
  };
  assert.deepEqual(await change('Name', 'Finer'), { name: 'Finer' });
  assert.deepEqual(await change('Tags', 'x'), { tags: ['x'] });
  assert.deepEqual(await change('Budget (optional)', '0.0123456'), { limit_microcents: 1_234_560 });
  const { limit_microcents: limit, budgets_by_model: ofModels } = await visitor.get(path);
  assert.deepEqual([limit, ofModels[0].limit_microcents], [1_234_560, 250]);
  await person.leave();
});

test('a lost connection says so; what has happened meanwhile is there when it is back', async () => {
  const person = await personAt();
  await signIn(person);
  await person.page.getByRole('heading', { level: 1 }).waitFor();
  person.forgives(/net::ERR_/);
  const lost = /\/(v1|healthz)/;
  await person.context.route(lost, (route) => route.abort());
  const banner = person.page.getByText(/^No connection to the server/);
  await banner.waitFor();
  const visitor = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await visitor.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  assert.equal((await visitor.ask('POST', '/v1/keys', { name: 'Meanwhile' })).status, 201);
  await person.look();
  await person.context.unroute(lost);
  await banner.waitFor({ state: 'detached' });
  await person.page.getByRole('link', { name: 'Meanwhile' }).waitFor();
  await person.leave();
});

test('the start page asks the model, and its light turns green for the request of another key', async () => {
  const person = await personAt();
  await signIn(person);
  await person.page.goto(`${service.accountUrl}/start`);
  await person.press('Send first request');
  await person.reads('It is Paris.');
  await person.reads('Waiting for the first request of a key…');
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }),
  });
  assert.equal(answer.status, 200);
  await person.reads(/It has arrived: demo, \d+ tokens/);
  await person.look();
  // Both requests are on the first page, in its figures, its chart and its list.
  await person.page.goto(service.accountUrl);
  await until(async () => (await person.page.getByRole('row', { name: /^demo finished/ }).count()) === 2);
  await person.page.getByText('Spend of the last 30 days as a table').waitFor();
  await person.look();
  await person.leave();
});

test('the link of a 402 leads to the billing page: a payment is left and then made, and is credit once', async () => {
  const person = await personAt();
  const { page } = person;
  await signIn(person);
  /** In dollars, as the page says it. */
  const balance = async (): Promise<number> =>
    Number(/\$([\d.]+)/.exec(await page.getByText(/^of a balance of/).innerText())![1]);
  await page.goto(`${service.accountUrl}/topup`);
  await page.waitForURL(`${service.accountUrl}/billing?add=true`);
  await page.getByRole('dialog').waitFor();
  const before = await balance();
  await page.getByRole('textbox', { name: 'Amount' }).fill('0.01');
  person.expects(400);
  await person.press('Continue to payment');
  await person.reads(/A payment is from \$1\.00/);
  await person.look();
  await person.press('$25.00');
  await person.press('Continue to payment');
  await person.arrives(/\/v1\/payments\/demo\/cs_demo_/);

  await page.getByRole('link', { name: 'Cancel and go back' }).click();
  await page.waitForURL(`${service.accountUrl}/billing?checkout=cancelled`);
  await person.reads('You left the payment page: $25.00 was not paid, and nothing was charged.');
  await person.look();
  assert.equal(await balance(), before);
  await page.getByRole('row').getByRole('link', { name: 'Continue to payment' }).click();
  await person.arrives(/\/v1\/payments\/demo\/cs_demo_/);
  // Paid, and reported three times, as providers do.
  const played = await page.request.post(page.url(), { form: { outcome: 'duplicate' }, maxRedirects: 0 });
  assert.equal(played.status(), 303);
  await page.goto(played.headers()['location']!);
  await page.waitForURL(`${service.accountUrl}/billing?checkout=done`);
  await person.reads('$25.00 is paid, and the credit can be spent.');
  await until(async () => (await balance()) === before + 25);

  const receipt = page.getByRole('button', { name: /^Save rcpt_\w+ as a PDF$/ });
  await receipt.waitFor();
  await person.look();
  const [file] = await Promise.all([page.waitForEvent('download'), receipt.click()]);
  assert.match(file.suggestedFilename(), /^rcpt_\w+\.pdf$/);
  await page.getByRole('tab', { name: 'Movements' }).click();
  await page.getByRole('cell', { name: '+$25.00', exact: true }).waitFor();
  await person.leave();
});

test('who is not signed in is asked to, and comes back; a link to another host is not followed', async () => {
  const person = await personAt();
  const { page } = person;
  person.expects(401);
  await page.goto(`${service.accountUrl}/keys?disabled=true`);
  await page.waitForURL(/\/sign-in\?next=/);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password', 'not the password');
  person.expects(401);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await person.look();
  await person.fill('Password', owner.password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.waitForURL(`${service.accountUrl}/keys?disabled=true`);
  for (const next of ['https://evil.example', '//evil.example', '/\\evil.example']) {
    await page.goto(`${service.accountUrl}/sign-in?next=${encodeURIComponent(next)}`);
    await person.fill('E-mail address', owner.email);
    await person.fill('Password', owner.password);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.waitForURL((url) => url.pathname === '/');
    assert.equal(new URL(page.url()).origin, service.accountUrl, next);
  }
  await person.leave();
});

test('by keyboard: the palette, the rows, a menu and the way out', async () => {
  const person = await personAt();
  const { page } = person;
  const openPalette = async (): Promise<void> => {
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog').getByRole('combobox').waitFor();
  };
  await signIn(person);
  await page.getByRole('link', { name: hostileName }).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/keys\/key_/);
  await until(async () => (await page.evaluate('document.activeElement.tagName')) === 'H1');
  await openPalette();
  await page.keyboard.type('keys');
  await page.keyboard.press('Enter');
  await page.waitForURL(`${service.accountUrl}/keys`);
  for (const [typed, found, path] of [
    ['invite', 'Invite a person', '/team'],
    ['add cred', 'Add credit', '/billing'],
    ['price', 'Set a price', '/operator/catalogue'],
    ['create an acc', 'Create an account', '/operator/accounts?open=create'],
  ] as const) {
    await openPalette();
    await page.keyboard.type(typed);
    await page.getByRole('option', { name: found, selected: true }).waitFor();
    if (typed === 'price') await person.look();
    await page.keyboard.press('Enter');
    await page.waitForURL(service.accountUrl + path);
  }
  await page.getByRole('dialog', { name: 'Create account' }).waitFor();
  await page.goto(`${service.accountUrl}/keys`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  // Rows of the database, by their names.
  for (const [typed, found, path] of [
    ['demo', 'Demo', '/models/demo'],
    [owner.email, owner.name, '/team'],
    [service.accountId.slice(5), service.accountId, `/operator/accounts/${service.accountId}`],
  ] as const) {
    await openPalette();
    await page.keyboard.type(typed);
    const option = page.getByRole('option').filter({ hasText: found }).first();
    await option.waitFor();
    if (typed === 'demo') await person.look();
    for (let steps = 0; steps < 12 && (await option.getAttribute('aria-selected')) !== 'true'; steps++)
      await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    // Behind it may stand which row.
    await page.waitForURL((url) => url.pathname === path);
    await page.getByRole('heading', { level: 1 }).waitFor();
  }
  await page.goto(`${service.accountUrl}/keys`);
  await page.getByRole('button', { name: 'Your account' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menuitemcheckbox', { name: 'Deutsch' }).press('Enter');
  await person.reads('Schlüssel anlegen');
  await person.leave();
});

test('the longest report is drawn whole, to its newest day', async () => {
  const person = await personAt();
  const { page } = person;
  const asked: string[] = [];
  // Signed in first: the page before asks for usage of its own.
  await signIn(person);
  await page.route(/\/v1\/usage\?/, async (route) => {
    const { searchParams } = new URL(route.request().url());
    asked.push(searchParams.get('limit') ?? '');
    await route.fulfill({ json: yearOfUsage(searchParams) });
  });
  // Ten years are asked for, and one page of the API is what there is.
  await page.goto(`${service.accountUrl}/usage?from=1451606400&by=model`);
  const bars = page.locator('figure svg rect');
  await until(async () => (await bars.count()) === 366 * 6, 60_000);
  assert.deepEqual([...new Set(asked)], ['366']);
  const [right, edge] = (await page.evaluate(
    `(() => { const svg = document.querySelector('figure svg'); return [Math.max(...[...svg.querySelectorAll('rect')].map((bar) => bar.getBoundingClientRect().right)), svg.getBoundingClientRect().right]; })()`,
  )) as [number, number];
  assert.ok(edge - right < 10, 'the last day is at the right edge');
  await person.look();
  await person.leave();
});

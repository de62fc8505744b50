/** What the operator of the server does in the console: accounts and their credit, prices, the state of the system, mail, the audit log. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { Server } from '../../app/discovery/scene.ts';
import { startHub } from '../../support/hub.ts';
import { hostileName } from '../../support/hostile.ts';
import { report } from '../../support/workers.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import type { Look } from './browser.ts';

const openBrowser = browserOfFile();

const made = mkdtempSync(join(tmpdir(), 'tokenhouse-operator-'));
const modelFile = join(made, 'tiny-Q8_0.gguf');
writeTinyGguf(modelFile, { script: [['assistant\n', 'Hello', ' there', '<|im_end|>']], contextLength: 2048 });
const hub = await startHub(new Map([['tiny-Q8_0.gguf', readFileSync(modelFile)]]));
const service = new TestService({
  config: '',
  environment: { HF_ENDPOINT: hub.url, NO_PROXY: '127.0.0.1', TOKENHOUSE_MODEL_DIR: join(made, 'cache') },
});
const visitor = new Visitor(service);
const member = { email: 'mia@example.org', name: 'Mia', password: 'a long password of hers' };

before(async () => {
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: 0 }\nplans: [{ name: business, max_concurrency: 7 }]\n${scriptedModel(
      '- { say: [], fault: { after_tokens: 0, type: error } }',
      { settings: noFeatures },
    )}
        name: broken
      - engine: scripted
        name: sound
        scripts: [{ say: [{ text: "It is Paris." }] }]
  - id: elsewhere
    display_name: Elsewhere
    context_length: 8192
    max_output_tokens: null
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    sampling: honor
    backends:
      - { engine: openai, name: gone, url: 'http://127.0.0.1:9/v1', flavor: vllm, max_concurrency: 4 }
      - { engine: openai, name: fleet, flavor: vllm, discover: { by: file, path: fleet.yaml } }
`,
  );
  await service.start();
  await visitor.becomeOwner();
  await visitor.ask('POST', '/v1/invites', { email: member.email, role: 'owner' });
  const [mail] = (await visitor.get('/v1/admin/outbox')).data;
  const { text } = await visitor.get(`/v1/admin/outbox/${mail.id}`);
  const token = /#([\w-]+)/.exec(String(text))?.[1];
  const joined = await new Visitor(service).ask('POST', '/v1/invites/accept', { token, ...member, email: undefined });
  assert.equal(joined.status, 200, JSON.stringify(joined.body));
});
after(async () => {
  await service.verify();
  await service.dispose();
  await hub.close();
  rmSync(made, { recursive: true, force: true });
});

const desktop = looks.find(({ name }) => name === 'light, 1280 px')!;
const phone = looks.find(({ name }) => name === 'dark, 360 px')!;

async function signedIn(path: string, who: { email: string; password: string } = owner, look: Look = desktop) {
  const person = await Person.at(await openBrowser(), look, [service.accountUrl, service.url]);
  await person.page.goto(`${service.accountUrl}/sign-in?next=${encodeURIComponent(path)}`);
  await person.fill('E-mail address', who.email);
  await person.fill('Password', who.password);
  await person.page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await person.page.waitForURL(service.accountUrl + path);
  return person;
}

const chat = (key: string): Promise<Response> =>
  service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key });

for (const look of [desktop, phone])
  test(`an account is made, gets credit, is suspended and works again, and is deleted: ${look.name}`, async () => {
    const person = await signedIn('/operator/accounts', owner, look);
    const { page } = person;
    /** Sends the form of the dialog, and waits until it is closed. */
    const confirm = async (action: string): Promise<void> => {
      await page.getByRole('dialog').getByRole('button', { name: action, exact: true }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    const choose = async (item: string): Promise<void> => {
      await page.getByRole('button', { name: 'More', exact: true }).click();
      await page.getByRole('menuitem', { name: item }).click();
    };
    await page.getByRole('link', { name: 'Create account' }).click();
    await person.fill('Name', hostileName);
    await page.getByRole('dialog').getByRole('button', { name: 'Create account' }).click();
    await page.waitForURL(/\/operator\/accounts\/acct_\w+$/);
    const id = new URL(page.url()).pathname.split('/')[3]!;
    await page.getByRole('heading', { name: hostileName }).waitFor();
    await person.look();

    await person.press('Grant credit');
    await page.getByLabel('Amount').fill('12.50');
    await page.getByLabel('Reason').fill('Welcome <b>you</b>');
    await person.look();
    await confirm('Grant credit');
    await page.getByText('Welcome <b>you</b>').waitFor();
    // Its answer is lost: sent again, it counts once.
    await page.route(
      '**/v1/admin/credits',
      async (route) => {
        await route.fetch();
        await route.abort();
      },
      { times: 1 },
    );
    person.forgives(/ERR_FAILED/);
    await person.press('Grant credit');
    await page.getByLabel('Amount').fill('1');
    await page.getByLabel('Reason').fill('Once');
    await page.getByRole('dialog').getByRole('button', { name: 'Grant credit' }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await confirm('Grant credit');
    await person.reads(/was moved before; the balance is \$13\.50/);
    await choose('Move credit');
    await page.getByLabel('Direction').selectOption('Take away');
    await page.getByLabel('Amount').fill('100');
    await page.getByLabel('Reason').fill('Too much');
    person.expects(409);
    await page.getByRole('dialog').getByRole('button', { name: 'Move credit' }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await person.look();
    await page.getByLabel('Amount').fill('2.5');
    await confirm('Move credit');
    await page.locator('main dt:text("Available") + dd:has-text("$11.00")').waitFor();

    // What the page says is what the ledger says.
    const made = await report(service, { kind: 'create_key', accountId: id, name: 'x', expiresAt: undefined });
    const answer = await chat(made.key);
    assert.equal(answer.status, 200, await answer.text());
    const { data } = await visitor.get(`/v1/admin/accounts/${id}/ledger`);
    const left = data.reduce((sum: number, entry: { amount_microcents: number }) => sum + entry.amount_microcents, 0);
    const spent = page.locator('main dt:text("Spent") + dd span[title], main dt:text("Spent") + dd span').first();
    await until(async () => !/^\$0\.00$/.test(await spent.innerText()));
    const balance = page.locator('main dt:text("Available") + dd > span');
    await until(async () => exact(await balance.getAttribute('title'), await balance.innerText()) === BigInt(left));
    assert.equal((await visitor.get(`/v1/admin/accounts/${id}`)).balance_microcents, left);

    await page.getByRole('button', { name: 'Limits' }).click();
    await page.getByLabel('Plan').selectOption('business');
    await page.getByLabel('Credit limit').fill('3');
    await page.getByLabel('demo').check();
    await person.look();
    await confirm('Save');
    await page.locator('main dt:text("Plan") + dd:has-text("business")').waitFor();
    const limits = await visitor.get(`/v1/admin/accounts/${id}`);
    assert.deepEqual(
      [limits.plan_tier, limits.credit_limit_cents, limits.allowed_models, limits.max_concurrency],
      ['business', 300, ['demo'], null],
    );

    await choose('Suspend');
    await page.getByLabel('Reason').fill('A stolen card');
    await confirm('Suspend');
    await person.reads('A stolen card');
    await person.look();
    await until(async () => (await chat(made.key)).status === 401);
    await page.getByRole('button', { name: 'Lift the suspension' }).click();
    await page.getByLabel('Reason').fill('It was found');
    await confirm('Lift the suspension');
    await until(async () => (await chat(made.key)).status === 200);
    await page.getByRole('tab', { name: 'Suspensions' }).click();
    await page.getByRole('cell', { name: 'It was found' }).waitFor();

    await choose('Delete account');
    const remove = page.getByRole('dialog').getByRole('button', { name: 'Delete account' });
    assert.equal(await remove.isEnabled(), false, 'the id is typed first');
    await page.getByLabel(/^Let .* expire$/).check();
    await page.getByLabel(`Type ${id} to confirm`).fill(id);
    await person.look();
    await confirm('Delete account');
    await person.reads('This account was deleted.');
    assert.equal((await chat(made.key)).status, 401);
    await page.getByRole('link', { name: 'Accounts', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Accounts' }).waitFor();
    await person.look();
    await person.leave();
  });

for (const look of [desktop, phone])
  test(`a request is refunded from its receipt once the effect was seen, also one of a customer: ${look.name}`, async () => {
    const { body: customer } = await visitor.ask('POST', '/v1/admin/accounts', {
      name: hostileName,
      credit_cents: 100,
      key_name: 'theirs',
    });
    const own = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    const theirs = await chat(customer.key);
    assert.deepEqual([own.status, theirs.status], [200, 200]);
    const ids = [own, theirs].map(({ headers }) => headers.get('x-request-id')!);
    for (const id of ids)
      await until(async () => (await visitor.ask('GET', `/v1/admin/requests/${id}`)).status === 200);
    const person = await signedIn(`/requests/${ids[0]}`, owner, look);
    const { page } = person;
    const dialog = page.getByRole('dialog');
    await person.press('Refund');
    await dialog.getByLabel('Reason').fill('It was <b>cut</b>');
    await person.look();
    await dialog.getByRole('button', { name: /^Refund \$/ }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.locator('main dt:text("Charged") + dd:has-text("Refunded")').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Refund', exact: true }).count(), 0, 'it is refunded once');

    // A customer sends the id of a request: a part of it.
    await page.goto(`${service.accountUrl}/operator/accounts/${customer.id}`);
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Refund a request' }).click();
    await dialog.getByLabel('Id of the request').fill(` ${ids[1]} `);
    // It is looked for in their own account first.
    person.expects(404);
    await dialog.getByRole('button', { name: 'Open the receipt' }).click();
    await page.waitForURL(`${service.accountUrl}/requests/${ids[1]}`);
    const name = page.getByRole('main').getByRole('link', { name: hostileName });
    await name.waitFor();
    await person.look();
    const [receipt] = (await visitor.get(`/v1/admin/requests/${ids[1]}`)).data;
    await person.press('Refund');
    await dialog.getByLabel('What is refunded').selectOption('A part of it');
    const amount = dialog.getByLabel('Amount to refund');
    const send = dialog.getByRole('button', { name: /^Refund/ });
    await amount.fill('99');
    await dialog.getByText(/a refund cannot be more than that/).waitFor();
    assert.equal(await send.isEnabled(), false);
    await person.look();
    await amount.fill('0.00000003');
    await dialog.getByLabel('Reason').fill('Slow');
    const charged = receipt.total_cost_microcents / 1e8;
    await dialog
      .locator('dt:text("Stays charged") + dd')
      .getByText(`$${(charged - 3e-8).toFixed(8)}`)
      .waitFor();
    await dialog.getByText('$0.99').first().waitFor();
    await person.look();
    await send.click();
    await dialog.waitFor({ state: 'detached' });
    await page.locator('main dt:text("Charged") + dd:has-text("$0.00000003")').waitFor();
    await person.look();
    const [after] = (await visitor.get(`/v1/admin/requests/${ids[1]}`)).data;
    assert.deepEqual([after.refunded_microcents, after.total_cost_microcents], [3, receipt.total_cost_microcents]);
    await name.click();
    await page.getByText('Slow').waitFor();
    await person.leave();
  });

test('an account is found by the address of a member, whose second factor is reset', async () => {
  const person = await signedIn('/operator/accounts');
  const { page } = person;
  await page.locator('[data-row]').first().waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('nobody at all');
  await person.reads('No account matches');
  assert.equal(new URL(page.url()).searchParams.get('search'), 'nobody at all');
  await page.getByLabel('Search').fill('MIA@');
  await until(async () => (await page.locator('[data-row]').count()) === 1);
  await page.keyboard.press('Tab');
  await page.locator('[data-row] a').click();
  await page.getByRole('tab', { name: 'People' }).click();
  await page
    .getByRole('row', { name: new RegExp(member.email) })
    .getByRole('button', { name: 'Reset' })
    .click();
  await person.look();
  await page.getByRole('dialog').getByRole('button', { name: 'Reset', exact: true }).click();
  await person.reads(new RegExp(`${member.email} signs in with the password alone`));
  await person.leave();
});

test('an account pays another price once its effect was seen, and the list price again when it ends', async () => {
  const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 200, await answer.text());
  const person = await signedIn('/operator/catalogue');
  const { page } = person;
  await page.getByRole('link', { name: 'Demo' }).click();
  await page.getByRole('main').getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('menuitem', { name: 'Set a price for an account' }).click();
  const dialog = page.getByRole('dialog');
  const save = dialog.getByRole('button', { name: 'Save' });
  await dialog.getByLabel('Id of the account').fill(service.accountId);
  await dialog.getByLabel(/^Output/).fill('0.075');
  assert.equal(await save.isEnabled(), false, 'nothing is saved that was not tried');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByText('The last 30 days at these prices').waitFor();
  await person.look();
  const body = {
    account_id: service.accountId,
    model: 'demo',
    input_microcents_per_million: 5_000_000,
    cache_read_microcents_per_million: 5_000_000,
    output_microcents_per_million: 7_500_000,
  };
  const { body: preview } = await visitor.ask('POST', '/v1/admin/account_prices/preview', body);
  assert.ok(preview.requests > 0 && preview.difference_microcents < 0, JSON.stringify(preview));
  await dialog.locator('dt:text("Requests") + dd').getByText(String(preview.requests), { exact: true }).waitFor();
  await dialog.getByLabel(/^Output/).fill('0.08');
  assert.equal(await save.isEnabled(), false, 'it was tried with another price');
  await dialog.getByLabel(/^Output/).fill('0.075');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await save.click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('row', { name: new RegExp(service.accountId) }).waitFor();
  await person.look();
  const [price] = (await visitor.get(`/v1/admin/account_prices?account_id=${service.accountId}`)).data;
  assert.deepEqual({ ...price, ...body }, price);
  await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  const charged = await service.usage(1);
  assert.equal(charged.requests[0]!.model, 'demo');

  await page.getByRole('button', { name: 'End', exact: true }).click();
  await dialog.getByRole('button', { name: 'End', exact: true }).click();
  await person.reads('Only list prices');
  assert.equal((await visitor.get(`/v1/admin/account_prices?model=demo`)).data.length, 0);

  await page.getByRole('button', { name: 'Try another list price' }).click();
  await dialog.getByLabel('Input', { exact: true }).fill('1');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByRole('button', { name: 'Use as list price' }).click();
  await dialog.getByText(/^\+.*input_dollars_per_million: 1\b/).waitFor();
  await person.look();
  await person.leave();
});

for (const look of [desktop, phone])
  test(`a model that this computer runs is added by its name at a hub, and a wrong one says why: ${look.name}`, async () => {
    const person = await signedIn('/operator/catalogue', owner, look);
    const { page } = person;
    const id = look === phone ? 'of-the-phone' : 'tiny-q8_0';
    const add = async (source: string): Promise<void> => {
      await person.press('Add a model');
      await person.fill('Source', source);
      if (look === phone) await person.fill('Id of the model', id);
      await person.look();
      await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    await add('hf:o/r:Q2_K');
    await page.getByRole('heading', { name: 'Not added: hf:o/r:Q2_K' }).waitFor();
    await person.look();
    await add('hf:o/r:Q8_0');
    await page.getByRole('heading', { name: 'Added: hf:o/r:Q8_0', exact: true }).waitFor();
    await person.reads(/Hello there/);
    await person.look();
    await page.getByRole('main').getByRole('status').getByRole('link', { name: id }).click();
    await page.getByRole('heading', { name: 'tiny-Q8_0' }).first().waitFor();
  });

test('the system shows a backend that fails as ejected, with the figures of the API, and says when it is stale', async () => {
  await until(async () => {
    await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    const { data } = await visitor.get('/v1/admin/backends');
    return data.some((backend: { name: string; ejected: boolean }) => backend.name === 'broken' && backend.ejected);
  });
  const person = await signedIn('/operator/system');
  const { page } = person;
  const row = page.getByRole('row', { name: /broken/ });
  await until(async () => {
    await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    return await row.getByText('ejected').isVisible();
  });
  await person.reads(/the backend broken does not answer as it should/);
  await page.getByRole('row', { name: /sound/ }).getByText('ready').waitFor();
  await person.look();
  await person.press('Check the servers');
  await page.getByText('no answer', { exact: true }).waitFor();
  await page.getByText('elsewhere · gone').first().waitFor();
  await person.look();
  const { data } = await visitor.get('/v1/admin/backends');
  const { ejections } = data.find((backend: { name: string }) => backend.name === 'broken');
  await until(async () => Number(await row.locator('[data-head="Ejections"]').innerText()) >= ejections);
  // Answers that do not come make the figures stale; the page says so, and goes on when they come.
  await page.getByText('live', { exact: true }).waitFor();
  await page.route('**/v1/admin/system', (route) => route.abort());
  person.forgives(/ERR_FAILED/);
  await page.getByText('stale', { exact: true }).waitFor();
  await page.unroute('**/v1/admin/system');
  await page.getByText('live', { exact: true }).waitFor();
  await person.leave();
});

test('the system shows where backends come from: a file that is missing is a finding, until it is there and its server is in use', async (t) => {
  const server = await Server.start('found');
  t.after(() => server.upstream.close());
  const person = await signedIn('/operator/system');
  const { page } = person;
  const row = page.getByRole('table', { name: 'Where backends come from' }).getByRole('row', { name: /fleet/ });
  await row.getByText('failing', { exact: true }).waitFor();
  await person.reads(/elsewhere: the backend source fleet fails/);
  await row.getByText('0 of 0').waitFor();
  await row.getByText('not yet').waitFor();
  await person.look();
  const list = join(service.folder, 'fleet.yaml');
  writeFileSync(list, JSON.stringify([server.url]));
  await row.getByText('1 of 1').waitFor();
  await row.getByText('OK', { exact: true }).waitFor();
  await page.getByText(/the backend source fleet fails/).waitFor({ state: 'detached' });
  await person.look();
  // What comes after it finds the model as it was.
  writeFileSync(list, '[]');
  await row.getByText('0 of 0').waitFor();
  await person.leave();
});

test('the system shows what was, from where the data begin: as a whole, by backend, and nothing before the first minute', async () => {
  const person = await signedIn('/operator/system');
  const { page } = person;
  const begun = Math.floor(Date.now() / 60_000) * 60 - 20 * 60;
  const step = (minute: number, more: object) => ({
    ...{
      object: 'history',
      start_time: begun + 60 * minute,
      end_time: begun + 60 * minute + 60,
      model: null,
      backend: null,
    },
    ...{ requests: 0, refused: 0, failed: 0, prompt_tokens: 0, completion_tokens: 0, tokens_per_second: 0 },
    ...{ answer_tokens_per_second: null, first_token_p50_ms: null, first_token_p95_ms: null },
    ...{ waited: 0, wait_mean_ms: null, wait_longest_ms: null, ...more },
  });
  const busy = {
    requests: 8,
    refused: 1,
    failed: 2,
    tokens_per_second: 41.5,
    first_token_p50_ms: 90,
    first_token_p95_ms: 2400,
  };
  const wait = { waited: 3, wait_mean_ms: 120, wait_longest_ms: 500 };
  const whole = Array.from({ length: 20 }, (_, minute) => step(minute, minute % 7 === 3 ? {} : { ...busy, ...wait }));
  const parts = ['sound', 'broken'].flatMap((backend) =>
    whole.map(({ start_time: at }, minute) => step(minute, { ...busy, start_time: at, model: 'demo', backend })),
  );
  let data: readonly object[] = [];
  await page.route('**/v1/admin/history?*', (route) =>
    route.fulfill({
      json: { object: 'list', data: route.request().url().includes('by=backend') ? parts : data, has_more: false },
    }),
  );
  await page.reload();
  await person.reads('The first figures are here a minute after the first request');
  data = whole;
  await page.getByLabel('Time', { exact: true }).selectOption('24 hours');
  await page.waitForURL(/span=day/);
  for (const chart of ['Requests', 'Errors', 'Time to the first token', 'Wait for a slot', 'Output tokens a second'])
    await page.getByRole('heading', { name: chart, exact: true }).waitFor();
  await page.getByText('p95', { exact: true }).locator('visible=true').first().waitFor();
  await page.getByText('Time to the first token as a table').click();
  const table = page.getByRole('region', { name: 'Time to the first token' });
  assert.deepEqual(await table.locator('tbody tr').nth(3).locator('td').allInnerTexts(), ['–', '–']);
  assert.deepEqual(await table.locator('tbody tr').first().locator('td').allInnerTexts(), ['90 ms', '2.4 sec']);
  await person.look();
  await page.getByLabel('Show', { exact: true }).selectOption('by backend');
  await page.getByText('demo · sound').first().waitFor();
  assert.equal(await page.getByRole('heading', { name: 'Wait for a slot' }).count(), 0);
  await person.look();
  await person.leave();
});

test('a mail is read as text, and the audit log says who did what', async () => {
  await visitor.ask('POST', '/v1/invites', { email: 'nobody@example.org', role: 'viewer' });
  const person = await signedIn('/operator/outbox');
  const { page } = person;
  await page.locator('[data-row]', { hasText: 'nobody@example.org' }).getByRole('link').click();
  await page
    .getByRole('dialog')
    .getByText(/\/invitation#/)
    .waitFor();
  assert.equal(await page.getByRole('dialog').locator('pre a').count(), 0);
  await person.look();
  await page.keyboard.press('Escape');
  await page.getByLabel('State').selectOption('Given up');
  await page.waitForURL(/\?state=failed$/);
  await person.reads('Nothing matches');

  await page.goto(`${service.accountUrl}/operator/audit`);
  await page.getByLabel('Kind of change').fill('account.suspend, account.revive');
  await page.waitForURL(/action=/);
  const rows = page.locator('[data-row]');
  await until(async () => (await rows.count()) === 4);
  await rows.first().getByText('account.revive').waitFor();
  // Of an account that is still there, the values too.
  await page.getByLabel('Id of the account').fill(service.accountId);
  await page.getByLabel('Kind of change').fill('price.set');
  await until(async () => (await rows.count()) === 1);
  await rows.first().getByRole('link').first().click();
  await page.getByRole('dialog').getByText('"7500000"').first().waitFor();
  await page.getByRole('dialog').getByText(owner.email).waitFor();
  await person.look();
  await person.leave();
});

test('a page that fails leaves the shell, and nobody but an operator sees the pages of operators', async () => {
  const person = await signedIn('/operator/system');
  const { page } = person;
  await page.route('**/v1/admin/system', (route) => route.fulfill({ json: { object: 'system' } }));
  person.forgives(/Cannot read properties|The above error|TypeError/);
  await page.reload();
  await person.reads('Something went wrong');
  await person.look();
  await page.getByRole('link', { name: 'Accounts', exact: true }).click();
  await page.getByRole('heading', { name: 'Accounts' }).waitFor();
  await person.leave();

  const other = await signedIn('/', member);
  await other.page.getByRole('link', { name: 'Keys', exact: true }).waitFor();
  assert.equal(await other.page.locator('a[href^="/operator"]').count(), 0);
  for (const path of [
    '/operator/accounts',
    '/operator/catalogue',
    '/operator/system',
    '/operator/outbox',
    '/operator/audit',
  ]) {
    other.forgives(/status of 403/);
    await other.page.goto(service.accountUrl + path);
    await other.page.getByRole('alert').first().waitFor();
  }
  await other.look();
  await other.leave();
  const asMember = new Visitor(service);
  await asMember.ask('POST', '/v1/auth/sign-in', { email: member.email, password: member.password });
  for (const path of ['accounts', 'models', 'backends', 'backend_sources', 'system', 'outbox', 'audit'])
    assert.equal((await asMember.ask('GET', `/v1/admin/${path}`)).status, 403, path);
});

/** In microcents, of an amount whose tip is the exact one. */
const exact = (title: string | null, text: string): bigint =>
  BigInt(Math.round(Number((title ?? text).replaceAll(/[^\d.]/g, '')) * 1e8));

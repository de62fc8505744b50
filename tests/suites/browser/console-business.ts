/**
 * The business of an operator who never opens a shell, told once as `console-life.ts` tells a life: a server is added and priced, a customer
 * is brought in, pays, uses the model, is refused and asks why; the operator sees it, refunds a request and ends the model.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';

import type { TestService } from '../../support/service.ts';
import { until } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';
import { Visitor } from '../../support/visitor.ts';
import {
  becomesOwner,
  born,
  button,
  fieldOf,
  fits,
  inDialog,
  lifeService,
  linkIn,
  makesKey,
  opens,
  paysAndGetsReceipt,
} from './console-life.ts';
import type { Hands, Life } from './console-life.ts';

export const businessService = (): TestService => lifeService();

const model = 'Qwen/Qwen3-8B';
const customer = {
  email: 'carla@example.org',
  name: 'Carla',
  password: 'a third horse battery',
  company: 'Carla & Co',
};
const area = 'operator-catalogue';
const accounts = 'operator-accounts';
/** Dollars per million tokens, and what the server of the model says of each answer. */
const prices = { input: '1.5', output: '6.025' };
const tokens = { prompt: 12, completion: 4 };
/** Microcents: 12 at 150 and 4 at 602.5. */
const price = 4_210;

export async function business(t: Pick<TestContext, 'after'>, life: Life): Promise<void> {
  const { service } = life;
  const server = await Upstream.start(answer, { isLookedAt: true });
  t.after(() => server.close());
  const boss = await born(life);
  await becomesOwner(boss, service);
  await addsServer(boss, server.url);
  const link = await bringsIn(boss);

  const buyer = await born(life);
  const visitor = await joinsAndPays(buyer, service, link);
  const key = await makesKey(buyer, 'Shop');
  const served = await until200(service, key);
  await isRefusedAndAsksWhy(buyer, service, key);

  await refunds(boss, service, served);
  const [movement] = (await visitor.get('/v1/ledger')).data;
  assert.deepEqual([movement.type, movement.amount_microcents], ['refund', price]);
  await looksAtRevenue(boss);
  await endsModel(boss);
  await until(async () => (await ask(service, key, model)).status === 404);
  await service.verify();
  for (const { person } of [boss, buyer]) await person.leave();
}

/** A vLLM, with one model. */
function answer(exchange: UpstreamExchange): void {
  const { path } = exchange;
  if (path === '/v1/models')
    return exchange.json(200, { object: 'list', data: [{ id: model, owned_by: 'vllm', max_model_len: 8_192 }] });
  if (path !== '/v1/chat/completions') return exchange.json(404, {});
  exchange.events();
  exchange.chunk(
    chatChunk({ content: 'Hello there' }) +
      chatChunk({}, 'stop') +
      usageChunk({ prompt_tokens: tokens.prompt, completion_tokens: tokens.completion }) +
      event('[DONE]'),
  );
  exchange.endChunks();
}

async function addsServer(hands: Hands, url: string): Promise<void> {
  const { words, person } = hands;
  const { page } = person;
  await opens(hands, area, '/operator/catalogue');
  await hands.use(button(hands, area, 'addAServer'));
  await hands.fill([[words.text(area, 'address'), url]], words.text(area, 'askServer'), true);
  await hands.use(inDialog(hands, area, 'tryModel'));
  await page.getByRole('status', { name: words.text(area, 'found') }).waitFor();
  await fits(hands);
  await hands.pick(words.text(area, 'forAccounts'), 'sold');
  const rates = [
    [words.text(area, 'input'), prices.input],
    [words.text(area, 'output'), prices.output],
  ] as const;
  await hands.fill(rates, words.text(area, 'showDifference'), false);
  await page.getByText(/^\+.*6\.025/).waitFor();
  await fits(hands);
  await hands.use(inDialog(hands, area, 'apply'));
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  // The server says "Hello there", whatever it is asked.
  await hands.use(page.getByRole('main').getByRole('link', { name: model }));
  const test = page.getByRole('button', { name: words.pattern(area, 'testOf'), exact: true });
  await hands.use(test);
  const broken = page
    .getByRole('dialog')
    .getByRole('listitem')
    .filter({ hasText: words.text(area, 'broken') });
  await broken.filter({ hasText: 'json_schema' }).waitFor();
  await fits(hands);
  await hands.closeDialog();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}

/** Returns the link for its owner. */
async function bringsIn(hands: Hands): Promise<string> {
  const { words, person } = hands;
  await opens(hands, accounts, '/operator/accounts');
  await hands.use(linkIn(hands, accounts, 'create'));
  const fields = [
    [words.text(accounts, 'name'), customer.company],
    [words.pattern(accounts, 'ownerEmail'), customer.email],
  ] as const;
  await hands.fill(fields, words.text(accounts, 'create'), true);
  const field = fieldOf(person, words.text(accounts, 'inviteLink'));
  await field.waitFor();
  await fits(hands);
  const link = await field.inputValue();
  await hands.use(inDialog(hands, accounts, 'done'));
  await person.page.getByRole('heading', { name: customer.company }).waitFor();
  return link;
}

async function joinsAndPays(hands: Hands, service: TestService, link: string): Promise<Visitor> {
  const { words, person } = hands;
  await person.page.goto(link);
  const fields = [
    [words.pattern('sign-in', 'name'), customer.name],
    [words.pattern('sign-in', 'password'), customer.password],
  ] as const;
  await hands.fill(fields, words.text('sign-in', 'accept'), false);
  await person.page.waitForURL(`${service.accountUrl}/`);
  const visitor = new Visitor(service);
  const { email, password } = customer;
  assert.equal((await visitor.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  await paysAndGetsReceipt(hands, service, visitor);
  return visitor;
}

const ask = (service: TestService, key: string, name: string): Promise<Response> =>
  service.chat({ model: name, messages: [{ role: 'user', content: 'hi' }] }, { key });

/** The id of a request that was answered. A key is known everywhere within a second. */
async function until200(service: TestService, key: string): Promise<string> {
  let id = '';
  await until(async () => {
    const response = await ask(service, key, model);
    id = response.headers.get('x-request-id')!;
    await response.text();
    return response.status === 200;
  });
  return id;
}

async function isRefusedAndAsksWhy(hands: Hands, service: TestService, key: string): Promise<void> {
  const { words, person } = hands;
  const { page } = person;
  const refused = await ask(service, key, 'gpt-of-yesterday');
  assert.equal(refused.status, 404);
  const { error } = (await refused.json()) as { error: { code: string } };
  await opens(hands, 'usage', '/requests');
  await page.locator('[data-row]').first().waitFor();
  await hands.pick(words.text('usage', 'state'), 'refused');
  await page.getByRole('main').getByText(error.code, { exact: true }).first().waitFor();
  await fits(hands);
  // It is looked for among the receipts first.
  person.expects(404);
  await hands.use(page.locator('[data-row]').first().getByRole('link').first());
  await page.getByRole('heading', { name: words.text('usage', 'why') }).waitFor();
  // Its text would say what the request has asked for: what is kept says what the code means.
  await page.getByRole('main').getByText(error.code, { exact: true }).waitFor();
  await page
    .getByRole('main')
    .getByRole('link', { name: 'Shop' })
    .or(page.getByText(/key_\w+/))
    .first()
    .waitFor();
  await fits(hands);
}

/** Of the id that the customer has sent, all of its charge. */
async function refunds(hands: Hands, service: TestService, id: string): Promise<void> {
  const { words, person } = hands;
  const { page } = person;
  await opens(hands, accounts, '/operator/accounts');
  await hands.use(page.getByRole('main').getByRole('link', { name: customer.company }));
  await page.getByRole('heading', { name: customer.company }).waitFor();
  await hands.choose(words.text(accounts, 'more'), words.text(accounts, 'refundRequest'));
  // It is looked for in their own account first.
  person.expects(404);
  await hands.fill([[words.text(accounts, 'requestId'), id]], words.text(accounts, 'openReceipt'), true);
  await page.waitForURL(`${service.accountUrl}/requests/${id}`);
  await page.getByRole('main').getByRole('link', { name: customer.company }).waitFor();
  await hands.use(button(hands, 'usage', 'refundRow'));
  await hands.fill([[words.text('usage', 'reason'), 'It was slow']], words.pattern('usage', 'refundAction'), false);
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await fits(hands);
}

/** What the customer was charged is there; the refund is not subtracted. */
async function looksAtRevenue(hands: Hands): Promise<void> {
  const { words, person } = hands;
  const revenue = 'operator-revenue';
  await opens(hands, revenue, '/operator/revenue');
  const row = person.page.getByRole('row').filter({ hasText: model });
  await row
    .getByTitle(/0[.,]0000421\b/)
    .first()
    .waitFor();
  await hands.pick(words.text(revenue, 'by'), 'account');
  await person.page.getByRole('main').getByRole('link', { name: customer.company }).first().waitFor();
  await fits(hands);
}

/** Yesterday was its last day. */
async function endsModel(hands: Hands): Promise<void> {
  const { words, person } = hands;
  const { page } = person;
  await opens(hands, area, '/operator/catalogue');
  await hands.use(page.getByRole('main').getByRole('link', { name: model }));
  await page.getByRole('heading', { name: model }).waitFor();
  await hands.choose(words.text(area, 'more'), words.text(area, 'retire'));
  const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  await hands.date(words.pattern(area, 'retireDay'), yesterday);
  await hands.use(inDialog(hands, area, 'showDifference'));
  await page.getByText(/^\+.*deprecation_date/).waitFor();
  await hands.use(inDialog(hands, area, 'apply'));
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await fits(hands);
}

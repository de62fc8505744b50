/** The first day of a server, on the real program: its owner, keys, a payment, a request, its receipt, and a key that ends. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';

import { noFeatures, scriptedModel, TestService, until, type TestServiceOptions } from '../support/service.ts';
import { owner, Visitor } from '../support/visitor.ts';

const config = scriptedModel('- { say: [{ text: "one two three four" }] }', { settings: noFeatures });
const ask = { model: 'demo', messages: [{ role: 'user', content: 'hello' }] };
const longMs = 60_000;

/** From the first link to the last request. */
export async function firstDay(
  t: TestContext,
  options: Pick<TestServiceOptions, 'workers' | 'database'> = {},
): Promise<void> {
  const service = new TestService({ config, ...options, firstCreditCents: '0' });
  t.after(() => service.dispose());
  await service.start();

  const person = new Visitor(service);
  await person.becomeOwner();
  const again = await new Visitor(service).ask('POST', '/v1/auth/sign-in', owner);
  assert.equal(again.status, 400, 'a name is no part of a sign-in');
  const browser = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await browser.ask('POST', '/v1/auth/sign-in', { email, password: 'not this one' })).status, 401);
  assert.equal((await browser.ask('GET', '/v1/keys')).status, 401);
  assert.equal((await browser.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  const me = await browser.get('/v1/me');
  assert.deepEqual([me.is_operator, me.accounts[0].id, me.accounts[0].role], [true, service.accountId, 'owner']);

  const managing = await browser.ask('POST', '/v1/keys', { name: 'program', type: 'management', role: 'admin' });
  assert.equal(managing.status, 201, JSON.stringify(managing.body));
  const program = new Visitor(service, managing.body.key as string);
  const made = await program.ask('POST', '/v1/keys', { name: 'robot' });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const { key, data } = made.body as { key: string; data: { id: string } };
  let status = 401;
  // Known to the process that made the key at once, to the others when they hear of it.
  await until(async () => {
    status = (await service.chat(ask, { key })).status;
    return status !== 401;
  }, longMs);
  assert.equal(status, 402, 'there is no credit yet');

  const topup = await browser.topUp(700, 'first');
  const credit = await program.get('/v1/credits');
  assert.deepEqual([credit.balance_cents, credit.balance_microcents], [700, 700_000_000]);

  // Known to the process that took the payment at once, to the others when they hear of it; one may not know the key either.
  let answer = await service.chat(ask, { key });
  const mayNotKnow: ReadonlySet<number> = new Set([401, 402]);
  await until(async () => {
    if (mayNotKnow.has(answer.status)) answer = await service.chat(ask, { key });
    return !mayNotKnow.has(answer.status);
  }, longMs);
  assert.equal(answer.status, 200);
  const requestId = answer.headers.get('x-request-id')!;
  const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
  await until(
    async () => (await program.ask('GET', `/v1/generation?id=${encodeURIComponent(requestId)}`)).status === 200,
    longMs,
  );
  const receipt = await program.get(`/v1/generation?id=${encodeURIComponent(requestId)}`);
  const cost = usage.prompt_tokens * 5 + usage.completion_tokens * 20;
  assert.ok(cost > 0);
  assert.equal(receipt.total_cost_microcents, cost, JSON.stringify(receipt));
  assert.equal((await program.get('/v1/credits')).balance_microcents, 700_000_000 - cost);

  const totals = await program.get('/v1/usage');
  assert.match(JSON.stringify(totals), new RegExp(`"cost_microcents":${cost}\\b`));
  const ledger = await program.get('/v1/ledger?limit=10');
  const kinds = (ledger.data as { type: string; amount_microcents: number; reference: string | null }[]).map(
    ({ type, amount_microcents: amount }) => [type, amount],
  );
  assert.deepEqual(kinds, [
    ['usage', -cost],
    ['topup', 700_000_000],
  ]);
  const listed = await program.get('/v1/credits/topups');
  assert.deepEqual(
    (listed.data as { id: string; status: string }[]).map(({ id, status }) => [id, status]),
    [[topup, 'paid']],
  );
  assert.deepEqual((await browser.get('/v1/invoices')).data, [], 'no month is over');

  assert.equal((await browser.ask('DELETE', `/v1/keys/${data.id}`)).status, 200);
  // When a deletion is answered, every process that answers has heard of it: none lets the key in.
  for (let count = 0; count < 4 * (options.workers ?? 1); count++) {
    const refused = await service.chat(ask, { key, headers: { connection: 'close' } });
    assert.equal(refused.status, 401);
    await refused.arrayBuffer();
  }
  assert.equal((await service.chat(ask)).status, 200, 'other keys go on');
  assert.equal(await service.stop(), 0);
  await service.verify();
}

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import createClient from 'openapi-fetch';

import { TestService, until } from '../support/service.ts';
import type { paths } from './account-api.ts';

/**
 * A client whose types are generated from the account host's own document (docs/accounts.md), through a whole life: what the
 * document says wrongly does not compile or does not work.
 */
const service = new TestService({
  config: `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 500, output_cents_per_million: 2000 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "The capital of France is Paris." } ] } ] } ]`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

/** Keeps the cookies that it is given, as a browser does. */
function withCookies(cookies: Map<string, string>): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    if (cookies.size > 0)
      request.headers.set('cookie', [...cookies].map(([name, value]) => `${name}=${value}`).join('; '));
    const response = await fetch(request);
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === '' || /max-age=0/i.test(line)) cookies.delete(name);
      else cookies.set(name, value);
    }
    return response;
  };
}

/** The answer, or the test fails with the error. */
function got<Data>({ data, error }: { readonly data?: Data; readonly error?: unknown }): NonNullable<Data> {
  assert.ok(data !== undefined && data !== null, JSON.stringify(error));
  return data;
}

const clientWith = (options: { readonly fetch?: typeof fetch; readonly key?: string }) =>
  createClient<paths>({
    baseUrl: service.accountUrl,
    ...(options.fetch === undefined ? {} : { fetch: options.fetch }),
    ...(options.key === undefined ? {} : { headers: { authorization: `Bearer ${options.key}` } }),
  });

test('a whole life: owner, keys, top-up, inference, usage, receipt, refund, invoice, export, deletion', async () => {
  // The owner, by the link that the start has printed.
  const printed = () => /\/welcome#([\w-]+)\s/.exec(service.output)?.[1];
  await until(() => printed() !== undefined, 60_000);
  const token = printed() ?? '';
  const cookies = new Map<string, string>();
  const person = clientWith({ fetch: withCookies(cookies) });
  const password = 'a long enough password';
  const owner = { email: 'ada@example.org', name: 'Ada', password };
  assert.equal(got(await person.POST('/v1/owner', { body: { token, ...owner } })).user?.email, owner.email);
  const again = await person.POST('/v1/owner', { body: { token, ...owner } });
  assert.equal(again.error?.error.code, 'http_404', 'the link works once');
  const me = got(await person.GET('/v1/me'));
  const [account] = me.accounts;
  assert.ok(account);
  assert.deepEqual([account.id, account.role], [service.accountId, 'owner']);

  // Keys: one that manages, made by the person; one for inference, made by it.
  const management = got(
    await person.POST('/v1/keys', { body: { name: 'program', type: 'management', role: 'admin' } }),
  );
  const program = clientWith({ key: management.key });
  assert.equal(got(await program.GET('/v1/key')).is_management_key, true);
  const inference = got(
    await program.POST('/v1/keys', { body: { name: 'app', limit_cents: 100, limit_reset: 'monthly' } }),
  );
  const refused = await clientWith({ key: inference.key }).GET('/v1/account');
  assert.equal(refused.error?.error.code, 'http_403');
  assert.equal(
    (await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'x' }] }, { key: management.key })).status,
    403,
  );

  // A top-up at the built-in provider, twice with the same key: once.
  const before = got(await program.GET('/v1/credits')).balance_microcents;
  const topups = await Promise.all(
    [1, 2].map(() =>
      person.POST('/v1/credits/topups', {
        body: { amount_cents: 700 },
        params: { header: { 'Idempotency-Key': 'life-1' } },
      }),
    ),
  );
  const [topup, twin] = topups.map(got);
  assert.ok(topup && twin);
  assert.equal(topup.id, twin.id);
  const checkout = String(topup.checkout_url);
  assert.match(await (await fetch(checkout)).text(), /No money moves here/);
  const paid = await fetch(checkout, {
    method: 'POST',
    body: new URLSearchParams({ outcome: 'duplicate' }),
    redirect: 'manual',
  });
  assert.ok(paid.status < 400, await paid.text());
  const path = { params: { path: { id: topup.id } } };
  while (got(await program.GET('/v1/credits/topups/{id}', path)).status === 'pending')
    await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(got(await program.GET('/v1/credits/topups/{id}', path)).status, 'paid');
  assert.equal(got(await program.GET('/v1/credits')).balance_microcents, before + 700_000_000);

  // A request, and everything that is reported of it.
  const answer = await service.chat(
    { model: 'demo', messages: [{ role: 'user', content: 'What is the capital of France?' }] },
    { key: inference.key },
  );
  assert.equal(answer.status, 200);
  const requestId = answer.headers.get('x-request-id') ?? '';
  const receipt = got(await program.GET('/v1/generation', { params: { query: { id: requestId } } }));
  assert.ok(receipt.object === 'generation' && receipt.total_cost_microcents > 0);
  assert.equal(receipt.key_id, inference.data.id);
  const cost = receipt.total_cost_microcents;
  assert.equal(got(await program.GET('/v1/credits')).balance_microcents, before + 700_000_000 - cost);
  const usage = got(
    await program.GET('/v1/usage', {
      params: { query: { start_time: receipt.created_at - 3600, bucket_width: '1h', group_by: ['api_key_id'] } },
    }),
  );
  const results = usage.data.flatMap(({ results }) => results).filter((one) => one.api_key_id === inference.data.id);
  assert.deepEqual(
    results.map(({ num_model_requests: requests }) => requests),
    [1],
  );
  const csv = await program.GET('/v1/export/generations.csv', { parseAs: 'text' });
  assert.ok(String(csv.data).includes(requestId));

  // What went wrong is refunded; once.
  const refund = { account_id: service.accountId, type: 'refund_request', request_id: requestId } as const;
  for (const isAgain of [false, true]) {
    const moved = got(
      await person.POST('/v1/admin/credits', {
        body: refund,
        params: { header: { 'Idempotency-Key': 'life-refund' } },
      }),
    );
    assert.deepEqual([moved.moved_microcents, moved.again], [cost, isAgain]);
  }
  const ledger = got(await program.GET('/v1/ledger', { params: { query: { limit: 100 } } }));
  assert.equal(
    ledger.data.reduce((sum, entry) => sum + entry.amount_microcents, 0),
    got(await program.GET('/v1/credits')).balance_microcents,
  );
  assert.deepEqual(got(await program.GET('/v1/invoices')).data, [], 'no month is over');

  // Who did what.
  const audit = got(await program.GET('/v1/audit_logs', { params: { query: { limit: 100 } } }));
  const actions = new Set(audit.data.map(({ action }) => action));
  for (const action of ['key.create', 'credit.refund_request']) assert.ok(actions.has(action), [...actions].join());

  // A revoked key, and the end.
  got(await program.DELETE('/v1/keys/{id}', { params: { path: { id: inference.data.id } } }));
  const late = await service.chat(
    { model: 'demo', messages: [{ role: 'user', content: 'x' }] },
    { key: inference.key },
  );
  assert.equal(late.status, 401);
  const everything = await person.GET('/v1/account/export', { parseAs: 'text' });
  assert.ok(String(everything.data).includes(requestId));
  const kept = await person.DELETE('/v1/account');
  assert.equal(kept.error?.error.code, 'http_409', 'credit is not thrown away by the way');
  const deleted = got(await person.DELETE('/v1/account', { params: { query: { forfeit_credit: true } } }));
  assert.equal(deleted.forfeited_microcents, before + 700_000_000);
  assert.equal((await program.GET('/v1/account')).response.status, 401);
});

/** Budgets of members, from the API that sets them to the requests that they refuse (docs/money.md, "Budgets"). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openConnection } from '../../src/store/sqlite/connection.ts';
import { ask, endingsService, outputPrice, verifyAndDispose } from '../endings/endings-service.ts';
import { until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { Visitor } from '../support/visitor.ts';
import type { Shown } from '../support/visitor.ts';

const service = endingsService();
const owner = new Visitor(service);
const guest = new Visitor(service);
before(async () => {
  await service.start();
  await owner.becomeOwner();
  await owner.ask('POST', '/v1/invites', { email: 'ada@example.org', role: 'developer' });
  const [mail] = (await owner.get('/v1/admin/outbox')).data;
  const { text } = await owner.get(`/v1/admin/outbox/${mail.id}`);
  const token = /#([\w-]+)/.exec(String(text))?.[1];
  const joined = await guest.ask('POST', '/v1/invites/accept', {
    token,
    name: 'Ada',
    password: 'a long horse battery',
  });
  assert.equal(joined.status, 200, JSON.stringify(joined.body));
});
after(() => verifyAndDispose(service));

/** In the name of whoever makes it. */
async function newKey(by: Visitor): Promise<string> {
  const { status, body } = await by.ask('POST', '/v1/keys', { name: 'x' });
  assert.equal(status, 201, JSON.stringify(body));
  assert.equal(body.data.user_scoped, true);
  return body.key;
}

async function statusOf(key: string): Promise<number> {
  const answer = await service.chat(ask('three words', { max_tokens: 1_000 }), { key });
  await answer.arrayBuffer();
  return answer.status;
}

/** One that runs for ten seconds unless it is left. */
async function running(key: string): Promise<AbortController> {
  const leaves = new AbortController();
  const body = ask('paced', { max_tokens: 1_000, stream: true });
  const answer = await service.chat(body, { key, signal: leaves.signal });
  assert.equal(answer.status, 200);
  // So that it is read until it is left.
  void answer.text().catch(() => {});
  return leaves;
}

test('a budget of a member is for all of their keys together: what one holds, the other cannot have', async () => {
  const id: string = (await guest.get('/v1/me')).id;
  const keys = [await newKey(guest), await newKey(guest)] as const;
  const other = await newKey(owner);
  const set = async (json: object): Promise<Shown> => {
    const { status, body } = await owner.ask('PATCH', `/v1/members/${id}`, json);
    assert.equal(status, 200, JSON.stringify(body));
    return body;
  };
  assert.equal(await statusOf(keys[0]), 200, 'before there is one; it counts as spent');
  // Twice the answer of a thousand tokens, and not three times.
  const limitCents = Math.ceil(Number(outputPrice * 2_300n) / 1_000_000);
  const member = await set({ limit_cents: limitCents, limit_reset: 'monthly' });
  assert.deepEqual([member.role, member.limit_cents, member.limit_reset], ['developer', limitCents, 'monthly']);
  const spent = member.limit_microcents - member.limit_remaining_microcents;
  assert.ok(spent > 0 && spent < outputPrice * 100n, String(spent));
  assert.ok(member.limit_resets_at > Date.now() / 1000);

  const both = [await running(keys[0]), await running(keys[1])];
  const refused = await service.chat(ask('three words', { max_tokens: 1_000 }), { key: keys[0] });
  const { error } = (await refused.json()) as Shown;
  assert.deepEqual(
    [refused.status, error.code, error.budget_of, error.budget_period, error.budget_limit_cents],
    [402, 'insufficient_credits', 'member', 'month', limitCents],
  );
  const renewsAt = new Date(member.limit_resets_at * 1000).toISOString();
  assert.equal(error.budget_renews_at, renewsAt);
  assert.equal(
    error.message,
    `The budget of the member of the account who has this key, $0.${limitCents} a month, does not cover this request. ` +
      `It renews at ${renewsAt}. Ask an owner or admin of the account to raise it, or lower max_tokens.`,
  );
  assert.equal(await statusOf(other), 200, 'of another member');
  for (const leaves of both) leaves.abort();
  await until(async () => (await statusOf(keys[1])) === 200);

  await set({ limit_cents: 0 });
  for (const key of keys) assert.equal(await statusOf(key), 402);
  const own = await guest.get(`/v1/members/${id}`);
  assert.deepEqual([own.limit_cents, own.limit_remaining_microcents, own.limit_reset], [0, 0, 'monthly']);
  assert.equal((await set({ limit_cents: null })).limit_cents, null);
  for (const key of keys) assert.equal(await statusOf(key), 200);
  await service.verify();
});

test('when the account is deleted, no budget of it, of its keys and of its members is left, and the ledger is right', async () => {
  const id: string = (await guest.get('/v1/me')).id;
  const made = await guest.ask('POST', '/v1/keys', { name: 'x', limit_cents: 5 });
  assert.equal(made.status, 201);
  assert.equal((await owner.ask('PATCH', `/v1/members/${id}`, { limit_cents: 500 })).status, 200);
  assert.equal((await service.command('accounts', 'budget', service.accountId, '10.00')).code, 0);
  const connection = openConnection(new TestLedger(service).file);
  try {
    const budgets = (): number => connection.prepare('select subject from budget').all().length;
    assert.equal(budgets(), 3);
    const deleted = await owner.ask('DELETE', `/v1/admin/accounts/${service.accountId}?forfeit_credit=true`);
    assert.equal(deleted.status, 200, JSON.stringify(deleted.body));
    assert.equal(budgets(), 0);
  } finally {
    connection.close();
  }
  await service.verify();
});

/** People who delete themselves: nothing of theirs is left but ids. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../../src/account-api/routes.ts';
import { provedForMs } from '../../../src/account-api/senders.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { openHost } from '../../account-api/host.ts';
import { memberSubject } from '../../../src/store/budget.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { Browser, password, person, tokenOf } from './person.ts';

test('a user who deletes their account is gone from every table, but for ids', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  const { repositories } = host.services.operations;
  const join = async (name: string, role: 'owner' | 'developer') => {
    const id = await person(host, `${name}@example.org`, `The ${name}`);
    await repositories.addMember({ accountId: 'acct_a', userId: id, role, at: clock.now });
    const browser = new Browser(host);
    await browser.signIn(`${name}@example.org`, password);
    return { id, browser };
  };
  await host.account('acct_a');
  const owner = await join('boss', 'owner');
  const { id, browser } = await join('ada_lovelace', 'developer');
  const made = await browser.ask('POST', '/v1/keys', { name: 'of mine' });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const alert = await owner.browser.ask('POST', '/v1/spend_alerts', {
    kind: 'balance',
    name: 'low',
    threshold_amount: 100,
    recipients: { members: [id, owner.id], addresses: ['ADA_lovelace@example.org', 'other@example.org'] },
  });
  assert.ok(alert.status < 300, JSON.stringify(alert.body));
  const budget = await owner.browser.ask('PATCH', `/v1/members/${id}`, { limit_cents: 500 });
  assert.equal(budget.status, 200, JSON.stringify(budget.body));
  const invited = await owner.browser.ask('POST', '/v1/invites', { email: 'ada_lovelace@example.org', role: 'viewer' });
  assert.equal(invited.status, 200, JSON.stringify(invited.body));
  await repositories.addMail({
    id: 'mail_1',
    idempotencyKey: null,
    recipient: 'ada_lovelace@example.org',
    subject: 'Hello',
    body: 'x',
    kind: 'test',
    accountId: null,
    attachments: null,
    at: clock.now,
  });

  clock.now += provedForMs + 1;
  const late = await browser.ask('DELETE', '/v1/me');
  assert.equal(late.status, 403);
  assert.equal(late.body['error'].step_up_required, true);
  await operate({ kind: 'release_person', email: 'ada_lovelace@example.org' }, host.services.operations);
  await browser.signIn('ada_lovelace@example.org', password);
  await owner.browser.signIn('boss@example.org', password);
  const refused = await owner.browser.ask('DELETE', '/v1/me');
  assert.deepEqual([refused.status, refused.body['error'].code], [409, 'http_409']);
  assert.match(refused.body['error'].message, /last owner of acct_a/);
  assert.equal((await owner.browser.ask('GET', '/v1/me')).status, 200, 'nothing has happened');

  // What names the address that they had before goes too.
  await browser.ask('PATCH', '/v1/me', { name: 'Countess of Lovelace' });
  await browser.ask('POST', '/v1/auth/email', { email: 'lady_lovelace@example.org' });
  const link = { token: tokenOf(host, 'verification') };
  assert.equal((await browser.ask('POST', '/v1/auth/verify-email', link)).status, 200);

  const gone = await browser.ask('DELETE', '/v1/me');
  assert.deepEqual([gone.status, gone.body], [200, { id, object: 'user.deleted', deleted: true }]);
  assert.equal(browser.cookies.size, 0);
  assert.equal((await browser.ask('GET', '/v1/me')).status, 401);
  assert.equal(
    (await browser.ask('POST', '/v1/auth/sign-in', { email: 'ada_lovelace@example.org', password })).status,
    401,
  );
  const key = await repositories.getKey({ keyId: made.body['data'].id });
  assert.equal(key!.status, 'revoked');
  const logged = await repositories.listAudit({ limit: 100 });
  const own = logged.filter(({ actor }) => actor.id === id);
  assert.ok(own.some(({ action }) => action === 'person.delete'));
  assert.ok(own.some(({ action, accountId }) => action === 'member.remove' && accountId === 'acct_a'));

  assert.equal(await repositories.getBudget({ subject: memberSubject('acct_a', id) }), null);

  // Whatever is in the file: no name and no address of theirs.
  const connection = openConnection(host.file);
  t.after(() => connection.close());
  const tables = connection.prepare("select name from sqlite_schema where type = 'table'").all() as { name: string }[];
  for (const { name } of tables) {
    const rows = connection.prepare(`select * from "${name}"`).all();
    const text = JSON.stringify(rows, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
    assert.doesNotMatch(text, /lovelace/i, name);
  }
  const other = await person(host, 'ada_lovelace@example.org', 'Another');
  assert.notEqual(other, id, 'the address is free');
});

test('an owner who is not the last may go, and the last who runs the server may not', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, { signIn: { signUp: 'open', oidc: [] } });
  await host.account('acct_a');
  const { repositories } = host.services.operations;
  const browsers: Browser[] = [];
  for (const name of ['one', 'two']) {
    const id = await person(host, `${name}@example.org`, name);
    await repositories.addMember({ accountId: 'acct_a', userId: id, role: 'owner', at: Date.now() });
    const browser = new Browser(host);
    await browser.signIn(`${name}@example.org`, password);
    browsers.push(browser);
  }
  const [one, two] = browsers as [Browser, Browser];
  const me = (await one.ask('GET', '/v1/me')).body['id'] as string;
  const connection = openConnection(host.file);
  t.after(() => connection.close());
  connection.prepare('insert into server_operator (user_id, created_at) values (?, 1)').run(me);
  const refused = await one.ask('DELETE', '/v1/me');
  assert.equal(refused.status, 409);
  assert.match(refused.body['error'].message, /last operator of this server/);
  // Both want to go: one of them stays, for the account.
  connection.prepare('delete from server_operator').run();
  const statuses = (await Promise.all([one, two].map((each) => each.ask('DELETE', '/v1/me')))).map(
    ({ status }) => status,
  );
  assert.deepEqual(statuses.toSorted(), [200, 409]);
  assert.equal((await repositories.listMembers({ accountId: 'acct_a', limit: 10 })).length, 1);
});

/** The key of a session: without a second proof, in no list, with a small budget that asking again does not renew, and gone with it. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openSecret } from '../../src/accounts/secret.ts';
import { sessionKey } from '../../src/accounts/session-keys.ts';
import { customer, openStore, temporaryFolder, uuid } from '../store/fixture.ts';
import { noFeatures, scriptedModel, TestService } from '../support/service.ts';
import { owner, Visitor } from '../support/visitor.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const service = new TestService({ config: scriptedModel('- { say: [{ text: "hi" }] }', { settings: noFeatures }) });
before(async () => {
  await service.start();
  await new Visitor(service).becomeOwner();
});
after(() => service.dispose());

const statusOf = async (key: string): Promise<number> => {
  const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key });
  await answer.arrayBuffer();
  return answer.status;
};

async function signedIn(): Promise<Visitor> {
  const person = new Visitor(service);
  const { email, password } = owner;
  assert.equal((await person.ask('POST', '/v1/auth/sign-in', { email, password })).status, 200);
  return person;
}

test('it calls models, no list shows it, and it ends with the session', async () => {
  const person = await signedIn();
  const made = await person.ask('POST', '/v1/keys/session');
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const { key, id } = made.body as { key: string; id: string };
  assert.equal(await statusOf(key), 200);
  const idsOf = async (query: string): Promise<string[]> =>
    ((await person.get(`/v1/keys?${query}`)).data as { id: string }[]).map((one) => one.id);
  assert.ok(!(await idsOf('include_disabled=true')).includes(id));
  assert.deepEqual(await idsOf(`ids=${id}`), [id], 'its requests still have a name');
  const shown = await person.get(`/v1/keys/${id}`);
  assert.deepEqual([shown.limit_cents, shown.user_scoped], [100, true]);
  assert.equal((await person.ask('PATCH', `/v1/keys/${id}`, { limit_cents: null })).status, 404, 'its budget stays');
  const listed = await service.command('keys', 'list');
  assert.ok(!listed.stdout.includes(id), listed.stdout);

  const again = await person.ask('POST', '/v1/keys/session');
  assert.equal(again.body.id, id, 'one for each session, whose budget stays');
  assert.notEqual(again.body.key, key);
  assert.equal(await statusOf(again.body.key), 200);
  assert.equal(await statusOf(key), 200, 'another tab goes on with the one that it has');

  const other = await signedIn();
  const ofOther = (await other.ask('POST', '/v1/keys/session')).body as { key: string; id: string };
  assert.notEqual(ofOther.id, id);
  assert.equal((await person.ask('POST', '/v1/auth/sign-out')).status, 200);
  assert.deepEqual([await statusOf(again.body.key), await statusOf(key)], [401, 401]);
  assert.equal(await statusOf(ofOther.key), 200, 'that of another session goes on');

  const third = await signedIn();
  const ended = await third.ask('DELETE', '/v1/auth/sessions');
  assert.equal(ended.status, 200, JSON.stringify(ended.body));
  assert.equal(await statusOf(ofOther.key), 401);
  const program = await third.ask('POST', '/v1/keys', { name: 'p', type: 'management', role: 'admin' });
  const refused = await new Visitor(service, program.body.key as string).ask('POST', '/v1/keys/session');
  assert.equal(refused.status, 403, 'a program has no session');
});

test('requests at the same moment get one key, and one budget', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'keys.db'));
  await customer(store, 'acct_a', 0n);
  const { ledger, repositories } = store;
  const services = { ledger, repositories, secret, newId: uuid, now: Date.now };
  const of = { accountId: 'acct_a', userId: 'a'.repeat(32), sessionId: 's'.repeat(32) };
  const made = await Promise.all(Array.from({ length: 4 }, () => sessionKey(of, services)));
  assert.equal(new Set(made.map(({ keyId }) => keyId)).size, 1);
});

test('nobody who signs out revokes the key of somebody else', async () => {
  const [person, guest] = [await signedIn(), new Visitor(service)];
  await person.ask('POST', '/v1/invites', { email: 'ada@example.org', role: 'developer' });
  const [mail] = (await person.get('/v1/admin/outbox')).data;
  const token = /#([\w-]+)/.exec(String((await person.get(`/v1/admin/outbox/${mail.id}`)).text))?.[1];
  const ada = { email: 'ada@example.org', password: 'a long horse battery' };
  const joined = await guest.ask('POST', '/v1/invites/accept', { token, name: 'Ada', password: ada.password });
  assert.equal(joined.status, 200, JSON.stringify(joined.body));
  const { id } = (await guest.ask('POST', '/v1/keys/session')).body as { id: string };
  // Ends the session that the key is of, and leaves the key to the next tidying.
  assert.equal((await guest.ask('POST', '/v1/auth/sign-in', ada)).status, 200);
  assert.equal((await person.ask('POST', '/v1/auth/sign-out')).status, 200);
  const { data } = await (await signedIn()).get('/v1/admin/audit');
  const revoked = (data as { action: string; target: string }[]).filter(({ action }) => action === 'key.revoke');
  assert.ok(!revoked.some(({ target }) => target === id), 'the log would name a stranger, and his address');
});

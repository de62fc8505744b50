/** The key of a session: without a second proof, in no list, with a small budget that asking again does not renew, and gone with it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { noFeatures, scriptedModel, TestService } from '../support/service.ts';
import { owner, Visitor } from '../support/visitor.ts';

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

/** Everything of an account is handed out, and everything but what accounting needs goes (docs/operator.md, "Deletion"). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { report } from '../support/workers.ts';

const service = new InnerService({
  config: scriptedModel(
    `- { when: { last_text: endless }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 100 }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  ),
});
let operator = '';
before(async () => {
  await service.start();
  operator = await newKey({ accountId: service.accountId, role: 'owner', isOperator: true });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

async function newKey(input: {
  readonly accountId: string;
  readonly role?: 'owner';
  readonly isOperator?: boolean;
  readonly name?: string;
  readonly userId?: string;
}): Promise<string> {
  const answer = await report(service, { kind: 'create_key', name: 'x', expiresAt: undefined, ...input });
  return answer.key;
}

async function api(method: string, path: string, key = operator, json?: object): Promise<Response> {
  return await fetch(service.accountUrl + path, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(json === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
}

test('an account is handed out whole, and deleted so that nothing of its people is left', async () => {
  const made = await report(service, { kind: 'create_account', name: 'Robots of Ada' });
  const { accountId } = made;
  await report(service, {
    kind: 'move_credit',
    movement: 'grant',
    accountId,
    microcents: '100000000',
    reference: undefined,
    idempotencyKey: 'first',
  });
  const key = await newKey({ accountId, name: 'key of Ada', userId: 'ada' });
  const owner = await newKey({ accountId, role: 'owner', name: 'owner of Ada' });
  const billing = { legal_name: 'Ada GmbH', invoice_email: 'ada@example.com' };
  assert.equal((await api('PATCH', '/v1/account', owner, { billing })).status, 200);
  const form = new FormData();
  form.set('purpose', 'user_data');
  form.set('file', new Blob(['secret of Ada']), 'letter of Ada.txt');
  const upload = await fetch(`${service.url}/v1/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
    body: form,
  });
  assert.equal(upload.status, 200);
  const kept = await fetch(`${service.url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', input: 'hi' }),
  });
  assert.equal(kept.status, 200);
  await kept.arrayBuffer();

  const exported = await api('GET', '/v1/account/export', owner);
  assert.equal(exported.status, 200);
  const text = await exported.text();
  const whole = JSON.parse(text) as Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>>;
  assert.deepEqual(
    ['account', 'keys', 'ledger', 'usage', 'files', 'items'].map((section) => [section, whole[section]!.length]),
    [
      ['account', 1],
      ['keys', 2],
      ['ledger', 1],
      ['usage', 1],
      ['files', 1],
      ['items', 1],
    ],
  );
  assert.equal(whole['account']![0]!['legal_name'], 'Ada GmbH');
  assert.equal(whole['files']![0]!['name'], 'letter of Ada.txt');
  assert.equal(whole['ledger']![0]!['amount'], 100_000_000);
  assert.ok(whole['audit']!.length >= 5);
  for (const row of whole['keys']!)
    for (const column of ['hash', 'previous_hash', 'pepper_id']) assert.ok(!Object.hasOwn(row, column));
  for (const secret of [key, owner]) assert.ok(!text.includes(secret.slice(4, 20)));
  const { stdout } = await service.command('accounts', 'export', accountId);
  assert.deepEqual(Object.keys(JSON.parse(stdout) as object), Object.keys(whole));

  assert.equal((await api('DELETE', '/v1/account', owner)).status, 403, 'not by a program');
  const refused = await api('DELETE', `/v1/admin/accounts/${accountId}`);
  assert.equal(refused.status, 409, 'it has credit');
  const streamed = await service.chat(
    { model: 'demo', stream: true, messages: [{ role: 'user', content: 'endless' }] },
    { key },
  );
  assert.equal(streamed.status, 200);
  const deleted = await api('DELETE', `/v1/admin/accounts/${accountId}?forfeit_credit=true`);
  const body = (await deleted.json()) as { readonly forfeited_microcents: number };
  assert.equal(deleted.status, 200, JSON.stringify(body));
  assert.ok(body.forfeited_microcents > 0 && body.forfeited_microcents < 100_000_000);
  assert.match(await streamed.text(), /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/s);
  assert.equal((await service.chat({ model: 'demo', messages: [] }, { key })).status, 401);
  assert.equal((await api('GET', '/v1/account', owner)).status, 401);

  const left = await (await api('GET', `/v1/admin/accounts/${accountId}/export`)).text();
  for (const name of ['Ada', 'ada@example.com', 'letter']) assert.ok(!left.includes(name), name);
  const rest = JSON.parse(left) as typeof whole;
  assert.deepEqual([rest['usage']!.length, rest['ledger']!.length, rest['items']!.length], [2, 2, 0]);
  assert.equal(rest['account']![0]!['available'], 0);
  assert.equal(rest['audit']!.length, whole['audit']!.length + 4, 'changes stay, without names');
  const shown = (await (await api('GET', `/v1/admin/accounts/${accountId}`)).json()) as { readonly status: string };
  assert.equal(shown.status, 'deleted');
  for (const [method, path, json] of [
    ['DELETE', `/v1/admin/accounts/${accountId}`, undefined],
    ['DELETE', `/v1/admin/suspensions/${accountId}?reason=x`, undefined],
    ['PATCH', `/v1/admin/accounts/${accountId}`, { name: 'again' }],
  ] as const)
    assert.equal((await api(method, path, operator, json)).status, 404);
  assert.match((await service.command('keys', 'create', '--account', accountId)).stderr, /There is no account/);
  await until(async () => {
    const now = JSON.parse(await (await api('GET', `/v1/admin/accounts/${accountId}/export`)).text()) as typeof whole;
    return now['files']!.every(({ state }) => state === 'leaving');
  });
});

test('an account without anything is deleted by the command', async () => {
  const made = await report(service, { kind: 'create_account', name: 'empty' });
  const { code, stderr } = await service.command('accounts', 'delete', made.accountId);
  assert.equal(code, 0, stderr);
  const again = await service.command('accounts', 'delete', made.accountId);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /There is no account/);
});

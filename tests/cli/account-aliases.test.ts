/** Names of models that one account has: resolved for it, listed for it, and for nobody else. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { GenerationReceipt } from '../../src/account-api/generation-object.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import { jsonOf, runCommand } from './command.ts';

const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const run = (...args: string[]) => runCommand(service.folder, args);
const alias = async (...args: string[]) => {
  const result = await run('accounts', 'alias', '--account', service.accountId, ...args);
  assert.equal(result.code, 0, result.stderr);
  return result.stdout;
};

interface Answer {
  readonly status: number;
  readonly model: unknown;
  readonly id: string;
}

async function ask(model: string, key = service.key): Promise<Answer> {
  const answer = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] }, { key });
  const body = (await answer.json()) as Readonly<Record<string, unknown>>;
  return { status: answer.status, model: body['model'], id: answer.headers.get('x-request-id')! };
}

async function listed(key: string | undefined): Promise<readonly (readonly [string, unknown])[]> {
  const answer = await fetch(`${service.url}/v1/models`, {
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
  });
  const { data } = (await answer.json()) as {
    readonly data: readonly { readonly id: string; readonly service: Readonly<Record<string, unknown>> }[];
  };
  return data.map(({ id, service: { alias_of: of = null } }) => [id, of]);
}

async function newAccount(): Promise<string> {
  const made = jsonOf(await run('accounts', 'create', '--name', 'other', '--credit', '5', '--key', '--json')) as object;
  const key = JSON.stringify(made).match(/tkh_[A-Za-z0-9]+/)?.[0];
  assert.ok(key !== undefined, JSON.stringify(made));
  return key;
}

test('a name of one account: in any case, answered and listed as it says, and unknown to everybody else', async () => {
  const other = await newAccount();
  const before = await listed(other);
  assert.match(await alias('Our/Model', 'demo', '--listed', '--answers', 'alias'), /Our\/Model \(demo\)/);
  assert.match(await alias('hidden', 'DEMO'), /hidden \(DEMO\)/);
  const own = await ask('our/MODEL');
  assert.deepEqual([own.status, own.model], [200, 'Our/Model']);
  assert.deepEqual([(await ask('hidden')).status, (await ask('hidden')).model], [200, 'demo']);
  assert.deepEqual(await listed(service.key), [
    ['demo', null],
    ['Our/Model', 'demo'],
  ]);
  for (const key of [other, undefined]) assert.deepEqual(await listed(key), before);
  for (const name of ['Our/Model', 'hidden']) assert.equal((await ask(name, other)).status, 404);
  const receipt = jsonOf(await run('explain', own.id, '--account', service.accountId, '--json')) as GenerationReceipt;
  assert.deepEqual([receipt.model, receipt.asked_as], ['demo', 'Our/Model']);
  const plain = jsonOf(
    await run('explain', (await ask('demo')).id, '--account', service.accountId, '--json'),
  ) as GenerationReceipt;
  assert.deepEqual([plain.model, plain.asked_as], ['demo', null]);
  await alias('OUR/model', '--none');
  assert.equal((await ask('Our/Model')).status, 404);
  assert.equal((await ask('hidden')).status, 200);
});

test('limits, budgets and restrictions of keys are those of the model that a name stands for', async () => {
  await alias('short', 'demo');
  const { id, key } = jsonOf(await run('keys', 'create', '--account', service.accountId, '--json')) as {
    readonly id: string;
    readonly key: string;
  };
  assert.equal((await ask('short', key)).status, 200);
  await run('keys', 'budget', id, '0', '--model', 'demo');
  assert.equal((await ask('short', key)).status, 402);
  await run('keys', 'budget', id, '--none', '--model', 'demo');
  assert.equal((await ask('short', key)).status, 200);
});

test('a name that the configuration has is refused, and so is a model that it has not', async () => {
  for (const [said, ...args] of [
    [/"DEMO" is a model in the configuration, which goes first: choose another name\./, 'DEMO', 'demo'],
    [/The configuration has no model demi\./, 'mine', 'demi'],
    [/is not a name of a model/, 'my name', 'demo'],
    [/Give the id of the model, or --none\./, 'mine'],
    [/Give the id of the model, or --none\./, 'mine', 'demo', '--none'],
  ] as const) {
    const result = await run('accounts', 'alias', '--account', service.accountId, ...args);
    assert.equal(result.code, 1, result.stdout);
    assert.match(result.stderr, said);
  }
});

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, scriptedModel } from '../support/service.ts';

/** Accounts from the command line: made, funded, suspended and revived. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "one" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const run = async (...args: readonly string[]): Promise<string> => {
  const { code, stdout, stderr } = await service.command(...args);
  assert.equal(code, 0, stderr);
  return stdout.trim();
};
const ask = async (key: string): Promise<number> => {
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }),
  });
  await answer.text();
  return answer.status;
};

test('an account is made, gets a key and credit, is suspended, and is revived', async () => {
  const account = await run('accounts', 'create', '--name', 'second');
  assert.match(account, /^acct_[0-9A-Za-z]{12}$/);
  const key = await run('keys', 'create', '--account', account);
  assert.equal(await ask(key), 402, 'it begins without credit');
  await run('credits', 'grant', '--account', account, '--cents', '10');
  assert.equal(await ask(key), 200);

  const statusOf = async (): Promise<string | undefined> =>
    (JSON.parse(await run('accounts', 'list', '--json')) as { id: string; status: string }[]).find(
      ({ id }) => id === account,
    )?.status;
  assert.match(await run('accounts', 'suspend', account), /is suspended/);
  assert.deepEqual([await ask(key), await ask(service.key), await statusOf()], [401, 200, 'suspended']);
  assert.deepEqual(JSON.parse(await run('accounts', 'revive', account, '--json')), { id: account, status: 'active' });
  assert.deepEqual([await ask(key), await statusOf()], [200, 'active']);
});

test('what cannot be is refused in words', async () => {
  for (const [args, said] of [
    [['accounts', 'create', '--name', ''], /name/],
    [['accounts', 'suspend', 'acct_nothing'], /acct_nothing/],
    [['accounts', 'revive', 'house:cash'], /house:cash/],
  ] as const) {
    const { code, stderr } = await service.command(...args);
    assert.equal(code, 1, stderr);
    assert.match(stderr, said);
  }
});

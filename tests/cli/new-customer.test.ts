/** `tokenhouse accounts create`: a customer who can begin, or nothing at all. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel } from '../support/service.ts';
import { jsonOf } from './command.ts';

const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface Made {
  readonly id: string;
  readonly credit_microcents: number;
  readonly key: { readonly id: string; readonly key: string } | null;
  readonly owner: { readonly email: string; readonly invitation_url: string; readonly is_mailed: boolean } | null;
}

const accountsThere = async (): Promise<readonly { readonly id: string; readonly name: string }[]> =>
  JSON.parse((await service.command('accounts', 'list', '--json')).stdout) as { id: string; name: string }[];

for (const isRunning of [true, false]) {
  describe(isRunning ? 'while the service runs' : 'while it does not', () => {
    before(async () => {
      if (!isRunning) await service.stop();
    });

    test('the account has its credit, a key that works, and an invitation for its owner', async () => {
      const name = isRunning ? 'Example Ltd' : 'Other Ltd';
      const email = isRunning ? 'Ada@Example.org' : 'grace@example.org';
      const args = ['--owner', email, '--credit', '$20', '--key', 'production'];
      const made = jsonOf(await service.command('accounts', 'create', name, ...args, '--json')) as Made;
      assert.equal(made.credit_microcents, 2_000_000_000);
      assert.equal(made.owner?.email, email.toLowerCase());
      assert.equal(made.owner.is_mailed, false);
      const audited = await service.command('audit', 'list', '--account', made.id, '--json');
      assert.ok(!audited.stdout.toLowerCase().includes(email.toLowerCase()), 'addresses are not in the audit log');
      assert.deepEqual(
        (JSON.parse(audited.stdout) as { action: string; outcome: string }[])
          .map(({ action, outcome }) => `${action} ${outcome}`)
          .toSorted(),
        ['account.create done', 'credit.move done', 'key.create done'],
      );

      if (!isRunning) await service.start();
      const answer = await service.chat(
        { model: 'demo', messages: [{ role: 'user', content: 'hi' }] },
        { key: made.key?.key ?? '' },
      );
      assert.equal(answer.status, 200, await answer.text());
      const token = made.owner.invitation_url.split('/invitation#')[1];
      const joined = await fetch(`${service.accountUrl}/v1/invites/accept`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'sec-fetch-site': 'same-origin' },
        body: JSON.stringify({ token, name: 'Ada', password: 'correct horse battery' }),
      });
      const membership = (await joined.json()) as { account_id: string; role: string };
      assert.deepEqual([joined.status, membership.account_id, membership.role], [200, made.id, 'owner']);
      if (!isRunning) await service.stop();
    });

    test('a part that is refused leaves nothing behind', async () => {
      const before = await accountsThere();
      for (const [args, code, said] of [
        [['Ltd', '--owner', 'no address', '--credit', '20', '--key'], 1, /not an e-mail address/],
        [['Ltd', '--owner', 'a@example.org', '--credit', '0', '--key'], 64, /more than 0/],
        [['Ltd', '--owner', 'a@example.org', '--credit', '99999999999', '--key'], 64, /at most/],
        [['Ltd', '--credit', '20', '--key', 'k'.repeat(101)], 1, /1 to 100 characters/],
        [['L\ntd', '--credit', '20', '--key'], 1, /control characters/],
        [['--credit', '20'], 1, /Name the account once/],
        [['Ltd', '--name', 'Ltd'], 1, /Name the account once/],
      ] as const) {
        const result = await service.command('accounts', 'create', ...args);
        assert.equal(result.code, code, result.stderr);
        assert.match(result.stderr, said);
      }
      assert.deepEqual(await accountsThere(), before);
    });
  });
}

test('in words: the id, the credit in dollars, the key and the link, each on its line', async () => {
  const args = ['Words Ltd', '--owner', 'w@example.org', '--credit', '1250.5', '--key'];
  const { code, stdout, stderr } = await service.command('accounts', 'create', ...args);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^acct_\w{12}\ncredit {3}\$1,250\.50\nkey {6}tkh_\w+\nowner {4}http:\/\/\S+\/invitation#\S+\n$/);
  assert.match(stderr, /pass it on yourself/);
});

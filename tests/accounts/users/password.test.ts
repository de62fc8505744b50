import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Passwords } from '../../../src/accounts/users/password.ts';

/** What a hash costs a thief of the database (OWASP, scrypt): 32 MB, three times over. */
test('a hash is what production needs unless set otherwise, and any hash of ours is verified', async () => {
  const production = new Passwords();
  const hash = await production.hash('correct horse battery');
  assert.match(hash, /^scrypt:32768:8:3:[\w-]{22}:[\w-]{43}$/);
  const quick = new Passwords({ N: 2 ** 10, r: 8, p: 1 });
  assert.match(await quick.hash('correct horse battery'), /^scrypt:1024:8:1:/);
  for (const passwords of [production, quick]) {
    assert.equal(await passwords.verify(hash, 'correct horse battery'), true);
    assert.equal(await passwords.verify(hash, 'correct horse batterz'), false);
    assert.equal(await passwords.verify('scrypt:32768:8:3:x:y', 'correct horse battery'), false);
  }
});

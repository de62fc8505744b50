/** What others do to the database of an open store: they see that it is in use, and neither harms the other. */
import assert from 'node:assert/strict';
import { mkdirSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { lockHolder, OutsideProgram } from '../support/outside-program.ts';
import { customer, differencesOf, openStore, temporaryFolder, usage } from './fixture.ts';

/** How the file comes to be: by the path that the store is given. */
const beginnings: Readonly<Record<string, (t: TestContext, folder: string) => string | Promise<string>>> = {
  'a new file': (_t, folder) => join(folder, 'x.db'),
  'a file that was there': async (t, folder) => {
    const file = join(folder, 'x.db');
    await (await openStore(t, file)).close();
    return file;
  },
  'a link to where a new file shall be': (_t, folder) => {
    mkdirSync(join(folder, 'elsewhere'));
    symlinkSync(join(folder, 'elsewhere', 'y.db'), join(folder, 'x.db'));
    return join(folder, 'x.db');
  },
};

for (const [beginning, begin] of Object.entries(beginnings)) {
  test(`${beginning}: who reads it and closes it does not take itself for the last one`, async (t) => {
    const folder = temporaryFolder(t);
    const file = await begin(t, folder);
    const store = await openStore(t, file);
    await customer(store, 'acct_a', 1_000n);
    assert.equal(await store.ledger.settle(usage('acct_a', 1n)), 'billed');
    const outside = new OutsideProgram(t);
    const real = beginning.startsWith('a link') ? join(folder, 'elsewhere', 'y.db') : file;
    const log = statSync(`${real}-wal`);
    assert.deepEqual(
      ['', '-wal', '-shm'].map((ending) => statSync(`${real}${ending}`).mode & 0o777),
      [0o600, 0o600, 0o600],
    );

    const holderOf = lockHolder(t);
    for (let round = 0; round < 3; round++) {
      assert.equal(holderOf(file), process.pid, 'others see that it is in use');
      await outside.read(file);
      assert.equal(statSync(`${real}-wal`).ino, log.ino, 'the log stays');
      assert.equal(await store.ledger.settle(usage('acct_a', 1n)), 'billed');
    }
    await outside.do({ open: file });
    assert.match((await outside.do({ run: 'pragma journal_mode = delete' })) ?? 'done', /database is locked/);
    await outside.do({ close: true });

    await store.close();
    assert.equal(holderOf(file), 0);
    assert.deepEqual(await differencesOf(file, false), []);
  });
}

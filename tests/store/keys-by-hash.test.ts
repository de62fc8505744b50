import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { customer, openStore, temporaryFolder } from './fixture.ts';
import { keysAreFoundByHash } from './keys-by-hash.ts';

test('keys are found by the hash of either secret; hashes are listed in their order', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 0n);
  await keysAreFoundByHash(store.repositories, 'acct_a');
});

test('looking for a hash and listing hashes reads an index, and no table', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  await openStore(t, file);
  const connection = openConnection(file);
  const plan = (text: string): string =>
    connection
      .prepare(`explain query plan ${text}`)
      .all()
      .map((row) => String((row as { readonly detail: unknown }).detail))
      .join('\n');
  assert.match(
    plan(`select * from api_key where status = 'active' and hash in (x'01', x'02')`),
    /SEARCH api_key USING INDEX/,
  );
  assert.match(
    plan(`select * from api_key where status = 'active' and previous_hash in (x'01', x'02')`),
    /SEARCH api_key USING INDEX api_key_previous_hash/,
  );
  assert.match(
    plan(`select hash from api_key where hash > x'01' order by hash limit 9`),
    /SEARCH api_key USING COVERING INDEX/,
  );
  assert.match(
    plan(
      `select previous_hash from api_key where previous_hash is not null and previous_hash > x'01' order by previous_hash limit 9`,
    ),
    /SEARCH api_key USING COVERING INDEX api_key_previous_hash/,
  );
  connection.close();
});

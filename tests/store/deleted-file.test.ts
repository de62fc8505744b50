/** The database is deleted, moved or replaced under a running service: nothing that would be lost is acknowledged, and it ends. */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import { StoreError } from '../../src/store/store-error.ts';
import { noFeatures, scriptedModel, TestService, until } from '../support/service.ts';
import { customer, openStore, temporaryFolder, usage } from './fixture.ts';

const ways: Readonly<Record<string, (file: string) => void>> = {
  'its folder is deleted': (file) => rmSync(dirname(file), { recursive: true }),
  'its folder is moved': (file) => renameSync(dirname(file), `${dirname(file)}.moved`),
  'its folder is deleted and made again': (file) => {
    rmSync(dirname(file), { recursive: true });
    mkdirSync(dirname(file));
  },
  'the file is replaced by a copy of itself': (file) => {
    copyFileSync(file, `${file}.copy`);
    renameSync(`${file}.copy`, file);
  },
  'its log is deleted': (file) => rmSync(`${file}-wal`),
};

for (const [way, happens] of Object.entries(ways)) {
  test(`${way}: the next charge is not acknowledged`, async (t) => {
    const file = join(temporaryFolder(t), 'data', 'store.db');
    const fatal: Error[] = [];
    const store = await openStore(t, file, { onFatal: (error) => fatal.push(error) });
    await customer(store, 'acct_a', 1_000n);
    assert.equal(await store.ledger.settle(usage('acct_a', 1n)), 'billed');
    happens(file);
    await assert.rejects(store.ledger.settle(usage('acct_a', 1n)), StoreError);
    assert.match(fatal[0]!.message, /was (deleted or moved|replaced by another file) while the service was running/);
    await assert.rejects(store.ledger.settle(usage('acct_a', 1n)), StoreError);
  });

  test(`${way}: seen without any work`, async (t) => {
    const file = join(temporaryFolder(t), 'data', 'store.db');
    const fatal: Error[] = [];
    const store = await openStore(t, file, { onFatal: (error) => fatal.push(error) });
    await customer(store, 'acct_a', 1_000n);
    happens(file);
    await until(() => fatal.length > 0, 60_000);
    assert.match(fatal[0]!.message, /while the service was running/);
  });
}

test('a database that nobody touches is left alone, checkpoints and a rewrite of its log included', async (t) => {
  const file = join(temporaryFolder(t), 'store.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 1_000_000n);
  // Several times what is folded into the file at a time (1,000 pages).
  for (let round = 0; round < 40; round++)
    await Promise.all(Array.from({ length: 200 }, () => store.ledger.settle(usage('acct_a', 1n))));
});

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "one two three" }] }', { settings: noFeatures }),
});
before(() => service.start());
after(() => service.dispose());

test('the service takes no more work, says why, and its exit code is not 0', async () => {
  const ask = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
  assert.equal((await service.chat(ask)).status, 200);
  assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
  rmSync(join(service.folder, 'data'), { recursive: true });
  // Whatever comes back until the port is closed, none of it is an answer that was charged.
  const statuses = new Set<number>();
  const ended = service.exited();
  let isOver = false;
  void ended.then(() => (isOver = true));
  while (!isOver) {
    const answer = await service.chat(ask).catch(() => undefined);
    if (answer === undefined) continue;
    statuses.add(answer.status);
    await answer.arrayBuffer();
  }
  assert.ok(!statuses.has(200), [...statuses].join());
  assert.equal((await ended).code, 69);
  assert.match(service.output, /tokenhouse\.db was deleted or moved while the service was running/);
});

/** Other programs at the database of a busy service: a reader, a data browser that stays, two backup tools. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { examine } from '../../../src/store/sqlite/backup.ts';
import { lockHolder, OutsideProgram } from '../../support/outside-program.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { scriptedModel, TestService, until } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';

const config = scriptedModel('- { say: [{ text: "one two three" }] }');

test('a reader, a data browser and backup tools live beside the service: neither stops the other, and nothing is lost', async (t) => {
  const service = new TestService({ config });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const acknowledged: string[] = [];
  let over = false;
  const load = Promise.all(
    Array.from({ length: 4 }, async () => {
      while (!over) {
        const id = newRequestId();
        const answer = await service.chat(
          { model: 'demo', messages: [{ role: 'user', content: 'hi' }] },
          { headers: { 'x-request-id': id } },
        );
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        acknowledged.push(id);
      }
    }),
  );
  await until(() => acknowledged.length > 20, 60_000);
  const log = statSync(`${ledger.file}-wal`).ino;

  const copies = [join(service.folder, 'backup.db'), join(service.folder, 'vacuumed.db')] as const;
  const [reader, browser, backup, copier] = Array.from({ length: 4 }, () => new OutsideProgram(t)) as Four;
  assert.equal(await browser.do({ open: ledger.file }), null);
  await Promise.all([
    rounds(10, () => reader.read(ledger.file)),
    rounds(10, async () => {
      assert.equal(await browser.do({ run: 'select count(*) from usage' }), null);
      assert.equal(await browser.do({ run: 'pragma wal_checkpoint(truncate)' }), null);
      assert.match((await browser.do({ run: 'pragma journal_mode = delete' })) ?? 'done', /database is locked/);
    }),
    (async () => {
      assert.equal(await backup.do({ open: ledger.file }), null);
      assert.equal(await backup.do({ backup: copies[0] }), null);
      assert.equal(await backup.do({ close: true }), null);
    })(),
    (async () => {
      assert.equal(await copier.do({ open: ledger.file }), null);
      assert.equal(await copier.do({ run: `vacuum into '${copies[1]}'` }), null);
      assert.equal(await copier.do({ close: true }), null);
    })(),
  ]);
  // It rewrites the whole file, and waits its turn as any writer does.
  assert.match((await browser.do({ run: 'vacuum' })) ?? 'done', /^(done|Error: database is locked)$/);
  const before = acknowledged.length;
  await until(() => acknowledged.length > before + 20, 60_000);
  over = true;
  await load;

  assert.equal(lockHolder(t)(ledger.file), service.pid);
  assert.equal(statSync(`${ledger.file}-wal`).ino, log, 'the log was never deleted');
  for (const file of copies) {
    const { differences, usageRows } = await examine(file);
    assert.deepEqual(differences, []);
    assert.ok(usageRows >= 20, file);
  }
  assert.equal(await browser.do({ close: true }), null);
  await service.verify();
  assert.equal(await service.stop(), 0);
  const rows = new Set((await ledger.everyRow()).map(({ publicId }) => publicId));
  assert.deepEqual(
    acknowledged.filter((id) => !rows.has(id)),
    [],
  );
  assert.equal(rows.size, acknowledged.length);
});

type Four = [OutsideProgram, OutsideProgram, OutsideProgram, OutsideProgram];

async function rounds(count: number, work: () => Promise<void>): Promise<void> {
  for (let round = 0; round < count; round++) await work();
}

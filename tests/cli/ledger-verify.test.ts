import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { DatabaseSync } from '@photostructure/sqlite';

import { TestService, scriptedModel } from '../support/service.ts';
import { runCommand } from './command.ts';

/** A ledger that was tampered with is found out: rows are changed in a copy, behind its triggers' back. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
const copies = mkdtempSync(join(tmpdir(), 'tokenhouse-copies-'));
before(async () => {
  await service.start();
  for (let i = 0; i < 3; i++) await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(await service.stop(), 0);
});
after(async () => {
  await service.dispose();
  rmSync(copies, { recursive: true, force: true });
});

/** A copy of the service's folder, changed by these statements. */
function changedCopy(name: string, ...statements: readonly string[]): string {
  const folder = join(copies, name.replaceAll(/\W+/g, '-'));
  cpSync(service.folder, folder, { recursive: true });
  const database = new DatabaseSync(join(folder, 'data', 'tokenhouse.db'));
  for (const change of ['update', 'delete']) {
    for (const table of ['transfer', 'usage']) database.exec(`drop trigger ${table}_no_${change}`);
  }
  for (const statement of statements) database.exec(statement);
  database.close();
  return folder;
}

test('an unchanged copy verifies', async () => {
  const { code, stdout } = await runCommand(changedCopy('unchanged'), ['ledger', 'verify']);
  assert.equal(code, 0, stdout);
});

test('the triggers that the copies drop are there', () => {
  const folder = join(copies, 'triggers');
  cpSync(service.folder, folder, { recursive: true });
  const database = new DatabaseSync(join(folder, 'data', 'tokenhouse.db'));
  assert.throws(() => database.exec('update usage set cost = cost'), /immutable/);
  assert.throws(() => database.exec('delete from transfer'), /immutable/);
  database.close();
});

describe('a difference ends with exit code 1', () => {
  const oneUsage = '(select request_id from usage order by request_id limit 1)';
  for (const [what, statement] of [
    ['a balance that is one microcent higher', "update account set available = available + 1 where id like 'acct%'"],
    ['a balance that is one microcent lower', "update account set available = available - 1 where id like 'acct%'"],
    ['a grant that is larger', "update transfer set amount = amount + 1 where kind = 'grant'"],
    ['a grant that is gone', "delete from transfer where kind = 'grant'"],
    ['a request that is gone', `delete from usage where request_id = ${oneUsage}`],
    ['a request that was free', `update usage set cost = 0 where request_id = ${oneUsage}`],
    [
      'more tokens than were paid',
      `update usage set completion_tokens = completion_tokens + 1 where request_id = ${oneUsage}`,
    ],
    ['another price', `update usage set output_price = output_price + 1000000 where request_id = ${oneUsage}`],
    ['a request of another account', `update usage set account_id = 'acct_other' where request_id = ${oneUsage}`],
  ] as const) {
    test(what, async () => {
      const folder = changedCopy(what, statement);
      const words = await runCommand(folder, ['ledger', 'verify']);
      assert.equal(words.code, 1, words.stdout);
      assert.match(words.stdout, /: expected .*, found /);
      assert.match(words.stdout, /\d+ differences? in /);
      const json = await runCommand(folder, ['ledger', 'verify', '--json']);
      assert.equal(json.code, 1);
      const found = JSON.parse(json.stdout) as { ok: boolean; differences: unknown[] };
      assert.equal(found.ok, false);
      assert.ok(found.differences.length > 0);
    });
  }
});

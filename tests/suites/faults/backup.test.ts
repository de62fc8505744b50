/** Backup of a database that is in use, and what it takes to restore one (reliability D8). */
import { DatabaseSync } from '@photostructure/sqlite';
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { TestContext } from 'node:test';

import { uuidText } from '../../../src/platform/ids/uuid.ts';
import { repositoriesOn } from '../../../src/store/repositories/repositories.ts';
import { openReadOnly } from '../../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';

const config = scriptedModel(`
- when: { last_text: silence }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 1, type: hang }
- say: [ { text: "hello" } ]
`);
const ask = (text: string, more: object = {}) => ({
  model: 'demo',
  messages: [{ role: 'user', content: text }],
  ...more,
});

function serviceOf(t: TestContext): TestService {
  const service = new TestService({ config });
  t.after(() => service.dispose());
  return service;
}

async function idsIn(file: string): Promise<Set<string>> {
  const db = openReadOnly(file);
  try {
    return new Set(
      (await db.selectFrom('usage').select('request_id').execute()).map((row) => uuidText(row.request_id)),
    );
  } finally {
    await db.destroy();
  }
}

async function run(
  service: TestService,
  ...args: string[]
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const result = await service.command(...args);
  assert.equal(result.code, 0, result.stdout + result.stderr);
  return result;
}

const database = (service: TestService): string => join(service.folder, 'data', 'tokenhouse.db');

test('under load: every charge that was acknowledged before the backup began is in it, it verifies, and it restores', async (t) => {
  const service = await serviceOf(t).start();
  const ledger = new TestLedger(service);
  const acknowledged: string[] = [];
  let over = false;
  const load = Promise.all(
    Array.from({ length: 6 }, async () => {
      while (!over) {
        const id = newRequestId();
        const answer = await service.chat(ask('hi'), { headers: { 'x-request-id': id } });
        assert.equal(answer.status, 200, await answer.text());
        acknowledged.push(id);
      }
    }),
  );
  // One that runs for so long that it is written down as open.
  const standing = await RawClient.connect(service.url);
  standing.send(chatBytes(service.key, newRequestId(), ask('silence', { stream: true })));
  await until(async () => (await ledger.openRequests()) > 0, 30_000);
  await until(() => acknowledged.length > 50, 60_000);

  const backup = join(service.folder, 'backup.db');
  const before = [...acknowledged];
  const { stdout } = await run(service, 'db', 'backup', backup);
  assert.match(stdout, /backup\.db: \d+ bytes, \d+ accounts?.*; verified\n/);
  assert.match(stdout, /backup\.db\.secret: the secret that its keys are hashed with/);
  over = true;
  await load;
  assert.deepEqual([statSync(backup).mode & 0o777, statSync(`${backup}.secret`).mode & 0o777], [0o600, 0o600]);
  assert.ok(!existsSync(`${backup}.part`));

  const db = openReadOnly(backup);
  t.after(() => db.destroy());
  const repositories = repositoriesOn(db);
  for (const id of before)
    assert.equal((await repositories.findUsage({ accountId: service.accountId, id })).length, 1, id);
  assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
  const inBackup = await idsIn(backup);
  const { balanceMicrocents } = (await repositories.getAccount({ accountId: service.accountId }))!;

  standing.reset();
  await service.stop();
  const afterwards = new Set([...(await idsIn(database(service)))].filter((id) => !inBackup.has(id)));
  assert.ok(afterwards.size > 0, 'work went on after the backup');

  // Somewhere else, from nothing: the keys work, the old hold has expired, and no id comes again.
  const other = serviceOf(t).takesAccountOf(service);
  await run(other, 'db', 'restore', backup);
  await other.start();
  const otherLedger = new TestLedger(other);
  assert.equal(await otherLedger.balance(), balanceMicrocents);
  assert.equal(await otherLedger.openRequests(), 0);
  assert.equal((await otherLedger.newest(1_000)).filter(({ ending }) => ending === 'crashed').length, 1);
  for (let index = 0; index < 20; index++) {
    const answer = await other.chat(ask('hi'));
    assert.equal(answer.status, 200, await answer.text());
  }
  const crashed = new Set(
    (await otherLedger.newest(1_000))
      .filter(({ ending }) => ending === 'crashed')
      .map((row) => uuidText(row.requestId)),
  );
  for (const id of await idsIn(database(other))) {
    // The one that ran during the backup is the same request here and there.
    assert.ok(!afterwards.has(id) || crashed.has(id), 'an id that was used after the backup');
  }
  await other.verify();
});

describe('a restore is refused, and changes nothing', () => {
  test('while the service runs; over a database; of what is no backup; with keys that would be dead', async (t) => {
    const service = await serviceOf(t).start();
    const backup = join(service.folder, 'backup.db');
    await run(service, 'db', 'backup', backup);
    const again = await service.command('db', 'backup', backup);
    assert.deepEqual([again.code, /exists.*--force/.test(again.stderr)], [1, true], again.stderr);

    const running = await service.command('db', 'restore', backup, '--force');
    assert.equal(running.code, 69);
    assert.match(running.stderr, /Another process owns/);
    await (await service.chat(ask('hi'))).text();
    await service.stop();
    const original = readFileSync(database(service));

    const refusals: readonly (readonly [string, number, RegExp, () => string[]])[] = [
      ['a database is there', 1, /--force/, () => [backup]],
      ['no such file', 1, /does not exist/, () => [join(service.folder, 'nothing.db'), '--force']],
      ['no database', 69, /not a database/, () => [write('text.db', 'hello '.repeat(1_000)), '--force']],
      ['cut short', 69, /damaged|malformed/, () => [cut('short.db'), '--force']],
      ['a damaged page', 69, /damaged|malformed/, () => [spoilt('spoilt.db'), '--force']],
      ['money that does not add up', 69, /does not verify/, () => [forged('forged.db'), '--force']],
    ];
    const write = (name: string, bytes: string | Buffer): string => {
      const file = join(service.folder, name);
      writeFileSync(file, bytes);
      return file;
    };
    const cut = (name: string): string => {
      const file = write(name, readFileSync(backup));
      truncateSync(file, statSync(file).size - 8_192);
      return file;
    };
    const spoilt = (name: string): string => {
      const bytes = readFileSync(backup);
      // The head of every page but the first: cells and links point anywhere.
      for (let page = 4_096; page < bytes.length; page += 4_096) bytes.fill(0x5a, page, page + 64);
      return write(name, bytes);
    };
    const forged = (name: string): string => {
      const file = write(name, readFileSync(backup));
      const forger = new DatabaseSync(file);
      forger.exec('update account set available = available + 1 where kind = 0');
      forger.close();
      return file;
    };
    for (const [what, code, message, args] of refusals) {
      const refused = await service.command('db', 'restore', ...args());
      assert.equal(refused.code, code, `${what}: ${refused.stdout}${refused.stderr}`);
      assert.match(refused.stderr, message, what);
      assert.ok(readFileSync(database(service)).equals(original), what);
    }

    const without = join(service.folder, 'without.db');
    await run(service, 'db', 'backup', without, '--no-secret');
    assert.ok(!existsSync(`${without}.secret`));
    const other = serviceOf(t).takesAccountOf(service);
    const dead = await other.command('db', 'restore', without);
    assert.equal(dead.code, 1);
    assert.match(dead.stderr, /none of them would work/);
    assert.ok(!existsSync(database(other)));
    // Nothing half-done is left in the folder of the data.
    assert.deepEqual(
      readdirSync(join(service.folder, 'data')).filter((name) => name.includes('restore') || name.includes('part')),
      [],
    );
  });
});

test('over a database with --force: what was there is kept, with its secret, and can be restored again', async (t) => {
  const first = await serviceOf(t).start();
  const backup = join(first.folder, 'backup.db');
  await run(first, 'db', 'backup', backup);
  await first.stop();

  const second = await serviceOf(t).start();
  const ownKey = second.key;
  await (await second.chat(ask('hi'))).text();
  await second.stop();
  const { stdout } = await run(second, 'db', 'restore', backup, '--force');
  const [kept, keptSecret] = [...stdout.matchAll(/The replaced database is kept: (\S+)/g)].map((match) => match[1]!);
  assert.ok(kept !== undefined && keptSecret !== undefined, stdout);
  await second.start();
  assert.equal((await second.chat(ask('hi'), { key: first.key })).status, 200);
  assert.equal((await second.chat(ask('hi'), { key: ownKey })).status, 401);
  await second.verify();
  const status = await run(second, 'db', 'status');
  assert.match(status.stdout, /in use by a running service\n[^]*1 live key/);
  await second.stop();

  writeFileSync(`${kept}.secret`, readFileSync(keptSecret));
  await run(second, 'db', 'restore', kept, '--force');
  await second.start();
  assert.equal((await second.chat(ask('hi'), { key: ownKey })).status, 200);
});

describe('a damaged database stops the start, in words (reliability D8)', () => {
  for (const [what, harm] of [
    ['cut short', (file: string) => truncateSync(file, statSync(file).size - 8_192)],
    [
      'damaged pages',
      (file: string) => {
        const bytes = readFileSync(file);
        for (let page = 4_096; page < bytes.length; page += 4_096) bytes.fill(0x5a, page, page + 64);
        writeFileSync(file, bytes);
      },
    ],
    ['no database any more', (file: string) => writeFileSync(file, 'x'.repeat(20_000))],
  ] as const) {
    test(what, async (t) => {
      const service = await serviceOf(t).start();
      await service.stop();
      const backup = join(service.folder, 'backup.db');
      await run(service, 'db', 'backup', backup);
      harm(database(service));
      const started = await service.command('serve');
      assert.equal(started.code, 69, started.stderr);
      assert.match(started.stderr, /is damaged|not a database.*damaged/);
      assert.match(started.stderr, /[Rr]estore/);
      assert.ok(!started.stderr.includes('    at '), 'no stack');
      await run(service, 'db', 'restore', backup, '--force');
      await service.start();
      assert.equal((await service.chat(ask('hi'))).status, 200);
    });
  }
});

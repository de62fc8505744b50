/** kill -9 while old usage is removed: what is left is right, and whoever comes next goes on (decision 037). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { listLedger } from '../../../src/store/repositories/credit.ts';
import { sumUsage } from '../../../src/store/repositories/usage-totals.ts';
import { prunedRequests, retentionOf } from '../../../src/store/retention/retention.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn, openReadOnly } from '../../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { mainFile } from '../../support/built.ts';
import { mulberry32 } from '../../support/random.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { makeUsage } from '../../usage/retention.ts';

const dayMs = 86_400_000;
const kills = 5;

test(`kill -9 of the command and of the service while usage is removed: nothing is counted twice or lost, and the file gets smaller`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
  t.after(() => service.dispose());
  await service.start();
  const chat = async (): Promise<void> => {
    const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    assert.equal(answer.status, 200, await answer.text());
  };
  await chat();
  assert.equal(await service.stop(), 0);

  const file = join(service.folder, 'data', 'tokenhouse.db');
  const [from, to] = [Date.now() - 100 * dayMs, Date.now() - 60 * dayMs];
  const connection = openConnection(file);
  connection.exec('pragma synchronous = off'); // these rows come again with the next run of the test
  connection.exec(`update account set credit_limit = 1000000000000000 where kind = 0`);
  const db = kyselyOn(connection);
  const accountIds = [service.accountId];
  const rows = await makeUsage(db, random, {
    accountIds,
    from,
    to,
    closedUntil: Date.now() - 40 * dayMs,
    count: 10_000,
    budgetShare: 0,
  });
  await db.destroy();
  // The newest hours are summed up again until a later one is.
  await service.start();
  await chat();
  await until(
    async () =>
      (
        await reading(file, (on) =>
          on
            .selectFrom('usage_hour')
            .select('hour')
            .where('hour', '>', BigInt(to + dayMs))
            .execute(),
        )
      ).length > 0,
    90_000,
  );
  assert.equal(await service.stop(), 0);

  const keptSince = Math.floor((to - 5 * dayMs) / dayMs) * dayMs;
  const older = rows.filter(({ endedAt }) => endedAt < keptSince).length;
  const answers = () =>
    reading(file, async (on) => ({
      byDay: await sumUsage(on, { from: 0, to: Math.floor(to / dayMs) * dayMs, by: 'day' }),
      byKey: await sumUsage(on, { from: 0, to: Math.floor(to / dayMs) * dayMs, by: 'key' }),
      movements: (await listLedger(on, { accountId: service.accountId, limit: 1000, now: to + dayMs, kind: 'grant' }))!,
    }));
  const before = await answers();
  const removedNow = () => reading(file, prunedRequests);
  const assertRight = async (stage: string): Promise<void> => {
    const { differences } = await reading(file, (on) => verifyLedger(on, { owned: true }));
    assert.deepEqual(differences, [], `seed ${seed}, ${stage}`);
    assert.deepEqual(await answers(), before, `seed ${seed}, ${stage}`);
    const there = await reading(file, (on) =>
      on.selectFrom('usage').select('request_id').where('ended_at', '<', BigInt(keptSince)).execute(),
    );
    assert.equal(there.length + (await removedNow()), older, `seed ${seed}, ${stage}`);
  };
  await assertRight('before');
  const largest = statSync(file).size;

  const day = new Date(keptSince).toISOString().slice(0, 10);
  const environment = { ...process.env };
  for (let kill = 0; kill < kills; kill++) {
    const done = await removedNow();
    const child = spawn(process.execPath, [mainFile, 'db', 'prune', '--before', day, '--yes'], {
      cwd: service.folder,
      env: environment,
      stdio: 'ignore',
    });
    const ended = once(child, 'exit');
    // At least the first page, then some more, or none.
    await until(async () => child.exitCode !== null || (await removedNow()) > done, 60_000);
    await new Promise((resolve) => setTimeout(resolve, random() * 150));
    child.kill('SIGKILL');
    await ended;
    await assertRight(`killed ${kill + 1} times`);
  }
  const killedAt = await removedNow();
  assert.ok(killedAt > 0);

  // The service goes on by itself, is killed once too, and answers meanwhile.
  await service.start();
  await chat();
  await service.stop('SIGKILL');
  await assertRight('after the kill of the service');
  await service.start();
  await until(async () => (await reading(file, retentionOf)).removedAt !== null, 180_000);
  await chat();
  const smaller = (): boolean => statSync(file).size < largest * 0.75;
  await until(smaller, 90_000).catch(() => assert.fail(`${largest} bytes became ${statSync(file).size}`));
  assert.equal(await service.stop(), 0);
  await assertRight('at the end');
  assert.ok((await removedNow()) > older / 2);

  const run = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await service.command(...words);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  assert.match(await run('db', 'prune', '--before', day, '--yes'), /^0 requests from before/m);
  assert.match(await run('db', 'backup', 'backup.db'), /verified/);
  await run('db', 'restore', 'backup.db', '--force');
  await assertRight('restored');
  await service.start();
  await chat();
  await service.verify();
});

async function reading<Value>(
  file: string,
  read: (db: ReturnType<typeof openReadOnly>) => Promise<Value>,
): Promise<Value> {
  const db = openReadOnly(file);
  try {
    return await read(db);
  } finally {
    await db.destroy();
  }
}

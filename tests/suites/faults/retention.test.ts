/** kill -9 while old usage is removed: what is left is right, and whoever comes next goes on (decision 037). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { listLedger } from '../../../src/store/repositories/credit.ts';
import { sumUsage } from '../../../src/store/repositories/usage-totals.ts';
import { prunedRequests, retentionOf } from '../../../src/store/retention/retention.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { kyselyOn, openReadOnly } from '../../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { built, mainFile } from '../../support/built.ts';
import { mulberry32 } from '../../support/random.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { makeUsage } from '../../usage/retention.ts';

const dayMs = 86_400_000;
const kills = 5;
/** The service removes rows, sums hours up and gives space back at once, instead of within a minute each. */
const entry = built('tests/support/quick-jobs-entry.ts');

const config = scriptedModel('- say: [ { text: "hello" } ]');

interface History {
  readonly service: TestService;
  readonly file: string;
  readonly rows: Awaited<ReturnType<typeof makeUsage>>;
  /** The last of the rows ended before. */
  readonly to: number;
  readonly chat: () => Promise<void>;
}

/** A service, which is stopped, with requests of 40 days that ended two months ago, all summed up for good. */
async function serviceWithHistory(t: TestContext, random: () => number, count: number): Promise<History> {
  const service = new TestService({ config, entry });
  t.after(() => service.dispose());
  // Without a request: hours before one that is summed up are taken for complete.
  await service.start();
  assert.equal(await service.stop(), 0);
  const chat = async (): Promise<void> => {
    const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    assert.equal(answer.status, 200, await answer.text());
  };

  const file = join(service.folder, 'data', 'tokenhouse.db');
  const [from, to] = [Date.now() - 100 * dayMs, Date.now() - 60 * dayMs];
  const connection = openConnection(file);
  connection.exec('pragma synchronous = off'); // these rows come again with the next run of the test
  connection.exec(`update account set credit_limit = 1000000000000000 where kind = 0`);
  const db = kyselyOn(connection);
  const accountIds = [service.accountId];
  const closedUntil = Date.now() - 40 * dayMs;
  const rows = await makeUsage(db, random, { accountIds, from, to, closedUntil, count, budgetShare: 0 });
  await db.destroy();
  return { service, file, rows, to, chat };
}

test(`kill -9 of the command and of the service while usage is removed: nothing is counted twice or lost, and the file gets smaller`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const { service, file, rows, to, chat } = await serviceWithHistory(t, random, 6_000);

  const keptSince = Math.floor((to - 5 * dayMs) / dayMs) * dayMs;
  const older = rows.filter(({ endedAt }) => endedAt < keptSince).length;
  const answers = () =>
    reading(file, async (on) => ({
      byDay: await sumUsage(on, { from: 0, to: Math.floor(to / dayMs) * dayMs, by: ['day'] }),
      byKey: await sumUsage(on, { from: 0, to: Math.floor(to / dayMs) * dayMs, by: ['key'] }),
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
    await new Promise((resolve) => setTimeout(resolve, random() * 60));
    child.kill('SIGKILL');
    await ended;
    await assertRight(`killed ${kill + 1} times`);
  }
  const killedAt = await removedNow();
  assert.ok(killedAt > 0);

  // The service goes on by itself, is killed once too, and answers meanwhile.
  const isRemoved = async (): Promise<boolean> => (await reading(file, retentionOf)).removedAt !== null;
  await service.start();
  await chat();
  await until(async () => (await removedNow()) > killedAt || (await isRemoved()), 60_000);
  await service.stop('SIGKILL');
  await assertRight('after the kill of the service');
  await service.start();
  await until(isRemoved, 60_000);
  await chat();
  // Sums stay, by hour, day, tier and latency: of this file an eighth goes.
  const smaller = (): boolean => statSync(file).size < largest * 0.92;
  await until(smaller, 60_000).catch(() => assert.fail(`${largest} bytes became ${statSync(file).size}`));
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

test('kill -9 of a service that removes old usage by itself: one step, noted once, and the next start completes it', async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const { service, file, rows, to, chat } = await serviceWithHistory(t, mulberry32(seed), 3_000);
  const sums = () => reading(file, (on) => sumUsage(on, { from: 0, to: Math.floor(to / dayMs) * dayMs, by: ['day'] }));
  const before = await sums();
  await service.start();
  assert.equal((await reading(file, retentionOf)).keptSince, 0, 'off by default');
  // It is taken over while the service runs.
  service.configure({ config: `retention: { details_days: 31 }\n${config}` });
  await until(async () => (await reading(file, retentionOf)).keptSince > 0, 60_000);
  await service.stop('SIGKILL');
  const { keptSince } = await reading(file, retentionOf);
  assert.equal(keptSince, Math.floor(rows[0]!.endedAt / dayMs) * dayMs + 7 * dayMs, 'a week');

  await service.start();
  await until(async () => (await reading(file, retentionOf)).removedAt !== null, 60_000);
  const removed = await reading(file, prunedRequests);
  assert.ok(removed > 0);
  await chat();
  assert.deepEqual(await sums(), before);
  const { stdout } = await service.command('audit', 'list', '--json', '--limit', '100');
  const entries = JSON.parse(stdout) as readonly { readonly action: string; readonly actor: object }[];
  const moves = entries.filter(({ action }) => action === 'usage.prune');
  assert.equal(moves.length, 1, stdout);
  assert.match(JSON.stringify(moves), /"system"/);
  assert.equal(await service.stop(), 0);
  assert.equal((await reading(file, retentionOf)).keptSince, keptSince, 'once a day');
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

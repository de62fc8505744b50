/** What `tokenhouse db prune` says. What it does is in tests/usage, and in the suites faults and postgres. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { TestService, scriptedModel } from '../support/service.ts';
import { randomOf } from '../usage/ledger-of-rows.ts';
import { makeUsage } from '../usage/retention.ts';
import { jsonOf } from './command.ts';

const dayMs = 86_400_000;
const now = Date.now();
const dayBefore = (days: number): string => new Date(now - days * dayMs).toISOString().slice(0, 10);
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(async () => {
  await service.start();
  await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(await service.stop(), 0);
  const db = kyselyOn(openConnection(join(service.folder, 'data', 'tokenhouse.db')));
  const old = {
    accountIds: [service.accountId],
    from: now - 100 * dayMs,
    to: now - 60 * dayMs,
    count: 60,
    budgetShare: 0,
  };
  await makeUsage(db, randomOf(1), { ...old, closedUntil: now - 40 * dayMs });
  await db.destroy();
});
after(() => service.dispose());

test('says what is missing or wrong', async () => {
  for (const [words, said] of [
    [[], /--keep <days>, or --before <date>/],
    [['--keep', '90', '--before', '2026-08-01'], /--keep <days>, or --before <date>/],
    [['--before', '2026-02-30'], /2026-02-30 is no date/],
    [['--before', 'yesterday'], /yesterday is no date/],
    [['--keep', '0'], /--keep/],
  ] as const) {
    const { code, stderr } = await service.command('db', 'prune', ...words);
    assert.notEqual(code, 0);
    assert.match(stderr, said);
  }
});

test('shows what would go, and changes nothing without --yes', async () => {
  const late = await service.command('db', 'prune', '--before', dayBefore(0));
  assert.equal(late.code, 0, late.stderr);
  assert.match(late.stdout, /^Not as late as \S+, which was asked for: /);
  const shown = await service.command('db', 'prune', '--before', dayBefore(70));
  assert.match(shown.stdout, /^\d+ requests that ended before \S+ would lose their details: about \d+ bytes/);
  assert.match(shown.stdout, /Nothing was changed\. .* with --yes/);
  const plan = jsonOf(await service.command('db', 'prune', '--keep', '70', '--json')) as Record<string, unknown>;
  assert.equal(plan['limited_by'], null);
  assert.ok((plan['rows'] as number) > 20);
  assert.deepEqual([plan['details_since'], plan['removed'], plan['done']], [null, null, false]);
  const none = await service.command('db', 'prune', '--before', '2020-01-01');
  assert.match(none.stdout, /^0 requests that ended before 2020-01-01 /);
  const status = jsonOf(await service.command('db', 'status', '--json')) as Record<string, unknown>;
  assert.deepEqual([status['details_since'], status['pruned_requests'], status['usage_rows']], [null, 0, 61]);
});

test('does it with --yes, and says since when there are details', async () => {
  const done = jsonOf(await service.command('db', 'prune', '--before', dayBefore(70), '--yes', '--json')) as Record<
    string,
    unknown
  >;
  const removed = done['removed'] as number;
  assert.ok(removed > 20 && removed <= (done['rows'] as number));
  assert.deepEqual([done['details_since'], done['done']], [dayBefore(70), true]);
  const again = await service.command('db', 'prune', '--before', dayBefore(80));
  assert.match(again.stdout, /Nothing is to be done/);
  const status = await service.command('db', 'status');
  assert.match(
    status.stdout,
    new RegExp(`details +of requests since ${dayBefore(70)}T00:00:00.000Z; the rows of ${removed} older ones`),
  );
  const missing = await service.command('explain', 'req_000000000000');
  assert.match(missing.stderr, /has no request req_000000000000 since .*; of older ones, only sums are kept/);
  await service.start();
  await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  await service.verify();
});

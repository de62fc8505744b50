/** Rows as the program has them: what is written is read again, by whatever name it is asked for. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { rowsOn, storedOn } from '../../src/store/schema/codec.ts';
import { columnsOf, tables, type TableName } from '../../src/store/schema/tables.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from './fixture.ts';

test('a column of one name is read in the same way in every table', () => {
  const kinds = new Map<string, Set<string>>();
  for (const table of Object.keys(tables) as TableName[]) {
    if (table.startsWith('auth_')) continue;
    for (const [name, { kind }] of Object.entries(columnsOf(table))) {
      // Text and bytes are read as they are, whatever the kind; times and counts are both numbers.
      const read = kind === 'text' || kind === 'bytes' ? 'as it is' : kind === 'time' ? 'count' : kind;
      kinds.set(name, (kinds.get(name) ?? new Set()).add(read));
    }
  }
  for (const [name, read] of kinds) {
    read.delete('as it is');
    assert.ok(read.size <= 1, `${name}: ${[...read].join(', ')}`);
  }
  // Text that is read as JSON in one table would be parsed in the other.
  for (const table of Object.keys(tables) as TableName[])
    for (const [name, { kind }] of Object.entries(columnsOf(table)))
      if (kind === 'text') assert.ok(!kinds.get(name)?.has('json'), `${table}.${name}`);
});

test('what is written is read again: names, times, flags, JSON, money above 2^53, and null', async (t) => {
  const stored = kyselyOn(openConnection(join(temporaryFolder(t), 'x.db')));
  t.after(() => stored.destroy());
  await migrate(stored, 'sqlite');
  const db = rowsOn(stored);
  const alert = {
    id: 'alert_1',
    accountId: 'acct_a',
    kind: 'spend',
    name: 'much',
    thresholdMicrocents: 2n ** 60n + 1n,
    runwayDays: null,
    per: 'day',
    subjectKind: 'account',
    subject: null,
    recipients: { members: ['usr_1'], addresses: [] },
    isWebhook: true,
    createdAt: 1_795_000_000_000,
    updatedAt: 1_795_000_000_001,
    state: 'ok',
    observedMicrocents: null,
    lookedAt: null,
    firedAt: null,
    endedAt: null,
    version: 1,
  } as const;
  await db.insertInto('alert').values(alert).execute();
  assert.deepEqual(await db.selectFrom('alert').selectAll().execute(), [alert]);

  const raw = await stored.selectFrom('alert').selectAll().executeTakeFirstOrThrow();
  assert.deepEqual(
    [raw.account_id, raw.threshold, raw.recipients, raw.is_webhook, raw.created_at],
    ['acct_a', alert.thresholdMicrocents, '{"members":["usr_1"],"addresses":[]}', 1n, 1_795_000_000_000n],
  );

  const renamed = await db
    .selectFrom('alert as one')
    .innerJoin('alert as other', 'other.id', 'one.id')
    .where('one.isWebhook', '=', true)
    .where('one.createdAt', '<', 1_795_000_000_001)
    .select([
      'one.recipients as who',
      'other.createdAt as since',
      'other.isWebhook as sent',
      'one.thresholdMicrocents as most',
    ])
    .executeTakeFirst();
  assert.deepEqual(renamed, {
    who: alert.recipients,
    since: alert.createdAt,
    sent: true,
    most: alert.thresholdMicrocents,
  });
  const newest = await db
    .selectFrom('alert')
    .select((of) => [of.fn.max('updatedAt').as('newest'), of.fn.countAll<bigint>().as('count')])
    .executeTakeFirst();
  assert.deepEqual(newest, { newest: alert.updatedAt, count: 1n });
  const changed = await db
    .updateTable('alert')
    .set((is) => ({ isWebhook: false, version: is('version', '+', 1) }))
    .where('recipients', 'is not', null)
    .returning(['isWebhook', 'version'])
    .executeTakeFirst();
  assert.deepEqual(changed, { isWebhook: false, version: 2 });

  // Kinds are text elsewhere.
  assert.deepEqual(
    await db.selectFrom('account').select(['kind', 'version']).where('id', '=', 'house_cash').execute(),
    [{ kind: 1, version: 1 }],
  );

  await db.transaction().execute(async (transaction) => {
    await transaction.deleteFrom('alert').where('id', '=', 'alert_1').execute();
    assert.deepEqual(await storedOn(transaction).selectFrom('alert').selectAll().execute(), []);
  });
});

/** docs/money.md: verification names every row that is not right, however many rows the database judges at once. */
import { join } from 'node:path';
import { test } from 'node:test';

import { migrate } from '../../src/store/migrations/migrate.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from './fixture.ts';
import { rowsAreJudgedAlike, withoutChecks } from './judged-rows.ts';

test('the database finds the rows that have a fault, and adds up as we do', async (t) => {
  const connection = openConnection(join(temporaryFolder(t), 'rows.db'));
  const db = kyselyOn(connection);
  t.after(() => db.destroy());
  await migrate(db, 'sqlite');
  connection.exec('pragma foreign_keys = off');
  await withoutChecks(db, 'as select * from usage');
  await rowsAreJudgedAlike(db);
});

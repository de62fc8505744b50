import { test } from 'node:test';
import { proveMonth } from './month.ts';
import { sqlitePlace } from './places.ts';

/** tests/suites/month has two hundred thousand, on both stores. */
test('a month comes to the same everywhere, to the microcent', async (t) => {
  await proveMonth(t, sqlitePlace(t), { requests: 3_000, asked: 40, fineGroups: [undefined, 'tag'] });
});

import { test } from 'node:test';
import { proveMonth } from '../../month/month.ts';
import { sqlitePlace } from '../../month/places.ts';
import { fullMonth } from './size.ts';

test(`a month of ${fullMonth.requests} requests comes to the same everywhere, to the microcent`, async (t) => {
  await proveMonth(t, sqlitePlace(t), fullMonth);
});

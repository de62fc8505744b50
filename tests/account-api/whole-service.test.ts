import { test } from 'node:test';
import { firstDay } from './first-day.ts';

test('from the first link to the last request', (t) => firstDay(t));

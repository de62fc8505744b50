/** Every row of a list, page after page, within a bound. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { allRows } from '../../web/src/app/all-rows.ts';
import type { ListPage } from '../../web/src/app/all-rows.ts';

/** A list of so many rows, as the account API gives it; `asked` is where each page began. */
function listOf(count: number) {
  const asked: (string | undefined)[] = [];
  const ask = async ({ limit, after }: { limit: number; after?: string }): Promise<ListPage<number>> => {
    asked.push(after);
    const from = after === undefined ? 0 : Number(after) + 1;
    const end = Math.min(count, from + limit);
    const data = Array.from({ length: end - from }, (_, at) => from + at);
    return { data, has_more: end < count, next_after: end < count ? String(end - 1) : null };
  };
  return { ask, asked };
}

test('all rows in their order, and no page more than there are', async () => {
  for (const [count, pages] of [
    [0, 1],
    [100, 1],
    [101, 2],
    [1000, 10],
  ] as const) {
    const { ask, asked } = listOf(count);
    assert.deepEqual(await allRows(ask), [...Array(count).keys()]);
    assert.equal(asked.length, pages, `${count}`);
  }
});

test('a list without an end is read up to its bound, and one that does not say how it goes on up to there', async () => {
  const { ask, asked } = listOf(Infinity);
  assert.equal((await allRows(ask)).length, 1000);
  assert.equal(asked.length, 10);
  assert.deepEqual(await allRows(async () => ({ data: [1], has_more: true })), [1]);
});

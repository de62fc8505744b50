import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parquetMetadata, parquetReadObjects } from 'hyparquet';

import { printExport } from '../../src/account-api/export.ts';
import type { Columns, Exported } from '../../src/account-api/columns.ts';

const columns = {
  name: 'text',
  tags: 'list',
  flag: 'flag',
  at_utc: 'time',
  price: 'number',
  multiple: 'fraction',
  cost_microcents: 'sum',
} as const satisfies Columns;

/** Every seventh value is null where a column may be empty; integers beyond 2^53 stay exact. */
function rowOf(index: number): Exported {
  const orNull = <Value>(value: Value) => (index % 7 === 0 ? null : value);
  return {
    name: orNull(`=naïve, "${index % 50}"\n`),
    tags: index % 2 === 0 ? [] : ['red', 'blue'],
    flag: orNull(index % 3 === 0),
    at_utc: new Date(1_700_000_000_000 + index).toISOString(),
    price: orNull(index),
    multiple: orNull(index / 3),
    cost_microcents: 9_007_199_254_740_993n + BigInt(index),
  };
}

async function* pagesOf(rows: number): AsyncGenerator<readonly Exported[]> {
  for (let from = 0; from < rows; from += 500)
    yield Array.from({ length: Math.min(500, rows - from) }, (_, index) => rowOf(from + index));
}

for (const rows of [0, 1, 20_000, 45_001])
  test(`a Parquet file of ${rows} rows is read back as it was, with its sums`, async () => {
    const pieces: Uint8Array[] = [];
    for await (const piece of printExport('parquet', columns, pagesOf(rows))) pieces.push(piece as Uint8Array);
    // Groups leave as they are full.
    assert.equal(pieces.length, Math.floor(rows / 20_000) + 1);
    const bytes = Buffer.concat(pieces);
    const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    const metadata = parquetMetadata(file);
    const sum = Array.from({ length: rows }, (_, index) => rowOf(index)['cost_microcents'] as bigint).reduce(
      (all, one) => all + one,
      0n,
    );
    assert.deepEqual(metadata.key_value_metadata, [
      { key: 'totals', value: `{"rows":${rows},"cost_microcents":${sum}}` },
    ]);
    const read = await parquetReadObjects({ file });
    assert.equal(read.length, rows);
    read.forEach((row, index) => {
      const { price, at_utc, tags, ...others } = rowOf(index);
      assert.deepEqual(row, {
        ...others,
        tags: (tags as string[]).join(' '),
        at_utc: new Date(at_utc as string),
        price: price === null ? null : BigInt(price as number),
      });
    });
  });

/**
 * Yields a whole table in pages of `size` rows, ordered by a unique key: `read` selects the rows after a key, and `first` is before every
 * key. Each page therefore costs the same, and no row is read twice or skipped, even if rows are added meanwhile.
 */
export async function* pagesByKey<Row, Key>({
  first,
  size,
  read,
  keyOf,
}: {
  readonly first: Key;
  readonly size: number;
  readonly read: (after: Key) => { limit(rows: number): { execute(): Promise<Row[]> } };
  readonly keyOf: (row: Row) => Key;
}): AsyncGenerator<readonly Row[]> {
  for (let after = first; ;) {
    const rows = await read(after).limit(size).execute();
    yield rows;
    if (rows.length < size) return;
    after = keyOf(rows.at(-1)!);
  }
}

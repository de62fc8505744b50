/**
 * A whole table in pages of `size` rows, by a key that is unique and in whose order they come: `read` selects the rows after a key,
 * and `first` is before every key. So a page costs the same anywhere, and no row is read twice or left out, whatever is added
 * meanwhile.
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

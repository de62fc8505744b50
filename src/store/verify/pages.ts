/**
 * Yields a whole table in pages of `size` rows, ordered by a unique key: `read` selects the rows after a key, and `first` is before every
 * key. Each page therefore costs the same, and no row is read twice or skipped, even if rows are added meanwhile. The database reads a page
 * while the caller works on the one before.
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
  const pageAfter = (key: Key): Promise<Row[]> => {
    const page = read(key).limit(size).execute();
    page.catch(() => undefined); // Whoever awaits it has the error; one that ended before does not want it.
    return page;
  };
  for (let page: Promise<Row[]> | undefined = pageAfter(first); page !== undefined;) {
    const rows: readonly Row[] = await page;
    page = rows.length < size ? undefined : pageAfter(keyOf(rows.at(-1)!));
    yield rows;
  }
}

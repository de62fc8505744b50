export interface ListPage<One> {
  readonly data: readonly One[];
  readonly has_more: boolean;
  readonly next_after?: string | null;
}

const pageSize = 100;
/** An account has at most a thousand live keys. */
const pagesMax = 10;

/** What `ask` answers from the beginning on; it ends at its bound also where the server always has more. */
export async function allRows<One>(
  ask: (query: { readonly limit: number; readonly after?: string }) => Promise<ListPage<One>>,
): Promise<readonly One[]> {
  const rows: One[] = [];
  let after: string | undefined;
  for (let page = 0; page < pagesMax; page++) {
    const answer = await ask({ limit: pageSize, ...(after === undefined ? {} : { after }) });
    rows.push(...answer.data);
    if (!answer.has_more || !answer.next_after) break;
    after = answer.next_after;
  }
  return rows;
}

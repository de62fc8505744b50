import type { Repositories } from '../store/repositories/repositories.ts';
import type { Account } from '../store/repositories/accounts.ts';

const pageSize = 1000;

/** All accounts in the order of their ids, a page at a time. */
export async function* everyAccount({
  listAccounts,
}: Pick<Repositories, 'listAccounts'>): AsyncGenerator<Account, undefined> {
  for (let after: string | undefined; ;) {
    const page = await listAccounts({ limit: pageSize, ...(after === undefined ? {} : { after }) });
    yield* page;
    if (page.length < pageSize) return;
    after = page.at(-1)!.id;
  }
}

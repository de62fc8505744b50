import { askedKinds } from './completion.ts';
import type { AskedKind } from './completion.ts';
import type { BareContext } from './context.ts';
import { readContext } from './read-context.ts';

/** One value a line, followed by a tab and its description. A user has pressed a key and waits: failures are silent. */
export async function printValues(
  { around, configPath, print }: BareContext,
  _options: unknown,
  kind?: string,
): Promise<number> {
  const known = askedKinds.find((name) => name === kind);
  if (known === undefined) return 0;
  try {
    const values = await valuesOf(known, configPath, around.directory);
    print.result(
      undefined,
      values.map(([value, what]) => `${value}\t${what}`),
    );
  } catch {
    return 0;
  }
  return 0;
}

async function valuesOf(
  kind: AskedKind,
  configPath: string | undefined,
  directory: string,
): Promise<readonly (readonly [string, string])[]> {
  const context = readContext(configPath, directory);
  if (kind === 'model') return context.config.models.map((model) => [model.id, model.displayName]);
  const { repositoriesOn } = await import('../store/repositories/repositories.ts');
  const { openStoreReader } = await import('../app/stores.ts');
  const db = await openStoreReader(context.config.storage);
  if (db === undefined) return [];
  try {
    const repositories = repositoriesOn(db);
    switch (kind) {
      case 'key-id':
        return (await repositories.listKeys({}))
          .filter((key) => key.status === 'active')
          .map((key) => [key.id, key.name]);
      case 'account-id':
        return (await repositories.listAccounts({})).map((account) => [account.id, account.name]);
    }
  } finally {
    await db.destroy();
  }
}

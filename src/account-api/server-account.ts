import Type from 'typebox';

import { notThere } from './input.ts';
import type { Call } from './route.ts';

/** Fields of operators' requests. */
export const accountId = Type.String({ minLength: 1, maxLength: 64 });
export const reason = Type.String({ minLength: 1, maxLength: 1000 });

/** Resolves with the account's id. Throws `http_404` also for system accounts and deleted ones. */
export async function liveAccount({ services }: Pick<Call, 'services'>, id: string): Promise<string> {
  const found = await services.operations.repositories.getAccount({ accountId: id });
  if (found === undefined || found.isSystem || found.deletedAt !== null) throw notThere();
  return found.id;
}

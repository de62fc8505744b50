import type { Kysely } from 'kysely';
import type { Database } from './database.ts';
import * as queries from './queries.ts';

/** What the desk does for the main thread, by name: one line here makes a query callable from there. */
export const deskOperations = {
  listAccounts: queries.listAccounts,
  getAccount: queries.getAccount,
  createKey: queries.createKey,
  listKeys: queries.listKeys,
  revokeKey: queries.revokeKey,
  loadKeys: queries.loadKeys,
  listTransfers: queries.listTransfers,
  listUsage: queries.listUsage,
  findUsage: queries.findUsage,
  sumUsage: queries.sumUsage,
  recomputeUsageHours: queries.recomputeUsageHours,
} as const;

type Operations = typeof deskOperations;
export type DeskOperation = keyof Operations;
export type DeskRequest<Name extends DeskOperation> = Parameters<Operations[Name]>[1];
export type DeskAnswer<Name extends DeskOperation> = Awaited<ReturnType<Operations[Name]>>;

/** Keys, lists and reports. Rejects with a StoreError. */
export type Desk = {
  readonly [Name in DeskOperation]: (request: DeskRequest<Name>) => Promise<DeskAnswer<Name>>;
};

/** The same operations on a connection at hand, without a thread: for the command line. */
export function deskOn(db: Kysely<Database>): Desk {
  const call = (name: DeskOperation) => (request: unknown) =>
    (deskOperations[name] as (db: Kysely<Database>, request: unknown) => Promise<unknown>)(db, request);
  return Object.fromEntries(
    (Object.keys(deskOperations) as DeskOperation[]).map((name) => [name, call(name)]),
  ) as unknown as Desk;
}

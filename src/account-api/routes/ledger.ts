import Type from 'typebox';
import type { Static } from 'typebox';

import { uuidText } from '../../platform/ids/uuid.ts';
import type { LedgerCursor, LedgerEntry } from '../../store/repositories/credit.ts';
import type { TransferKind } from '../../store/ledger.ts';
import { notThere } from '../input.ts';
import { everyRole, route } from '../route.ts';
import type { AccountServices } from '../services.ts';
import { listOf, listSchema, nullable, pageLimit, pageQuery, secondsOf, wholeOf } from '../wire.ts';

const ledgerTypes = ['topup', 'grant', 'refund', 'adjustment', 'chargeback', 'expiry', 'usage'] as const;
type LedgerType = (typeof ledgerTypes)[number];
export const ledgerQuery = Type.Object(
  { ...pageQuery, type: Type.Optional(Type.Enum([...ledgerTypes])) },
  { additionalProperties: false },
);

export const entrySchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('ledger_entry'),
  type: Type.Enum([...ledgerTypes]),
  amount_microcents: Type.Integer({ description: 'Negative: taken from the account.' }),
  balance_after_microcents: Type.Integer(),
  at: Type.Integer({ description: 'Unix seconds; for usage, the end of its span.' }),
  reference: nullable(Type.String()),
  requests: Type.Optional(Type.Integer({ description: 'For usage: how many requests ended in its span.' })),
  from: Type.Optional(Type.Integer({ description: 'For usage: the start of its span.' })),
});

/** Movements of credit. */
export const ledgerRoute = route({
  method: 'get',
  path: '/v1/ledger',
  operationId: 'listLedger',
  tag: 'Credit',
  summary: 'List movements of credit',
  description:
    'Newest first, with the balance after each. Charges of requests are summed between two movements, or from the start of a day in the account’s time zone; only the newest sum still grows. `after` is the id of the last entry of the page before.',
  access: everyRole,
  query: ledgerQuery,
  answers: [{ status: 200, description: 'A page of movements.', schema: listSchema(entrySchema) }],
  handle: async ({ account, query, services }) => await ledgerPage(services, account.id, query),
});

/** A page of movements; throws `http_404` for an `after` of another account. */
export async function ledgerPage(
  { operations }: Pick<AccountServices, 'operations'>,
  accountId: string,
  { limit: asked, type, after }: Static<typeof ledgerQuery>,
) {
  const limit = pageLimit(asked);
  const rows = await operations.repositories.listLedger({
    accountId,
    limit: limit + 1,
    now: operations.now(),
    ...(type === undefined ? {} : { kind: kindOf[type] }),
    ...(after === undefined ? {} : { after: cursorOf(after) }),
  });
  if (rows === undefined) throw notThere();
  return listOf(rows, limit, shownEntry, idOfEntry);
}

const kindOf: Readonly<Record<LedgerType, TransferKind | 'usage'>> = {
  topup: 'topup',
  grant: 'grant',
  refund: 'refund',
  adjustment: 'adjust',
  chargeback: 'chargeback',
  expiry: 'expiry',
  usage: 'usage',
};

const typeOf = (kind: LedgerEntry['kind']): LedgerType =>
  kind === 'usage_closed' ? 'usage' : kind === 'adjust' ? 'adjustment' : kind;

const idOfEntry = (entry: LedgerEntry): string =>
  'from' in entry ? `use_${entry.from}` : `mov_${uuidText(entry.id).replaceAll('-', '')}`;

function cursorOf(text: string): LedgerCursor {
  const usage = /^use_(\d{1,15})$/.exec(text)?.[1];
  if (usage !== undefined) return { usageFrom: Number(usage) };
  const movement = /^mov_([0-9a-f]{32})$/.exec(text)?.[1];
  if (movement === undefined) throw notThere();
  return { transferId: Uint8Array.from(Buffer.from(movement, 'hex')) };
}

const shownEntry = (entry: LedgerEntry) => ({
  id: idOfEntry(entry),
  object: 'ledger_entry',
  type: typeOf(entry.kind),
  amount_microcents: wholeOf(entry.microcents),
  balance_after_microcents: wholeOf(entry.balanceAfterMicrocents),
  at: secondsOf('from' in entry ? entry.to : entry.at),
  reference: 'from' in entry ? null : entry.reference,
  ...('from' in entry ? { requests: entry.requests, from: secondsOf(entry.from) } : {}),
});

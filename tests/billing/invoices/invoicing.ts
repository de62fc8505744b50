/** What the tests of invoices share: an account whose past is written by the test, and the clock that closes its months. */
import type { TestContext } from 'node:test';
import { join } from 'node:path';

import { Invoices } from '../../../src/billing/invoices/invoices.ts';
import type { InvoiceSettings } from '../../../src/billing/invoices/invoices.ts';
import type { InvoiceData } from '../../../src/billing/invoices/statement.ts';
import { publicIdOf, uuidMaker } from '../../../src/platform/ids/uuid.ts';
import { systemAccounts } from '../../../src/store/ledger.ts';
import type { AccountLedger, TransferKind, UsageRow } from '../../../src/store/ledger.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { defaultTaxNotes } from '../../../src/tax/tax.ts';
import { openStore, temporaryFolder, usage } from '../../store/fixture.ts';

export const dayMs = 86_400_000;

export interface Paper {
  readonly store: { readonly ledger: AccountLedger; readonly repositories: Repositories };
  readonly clock: { now: number };
  readonly zones: Map<string, string>;
  readonly invoices: Invoices;
}

export const settings: InvoiceSettings = {
  seller: { name: 'Rechenhaus GmbH', address: ['Lange Straße 1', '10115 Berlin'], taxId: 'DE123456789', email: null },
  tax: {
    sellerCountry: 'DE',
    rate: { name: 'VAT', ratePerMille: 190 },
    byCountry: [{ country: 'FR', name: 'TVA', ratePerMille: 200 }],
    notes: defaultTaxNotes,
  },
  prefix: 'TH-',
};

export async function openPaper(t: TestContext, at: number): Promise<Paper & { readonly file: string }> {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  return { ...paperOn(store, at), file };
}

export function paperOn(store: Paper['store'], at: number): Paper {
  const clock = { now: at };
  const zones = new Map<string, string>();
  const invoices = new Invoices({
    repositories: store.repositories,
    settings: () => settings,
    timeZoneOf: async (accountId) => zones.get(accountId) ?? 'UTC',
    buyerOf: async ({ name }) => ({
      name,
      address: [],
      email: null,
      country: null,
      taxId: null,
      taxStatus: 'standard',
    }),
    newId: uuidMaker(() => clock.now),
    now: () => clock.now,
  });
  return { store, clock, zones, invoices };
}

export async function account({ store }: Pick<Paper, 'store'>, id: string, at: number, name = id): Promise<void> {
  await store.ledger.createAccount({ id, name, creditLimitMicrocents: 0n, at, changeId: uuidMaker(() => at)() });
}

export async function moved(
  { store }: Pick<Paper, 'store'>,
  accountId: string,
  microcents: bigint,
  at: number,
  kind: TransferKind = 'topup',
): Promise<void> {
  const systemAccount = kind === 'topup' ? systemAccounts.cash : systemAccounts.promo;
  await store.ledger.transfer({
    id: uuidMaker(() => at)(),
    debitAccount: microcents > 0n ? systemAccount : accountId,
    creditAccount: microcents > 0n ? accountId : systemAccount,
    amountMicrocents: microcents > 0n ? microcents : -microcents,
    kind,
    idempotencyKey: crypto.randomUUID(),
    reference: null,
    by: 'test',
    at,
  });
}

export async function spent(
  { store }: Pick<Paper, 'store'>,
  accountId: string,
  costMicrocents: bigint,
  endedAt: number,
  changes: Partial<UsageRow> = {},
): Promise<UsageRow> {
  const requestId = uuidMaker(() => endedAt)();
  const row = usage(accountId, costMicrocents, {
    requestId,
    publicId: publicIdOf(requestId),
    startedAt: endedAt - 1,
    endedAt,
    ...changes,
  });
  await store.ledger.settle(row);
  return row;
}

export async function refunded(
  { store }: Pick<Paper, 'store'>,
  row: UsageRow,
  microcents: bigint,
  at: number,
): Promise<void> {
  const id = Buffer.from(row.requestId).toString('hex');
  await store.ledger.transfer({
    id: uuidMaker(() => at)(),
    debitAccount: systemAccounts.revenue,
    creditAccount: row.accountId,
    amountMicrocents: microcents,
    kind: 'refund',
    idempotencyKey: `refund:${id}`,
    reference: id,
    by: 'test',
    at,
  });
}

export interface Issued {
  readonly id: string;
  readonly number: string;
  readonly kind: string;
  readonly month: string;
  readonly corrects: string;
  readonly periodStart: number;
  readonly periodEnd: number;
  readonly total: bigint;
  readonly data: InvoiceData;
}

/** Oldest first. */
export async function issuedTo({ store }: Pick<Paper, 'store'>, accountId: string): Promise<readonly Issued[]> {
  const found = await store.repositories.listInvoices({ accountId, limit: 100 });
  return found
    .map((one) => ({
      id: one.id,
      number: one.number,
      kind: one.kind,
      month: one.month,
      corrects: one.corrects,
      periodStart: one.periodStart,
      periodEnd: one.periodEnd,
      total: one.totalMicrocents,
      data: JSON.parse(one.data) as InvoiceData,
    }))
    .reverse();
}

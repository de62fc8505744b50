import { balancesOfOwner, type ChargedPeriods } from '../budget.ts';
import type { UsageRow } from '../ledger.ts';
import { tables } from '../schema/tables.ts';

export type SqlValue = string | number | bigint | null;

/** The columns of usage other than `request_id`, in the order of `usageValues`. */
export const usageColumns = (Object.keys(tables.usage.columns) as UsageColumn[]).filter(
  (column): column is Exclude<UsageColumn, 'request_id'> => column !== 'request_id',
);
type UsageColumn = keyof typeof tables.usage.columns;

export const accountColumn = usageColumns.indexOf('account_id');
export const costColumn = usageColumns.indexOf('cost');
const keyColumn = usageColumns.indexOf('key_id');
const modelColumn = usageColumns.indexOf('model_id');
const startedColumn = usageColumns.indexOf('started_at');
const keyBudgetColumn = usageColumns.indexOf('key_budget');
const accountBudgetColumn = usageColumns.indexOf('account_budget');
const memberBudgetColumn = usageColumns.indexOf('member_budget');

export function usageValues(row: UsageRow): SqlValue[] {
  return [
    clean(row.publicId),
    row.clientId === null ? null : clean(row.clientId),
    row.accountId,
    row.keyId,
    clean(row.modelId),
    row.api,
    row.streamed ? 1 : 0,
    row.startedAt,
    row.endedAt,
    row.promptTokens,
    row.cachedTokens,
    row.completionTokens,
    row.reasoningTokens,
    row.costMicrocents,
    row.unchargedMicrocents,
    row.holdMicrocents,
    row.ending,
    row.finish === null ? null : clean(row.finish),
    row.errorCode,
    row.counted ? 1 : 0,
    row.inputPrice,
    row.outputPrice,
    row.cacheReadPrice,
    row.backend === null ? null : clean(row.backend),
    row.firstTokenMs,
    row.totalMs,
    row.tags === null ? null : clean(row.tags),
    row.plan === null ? null : clean(row.plan),
    row.keyBudget,
    row.accountBudget,
    row.zdr === undefined ? null : row.zdr ? 1 : 0,
    row.attempts === undefined ? null : clean(JSON.stringify(row.attempts)),
    row.memberBudget ?? null,
    row.fallbacks === undefined ? null : clean(JSON.stringify(row.fallbacks)),
    row.tier ?? null,
    row.queued === undefined ? null : JSON.stringify(row.queued),
    row.batchId ?? null,
    row.warnings === undefined ? null : JSON.stringify(row.warnings),
    row.priceMultiple ?? null,
  ];
}

/** Ids of the budget balances that a row is charged to, from its values. */
export const balancesOf = (values: readonly SqlValue[]): readonly string[] =>
  balancesCharged({
    accountId: values[accountColumn] as string,
    keyId: values[keyColumn] as string,
    modelId: values[modelColumn] as string,
    startedAt: values[startedColumn] as number,
    keyBudget: values[keyBudgetColumn] as ChargedPeriods | null,
    accountBudget: values[accountBudgetColumn] as ChargedPeriods | null,
    memberBudget: values[memberBudgetColumn] as string | null,
  });

/** The same, from the row itself. */
export function balancesCharged({
  accountId,
  keyId,
  modelId,
  startedAt,
  keyBudget,
  accountBudget,
  memberBudget = null,
}: Pick<
  UsageRow,
  'accountId' | 'keyId' | 'modelId' | 'startedAt' | 'keyBudget' | 'accountBudget' | 'memberBudget'
>): readonly string[] {
  if (keyBudget === null && accountBudget === null && memberBudget === null) return none;
  const idsOf = (ownerId: string, charged: ChargedPeriods | null): readonly string[] =>
    balancesOfOwner({ ownerId, modelId }, charged, startedAt).map(({ id }) => id);
  return [
    ...idsOf(keyId, keyBudget),
    ...(memberBudget === null ? [] : [memberBudget]),
    ...idsOf(accountId, accountBudget),
  ];
}

const none: readonly string[] = [];

/** reliability D9: PostgreSQL refuses U+0000, and a lone surrogate is not text; a settlement must not fail because of a label. */
export function clean(text: string): string {
  return unclean.test(text) ? text.replace(uncleanAll, '\ufffd') : text;
}

// With the `u` flag, a surrogate class matches only lone surrogates.
const unclean = /[\0\ud800-\udfff]/u;
const uncleanAll = /[\0\ud800-\udfff]/gu;

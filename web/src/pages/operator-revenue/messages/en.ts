import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  account: 'Account',
  by: 'Group by',
  cached: 'Cached',
  cost: 'Cost',
  cut: 'The first {n} of {all} are shown; the export has all.',
  empty: 'No usage',
  emptyText: 'Nothing was used in this month.',
  export: 'Export CSV',
  input: 'Input',
  lead: 'What was charged across all accounts, what it cost you, and what is left. Months are in UTC.',
  margin: 'Margin',
  marginNote: '{n} of {all} rows have known costs',
  model: 'Model',
  month: 'Month',
  noCosts: 'What tokens cost you is written in the configuration: models[].costs.',
  output: 'Output',
  requests: 'Requests',
  revenue: 'Revenue',
  revenueNote: 'Refunds are not subtracted.',
  tier: 'Service tier',
  title: 'Revenue',
  uncharged: 'Not charged',
} as const satisfies Catalogue;

export default en;
export type OperatorRevenueTexts = typeof en;

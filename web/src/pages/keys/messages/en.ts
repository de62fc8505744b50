import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  budget: 'Budget',
  create: 'Create key',
  empty: 'No keys yet',
  emptyText: 'A key lets a program call models. Each one can have its own budget, models and expiry.',
  expires: 'Expires',
  lastUsed: 'Last used',
  lead: 'What programs call models with. A key that reaches its budget stops at once, never past it.',
  models: 'Models',
  name: 'Name',
  never: 'never',
  paused: 'Paused',
  management: 'Management',
  showPaused: 'Show paused keys',
  spent: 'Spent',
  spentOf: '{spent} of {limit}',
  allModels: 'all',
  title: 'Keys',
} as const satisfies Catalogue;

export default en;
export type KeyTexts = typeof en;

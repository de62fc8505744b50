import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  allRequests: 'All requests',
  available: 'Available',
  chart: 'Spend of the last {days} days',
  cost: 'Cost',
  createKey: 'Create key',
  firstRequest: 'Send the first request',
  held: 'Held',
  heldBy: { one: 'by {n} running request', other: 'by {n} running requests' },
  input: 'Tokens in',
  latest: 'Latest requests',
  model: 'Model',
  month: 'Spent this month',
  noneOfYours: 'None of yours yet',
  noneOfYoursText: 'You see the requests of your own keys here, and the spend of the whole account above.',
  ofBalance: 'of a balance of {amount}',
  otherModels: 'Other models',
  output: 'Tokens out',
  start: 'Start',
  state: 'State',
  title: 'Overview',
  today: 'Spent today',
  unused: 'Nothing has been requested yet',
  unusedText: 'The start page asks a model from here, and shows how a program does.',
  usage: 'Usage',
  when: 'When',
  zone: 'in the time zone {zone}',
} as const satisfies Catalogue;

export default en;
export type OverviewTexts = typeof en;

import type { operations } from '../../api/schema.ts';
import type { Role } from '../../app/area.ts';
import type { TeamTexts } from './messages/en.ts';

export const roleNames = {
  owner: 'owner',
  admin: 'admin',
  billing: 'billing',
  developer: 'developer',
  viewer: 'viewer',
} as const satisfies Readonly<Record<Role, keyof TeamTexts>>;

export const roleHints = {
  owner: 'ownerHint',
  admin: 'adminHint',
  billing: 'billingHint',
  developer: 'developerHint',
  viewer: 'viewerHint',
} as const satisfies Readonly<Record<Role, keyof TeamTexts>>;

/** Rows of the table of roles: what somebody may do, by the operation of the API that says whether they may. */
export const abilities: readonly (readonly [keyof TeamTexts, keyof operations])[] = [
  ['maySee', 'listGenerations'],
  ['mayMakeKeys', 'createKey'],
  ['mayPay', 'createTopup'],
  ['mayReadInvoices', 'listInvoices'],
  ['mayLimit', 'setSpendLimit'],
  ['mayEditAccount', 'changeAccount'],
  ['mayInvite', 'createInvite'],
  ['mayUseWebhooks', 'createWebhookEndpoint'],
  ['mayReadAudit', 'listAuditLogs'],
  ['mayExport', 'exportAccount'],
  ['mayDelete', 'deleteAccount'],
];

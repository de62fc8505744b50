/** What a person may be in an account, and what a management key may do there, from most to least. */
export const roles = ['owner', 'admin', 'billing', 'developer', 'viewer'] as const;
export type Role = (typeof roles)[number];

/** Roles of a user in an account, and of a management key there, from most to least privileged. */
export const roles = ['owner', 'admin', 'billing', 'developer', 'viewer'] as const;
export type Role = (typeof roles)[number];

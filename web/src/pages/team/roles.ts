import type { Role } from '../../app/area.ts';

/** From most to least. */
export const roles: readonly Role[] = ['owner', 'admin', 'billing', 'developer', 'viewer'];

/** A member gives and takes roles up to their own. */
export const isAtMost = (role: Role, own: Role): boolean => roles.indexOf(role) >= roles.indexOf(own);
export const rolesUpTo = (own: Role): readonly Role[] => roles.filter((role) => isAtMost(role, own));

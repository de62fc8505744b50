import { areas } from 'virtual:areas';

import type { Session } from '../api/session.ts';
import type { NavigationEntry, NavigationGroup } from './area.ts';
import type { AppTexts } from './messages/en.ts';

export const groups: readonly (readonly [NavigationGroup, keyof AppTexts])[] = [
  ['use', 'groupUse'],
  ['money', 'groupMoney'],
  ['account', 'groupAccount'],
  ['operator', 'groupOperator'],
];

/** Entries that a person sees, in the order of their groups. */
export function entriesFor({ may, isOperator }: Session): readonly NavigationEntry[] {
  const order = groups.map(([group]) => group);
  return areas
    .flatMap(({ navigation }) => navigation)
    .filter(({ group, roles }) => (group === 'operator' ? isOperator : roles === undefined || may(roles)))
    .toSorted((a, b) => order.indexOf(a.group) - order.indexOf(b.group) || a.order - b.order);
}

import { useState } from 'react';

import type { Role } from '../../app/area.ts';
import { Select } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { roleHints, roleNames } from './role-texts.ts';
import { rolesUpTo } from './roles.ts';
import type { TeamTexts } from './messages/en.ts';

/** The roles that a member can give, each with what it is for. */
export function RoleField({ own, chosen }: { readonly own: Role; readonly chosen: Role }) {
  const t = useText<TeamTexts>('team');
  const [role, setRole] = useState(chosen);
  return (
    <Select
      name="role"
      label={t('role')}
      hint={t(roleHints[role])}
      value={role}
      options={rolesUpTo(own).map((one) => ({ value: one, text: t(roleNames[one]) }))}
      onChange={(event) => setRole(event.target.value as Role)}
    />
  );
}

import { useState } from 'react';

import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Time } from '../../components/figures.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { ReleaseDialog } from './release.tsx';
import type { OperatorAccountTexts } from './messages/en.ts';

type Member = Row<'/v1/admin/accounts/{id}/members'>;

/** Texts of roles. */
const roles: Readonly<Record<Member['role'], keyof OperatorAccountTexts>> = {
  owner: 'owner',
  admin: 'admin',
  billing: 'billing',
  developer: 'developer',
  viewer: 'viewer',
};

export function People({ account }: { readonly account: string }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const list = useList('/v1/admin/accounts/{id}/members', { path: { id: account } });
  const [released, setReleased] = useState<string>();
  const columns: readonly Column<Member>[] = [
    { head: t('name'), main: true, cell: ({ name }) => name },
    { head: t('email'), cell: ({ email }) => email },
    { head: t('role'), cell: ({ role }) => t(roles[role]) },
    { head: t('joined'), cell: ({ joined_at: at }) => <Time at={at} dateOnly /> },
    {
      head: t('secondFactor'),
      cell: ({ email }) => (
        <Button small onClick={() => setReleased(email)}>
          {t('releaseAction')}
        </Button>
      ),
    },
  ];
  return (
    <>
      <DataTable
        label={t('people')}
        columns={columns}
        list={list}
        keyOf={({ id }) => id}
        empty={<EmptyState title={t('noPeople')}>{t('noPeopleText')}</EmptyState>}
      />
      {released !== undefined && <ReleaseDialog email={released} onClose={() => setReleased(undefined)} />}
    </>
  );
}

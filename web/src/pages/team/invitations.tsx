import { useSend, useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { ErrorNote } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { roleNames } from './role-texts.ts';
import type { TeamTexts } from './messages/en.ts';

type Invitation = Row<'/v1/invites'>;
const refreshes = ['/v1/invites'];

/** Those that can still be accepted; nothing where there is none. */
export function Invitations() {
  const t = useText<TeamTexts>('team');
  const list = useList('/v1/invites', undefined, { every: 5000 });
  const again = useSend('post', '/v1/invites', { refreshes });
  const withdraw = useSend('delete', '/v1/invites/{id}', { refreshes });
  const error = again.error ?? withdraw.error;
  if (list.rows.length === 0 && list.error === null) return null;
  const columns: readonly Column<Invitation>[] = [
    { head: t('email'), main: true, cell: ({ email }) => email },
    { head: t('role'), cell: ({ role }) => t(roleNames[role]) },
    { head: t('sent'), cell: ({ created_at: at }) => <Time at={at} relative /> },
    { head: t('expires'), cell: ({ expires_at: at }) => <Time at={at} relative /> },
    {
      head: t('actions'),
      bare: true,
      cell: ({ id, email, role }) => (
        <>
          <Button
            small
            look="quiet"
            busy={again.isPending}
            onClick={() => again.mutate({ body: { email, role } }, { onSuccess: () => toast(t('invited', { email })) })}
          >
            {t('sendAgain')}
          </Button>{' '}
          <Button
            small
            look="quiet"
            busy={withdraw.isPending}
            aria-label={t('withdrawFor', { email })}
            onClick={() => withdraw.mutate({ params: { path: { id } } }, { onSuccess: () => toast(t('withdrawn')) })}
          >
            {t('withdraw')}
          </Button>
        </>
      ),
    },
  ];
  return (
    <Panel title={t('invitations')} flush>
      {error !== null && <ErrorNote error={error} />}
      <DataTable label={t('invitations')} columns={columns} list={list} keyOf={({ id }) => id} empty={null} />
    </Panel>
  );
}

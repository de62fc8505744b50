import { useQueryClient } from '@tanstack/react-query';

import type { Role } from '../../app/area.ts';
import { meQuery } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { changesOf } from '../../components/changes.ts';
import { ConfirmDialog, FormDialog } from '../../components/dialog.tsx';
import { LimitFields, limitIn } from '../../components/limit.tsx';
import { Loaded } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { RoleField } from './role-field.tsx';
import type { TeamTexts } from './messages/en.ts';
import styles from './team.module.css';

export type Member = Row<'/v1/members'>;

interface RoleDialogProps {
  readonly of: Member;
  /** Of the person who changes it. */
  readonly own: Role;
  readonly onClose: () => void;
}

export function RoleDialog({ of: member, own, onClose }: RoleDialogProps) {
  const t = useText<TeamTexts>('team');
  const queries = useQueryClient();
  const change = useSend('patch', '/v1/members/{id}', { refreshes: ['/v1/members'] });
  const submit = (form: FormData): void =>
    change.mutate(
      { params: { path: { id: member.id } }, body: { role: form.get('role') as Role } },
      {
        onSuccess: () => {
          toast(t('roleChanged', { name: member.name }));
          onClose();
          // It may be one's own.
          void queries.invalidateQueries({ queryKey: meQuery.queryKey });
        },
      },
    );
  return (
    <FormDialog
      title={t('roleOf', { name: member.name })}
      action={t('changeRole')}
      busy={change.isPending}
      error={change.error}
      text={t('roleText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <RoleField own={own} chosen={member.role} />
    </FormDialog>
  );
}

interface BudgetDialogProps {
  readonly of: Member;
  readonly onClose: () => void;
}

export function BudgetDialog({ of: member, onClose }: BudgetDialogProps) {
  const t = useText<TeamTexts>('team');
  const change = useSend('patch', '/v1/members/{id}', { refreshes: ['/v1/members'] });
  const submit = (form: FormData): void => {
    const body = changesOf(limitIn(form), member);
    if (Object.keys(body).length === 0) return onClose();
    change.mutate(
      { params: { path: { id: member.id } }, body },
      {
        onSuccess: () => {
          toast(t('budgetChanged', { name: member.name }));
          onClose();
        },
      },
    );
  };
  return (
    <FormDialog
      title={t('budgetOf', { name: member.name })}
      action={t('save')}
      busy={change.isPending}
      error={change.error}
      text={t('budgetText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <LimitFields of={member} hint={t('budgetHint')} />
    </FormDialog>
  );
}

interface RemoveDialogProps {
  readonly of: Member;
  readonly isSelf: boolean;
  readonly onClose: () => void;
}

export function RemoveDialog({ of: member, isSelf, onClose }: RemoveDialogProps) {
  const t = useText<TeamTexts>('team');
  const keys = useGet('/v1/keys', { query: { include_disabled: true, limit: 100 } });
  const remove = useSend('delete', '/v1/members/{id}', { refreshes: ['/v1/members', '/v1/keys'] });
  const confirm = (): void =>
    remove.mutate(
      { params: { path: { id: member.id } } },
      {
        onSuccess: ({ revoked_keys: revoked }) => {
          // Nothing of the account may stay on the screen.
          if (isSelf) return location.assign('/');
          toast(t('removed', { name: member.name, n: revoked.length }));
          onClose();
        },
      },
    );
  const name = member.name;
  return (
    <ConfirmDialog
      title={isSelf ? t('leaveTitle') : t('removeTitle', { name })}
      action={isSelf ? t('leave') : t('remove')}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      <p>{isSelf ? t('leaveText') : t('removeText')}</p>
      <Loaded of={keys} lines={2}>
        {({ data }) => <Keys names={data.filter(({ user_id: id }) => id === member.id).map((key) => key.name)} />}
      </Loaded>
    </ConfirmDialog>
  );
}

function Keys({ names }: { readonly names: readonly string[] }) {
  const t = useText<TeamTexts>('team');
  if (names.length === 0) return <p>{t('noKeys')}</p>;
  return (
    <>
      <p>{t('keysRevoked', { n: names.length })}</p>
      <ul className={styles['keys']}>
        {names.map((name, at) => (
          <li key={at}>
            <bdi>{name}</bdi>
          </li>
        ))}
      </ul>
    </>
  );
}

import type { Role } from '../../app/area.ts';
import { useSend } from '../../api/use-api.ts';
import { FormDialog } from '../../components/dialog.tsx';
import { TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { RoleField } from './role-field.tsx';
import type { TeamTexts } from './messages/en.ts';

export function InviteDialog({ own, onClose }: { readonly own: Role; readonly onClose: () => void }) {
  const t = useText<TeamTexts>('team');
  const invite = useSend('post', '/v1/invites', { refreshes: ['/v1/invites'] });
  const submit = (form: FormData): void => {
    const body = { email: String(form.get('email')).trim(), role: form.get('role') as Role };
    invite.mutate(
      { body },
      {
        onSuccess: ({ email }) => {
          toast(t('invited', { email }));
          onClose();
        },
      },
    );
  };
  return (
    <FormDialog
      title={t('invite')}
      action={t('sendInvitation')}
      busy={invite.isPending}
      error={invite.error}
      text={t('inviteText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField name="email" label={t('email')} type="email" autoComplete="off" autoFocus maxLength={254} />
      <RoleField own={own} chosen="developer" />
    </FormDialog>
  );
}

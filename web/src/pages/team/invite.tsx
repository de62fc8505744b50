import type { Role } from '../../app/area.ts';
import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
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
    <Dialog title={t('invite')} onClose={onClose}>
      <p>{t('inviteText')}</p>
      <Form error={invite.error} onSubmit={submit}>
        <TextField name="email" label={t('email')} type="email" autoComplete="off" autoFocus maxLength={254} />
        <RoleField own={own} chosen="developer" />
        <FormButtons>
          <Button type="submit" look="primary" busy={invite.isPending}>
            {t('sendInvitation')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

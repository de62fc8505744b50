import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog, FormDialog } from '../../components/dialog.tsx';
import { FormButtons, TextField } from '../../components/form.tsx';
import { SecretField } from '../../components/secret-field.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

export interface Invite {
  readonly email: string;
  readonly url: string;
  readonly is_mailed: boolean;
}

interface HandoverProps {
  readonly invite: Invite | null;
  readonly secret: string | null;
  readonly onClose: () => void;
}

/** What the operator passes on to a customer; it is shown once. */
export function Handover({ invite, secret, onClose }: HandoverProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  return (
    <Dialog title={t('handover')} onClose={onClose} dismissable={false} wide>
      {invite !== null && (
        <>
          <Note>{t(invite.is_mailed ? 'inviteMailed' : 'inviteToPass', { email: invite.email })}</Note>
          <SecretField value={invite.url} label={t('inviteLink')} copyLabel={t('copyLink')} />
        </>
      )}
      {secret !== null && (
        <>
          <Note tone="warn">{t('keyOnce')}</Note>
          <SecretField value={secret} label={t('key')} copyLabel={t('copyKey')} />
        </>
      )}
      <FormButtons>
        <Button look="primary" onClick={onClose}>
          {t('done')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}

/** Invites an owner into an account that is there already. */
export function InviteOwnerDialog({
  of: { id },
  onClose,
}: {
  readonly of: Pick<Got<'/v1/admin/accounts/{id}'>, 'id'>;
  readonly onClose: () => void;
}) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const invite = useSend('post', '/v1/admin/accounts/{id}/invites', { refreshes: [] });
  const [made, setMade] = useState<Invite>();
  if (made !== undefined) return <Handover invite={made} secret={null} onClose={onClose} />;
  return (
    <FormDialog
      title={t('inviteOwner')}
      action={t('inviteOwner')}
      busy={invite.isPending}
      error={invite.error}
      text={t('inviteOwnerText')}
      onSubmit={(form) =>
        invite.mutate({ params: { path: { id } }, body: { email: String(form.get('email')) } }, { onSuccess: setMade })
      }
      onClose={onClose}
    >
      <TextField name="email" type="email" label={t('email')} autoComplete="off" />
    </FormDialog>
  );
}

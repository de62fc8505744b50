import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

interface ReleaseProps {
  /** Whose second factor; left out: the address is typed. */
  readonly email?: string;
  readonly onClose: () => void;
}

/** Removes the second factor of a person who has lost it. */
export function ReleaseDialog({ email, onClose }: ReleaseProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const release = useSend('post', '/v1/admin/people/release');
  const submit = (form: FormData): void =>
    release.mutate(
      { body: { email: String(form.get('email')) } },
      {
        onSuccess: ({ email: released, passkeys, sessions }) => {
          toast(t('released', { email: released, passkeys, sessions }));
          onClose();
        },
      },
    );
  return (
    <Dialog title={t('release')} onClose={onClose}>
      <p>{t('releaseText')}</p>
      <Form error={release.error} onSubmit={submit}>
        <TextField
          name="email"
          label={t('email')}
          type="email"
          autoComplete="off"
          defaultValue={email}
          readOnly={email !== undefined}
        />
        <FormButtons>
          <Button type="submit" look="danger" busy={release.isPending}>
            {t('releaseAction')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

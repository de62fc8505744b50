import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { accountsRoute } from './area.tsx';
import type { OperatorAccountTexts } from './messages/en.ts';

export function CreateAccountDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const navigate = accountsRoute.useNavigate();
  const create = useSend('post', '/v1/admin/accounts', { refreshes: ['/v1/admin/accounts'] });
  const submit = (form: FormData): void =>
    create.mutate(
      { body: { name: String(form.get('name')) } },
      { onSuccess: ({ id }) => void navigate({ to: `/operator/accounts/${id}` as never, search: {} as never }) },
    );
  return (
    <Dialog title={t('create')} onClose={onClose}>
      <p>{t('createText')}</p>
      <Form error={create.error} onSubmit={submit}>
        <TextField name="name" label={t('name')} maxLength={100} autoComplete="off" />
        <FormButtons>
          <Button type="submit" look="primary" busy={create.isPending}>
            {t('create')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

import { useSend } from '../../api/use-api.ts';
import { FormDialog } from '../../components/dialog.tsx';
import { TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { accountsRoute } from './routes.ts';
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
    <FormDialog
      title={t('create')}
      action={t('create')}
      busy={create.isPending}
      error={create.error}
      text={t('createText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField name="name" label={t('name')} maxLength={100} autoComplete="off" />
    </FormDialog>
  );
}

import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { refreshes } from './account.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

interface SuspendProps {
  readonly of: Account;
  readonly onClose: () => void;
}

/** Suspends an account, or lifts its suspension. */
export function SuspendDialog({ of: { id, name, status }, onClose }: SuspendProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const suspend = useSend('post', '/v1/admin/suspensions', { refreshes });
  const revive = useSend('delete', '/v1/admin/suspensions/{id}', { refreshes });
  const isActive = status === 'active';
  const done = (): void => {
    toast(t(isActive ? 'isSuspended' : 'isRevived', { name }));
    onClose();
  };
  const submit = (form: FormData): void => {
    const reason = String(form.get('reason'));
    if (isActive) suspend.mutate({ body: { account_id: id, reason } }, { onSuccess: done });
    else revive.mutate({ params: { path: { id }, query: { reason } } }, { onSuccess: done });
  };
  return (
    <Dialog title={t(isActive ? 'suspend' : 'revive')} onClose={onClose}>
      <p>{t(isActive ? 'suspendText' : 'reviveText', { name })}</p>
      <Form error={suspend.error ?? revive.error} onSubmit={submit}>
        <TextField name="reason" label={t('reason')} hint={t('suspendHint')} maxLength={1000} autoComplete="off" />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look={isActive ? 'danger' : 'primary'} busy={suspend.isPending || revive.isPending}>
            {t(isActive ? 'suspend' : 'revive')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

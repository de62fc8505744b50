import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Checkbox, Form, FormButtons, TextField } from '../../components/form.tsx';
import { toast } from '../../components/toast.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { refreshes } from './account.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

interface DeleteProps {
  readonly of: Account;
  readonly onClose: () => void;
}

/** The id is typed, since names of two accounts may be the same. */
export function DeleteDialog({ of: account, onClose }: DeleteProps) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const remove = useSend('delete', '/v1/admin/accounts/{id}', { refreshes });
  const [typed, setTyped] = useState('');
  const hasCredit = account.balance_microcents > 0;
  const submit = (form: FormData): void =>
    remove.mutate(
      {
        params: {
          path: { id: account.id },
          query: form.has('forfeit_credit') ? { forfeit_credit: true } : {},
        },
      },
      {
        onSuccess: () => {
          toast(t('isDeleted', { id: account.id }));
          onClose();
        },
      },
    );
  return (
    <Dialog title={t('delete')} onClose={onClose}>
      <p>{t('deleteText', { name: account.name })}</p>
      <Form error={remove.error} onSubmit={submit}>
        {hasCredit && (
          <Checkbox
            name="forfeit_credit"
            required
            label={t('forfeit', { amount: formatMoney(account.balance_microcents) })}
            hint={t('forfeitHint')}
          />
        )}
        <TextField
          name="id"
          label={t('typeId', { id: account.id })}
          value={typed}
          autoComplete="off"
          spellCheck={false}
          onChange={({ target }) => setTyped(target.value)}
        />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="danger" busy={remove.isPending} disabled={typed.trim() !== account.id}>
            {t('delete')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

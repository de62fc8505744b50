import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { FormDialog } from '../../components/dialog.tsx';
import { Checkbox, FieldRow, TextField } from '../../components/form.tsx';
import { centsOf } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { Handover } from './handover.tsx';
import type { Invite } from './handover.tsx';
import { accountsRoute } from './routes.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

interface Made {
  readonly id: Got<'/v1/admin/accounts/{id}'>['id'];
  readonly owner_invite: Invite | null;
  readonly key: string | null;
}

/** A customer is brought in at once: the account, its owner, its first credit and its first key. */
export function CreateAccountDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const navigate = accountsRoute.useNavigate();
  const create = useSend('post', '/v1/admin/accounts', { refreshes: ['/v1/admin/accounts'] });
  const [made, setMade] = useState<Made>();
  const open = (id: string): void => void navigate({ to: `/operator/accounts/${id}` as never, search: {} as never });
  if (made !== undefined)
    return <Handover invite={made.owner_invite} secret={made.key} onClose={() => open(made.id)} />;
  const submit = (form: FormData): void => {
    const text = (name: string): string => String(form.get(name) ?? '').trim();
    const cents = centsOf(text('credit_cents'));
    const body = {
      name: text('name'),
      ...(text('owner_email') === '' ? {} : { owner_email: text('owner_email') }),
      ...(cents === undefined ? {} : { credit_cents: cents }),
      ...(form.get('key') === null ? {} : { key_name: text('name') }),
    };
    create.mutate(
      { body },
      {
        onSuccess: (answer) => {
          if (answer.owner_invite === null && answer.key === null) open(answer.id);
          else setMade(answer);
        },
      },
    );
  };
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
      <FieldRow>
        <TextField name="owner_email" type="email" label={t('ownerEmail')} optional autoComplete="off" />
        <TextField name="credit_cents" label={t('firstCredit')} optional isMoney autoComplete="off" />
      </FieldRow>
      <Checkbox name="key" label={t('firstKey')} />
    </FormDialog>
  );
}

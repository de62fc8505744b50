import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import { FormDialog } from '../../components/dialog.tsx';
import { useText } from '../../i18n/text.ts';
import { KeyFields, settingsIn } from './key-fields.tsx';
import { NewSecretDialog } from './new-secret.tsx';
import type { KeyTexts } from './messages/en.ts';

export function CreateKeyDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<KeyTexts>('keys');
  const create = useSend('post', '/v1/keys', { refreshes: ['/v1/keys'] });
  const [secret, setSecret] = useState<string>();
  const [allowed, setAllowed] = useState<readonly string[] | null>(null);
  if (secret !== undefined) return <NewSecretDialog secret={secret} allowed={allowed} onClose={onClose} />;
  const submit = (form: FormData): void => {
    const body = settingsIn(form, Date.now());
    create.mutate(
      { body },
      {
        onSuccess: ({ key, data }) => {
          setAllowed(data.allowed_models);
          setSecret(key);
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
      onSubmit={submit}
      onClose={onClose}
    >
      <KeyFields />
    </FormDialog>
  );
}

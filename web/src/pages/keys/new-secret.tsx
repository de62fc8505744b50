import { useState } from 'react';

import { Button } from '../../components/button.tsx';
import { useChatModel } from '../../components/chat-models.ts';
import { Dialog } from '../../components/dialog.tsx';
import { FormButtons } from '../../components/form.tsx';
import { SecretField } from '../../components/secret-field.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { Snippets } from '../../components/snippets.tsx';
import type { KeyTexts } from './messages/en.ts';

interface NewSecretProps {
  readonly secret: string;
  /** The models that the key may use; null: all of the account's. */
  readonly allowed: readonly string[] | null;
  readonly onClose: () => void;
}

/** A secret that is shown once: the dialog closes only when it was copied, or when the person says that they have it. */
export function NewSecretDialog({ secret, allowed, onClose }: NewSecretProps) {
  const t = useText<KeyTexts>('keys');
  const model = useChatModel(allowed);
  const [isSafe, setSafe] = useState(false);
  return (
    <Dialog title={t('secretTitle')} onClose={onClose} dismissable={isSafe} wide>
      <Note tone="warn">{t('secretOnce')}</Note>
      <SecretField value={secret} label={t('secret')} copyLabel={t('copyKey')} onCopied={() => setSafe(true)} />
      {model !== undefined && <Snippets secret={secret} model={model} onCopied={() => setSafe(true)} />}
      <FormButtons>
        <Button look={isSafe ? 'primary' : 'plain'} onClick={onClose}>
          {isSafe ? t('done') : t('savedIt')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}

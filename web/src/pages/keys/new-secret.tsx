import { useState } from 'react';

import { Button } from '../../components/button.tsx';
import { CopyButton } from '../../components/copy.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { controlClass, FormButtons } from '../../components/form.tsx';
import { Note } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import { Snippets } from '../../components/snippets.tsx';
import type { KeyTexts } from './messages/en.ts';
import styles from './keys.module.css';

interface NewSecretProps {
  readonly secret: string;
  readonly model: string;
  readonly onClose: () => void;
}

/** A secret that is shown once: the dialog closes only when it was copied, or when the person says that they have it. */
export function NewSecretDialog({ secret, model, onClose }: NewSecretProps) {
  const t = useText<KeyTexts>('keys');
  const [isSafe, setSafe] = useState(false);
  return (
    <Dialog title={t('secretTitle')} onClose={onClose} dismissable={isSafe} wide>
      <Note tone="warn">{t('secretOnce')}</Note>
      <div className={styles['secretField']}>
        <input
          className={controlClass}
          aria-label={t('secret')}
          readOnly
          value={secret}
          data-autofocus=""
          spellCheck={false}
          onFocus={(event) => event.target.select()}
          onCopy={() => setSafe(true)}
        />
        <CopyButton text={secret} label={t('copyKey')} wide look="primary" onCopied={() => setSafe(true)} />
      </div>
      <Snippets secret={secret} model={model} onCopied={() => setSafe(true)} />
      <FormButtons>
        <Button look={isSafe ? 'primary' : 'plain'} onClick={onClose}>
          {isSafe ? t('done') : t('savedIt')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}

import { useEffect, useState } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { sessionKey, sessionKeyCents } from '../../api/session-key.ts';
import { Button } from '../../components/button.tsx';
import { classes } from '../../components/classes.ts';
import { controlClass, Form } from '../../components/form.tsx';
import { KeyIcon } from '../../components/icons.tsx';
import { Panel } from '../../components/page.tsx';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { HeldKey } from './playground.ts';
import styles from './playground.module.css';

interface KeyBarProps {
  readonly held: HeldKey | undefined;
  /** Another key than that of the session is wanted. The page keeps this, because the bar has two places in it. */
  readonly isPasting: boolean;
  readonly onPasting: (isPasting: boolean) => void;
  readonly onChange: (key: HeldKey | undefined) => void;
}

/** The key of the page: that of the session, which is there by itself, or a pasted one. It is nowhere but in the memory of the page. */
export function KeyBar({ held, isPasting, onPasting, onChange }: KeyBarProps) {
  const t = useText<PlaygroundTexts>('playground');
  const { may } = useSession();
  const [error, setError] = useState<unknown>();
  const isMade = held === undefined && !isPasting && error === undefined && may(mayMakeKeys);
  useEffect(() => {
    if (!isMade) return undefined;
    let isGone = false;
    sessionKey().then(
      ({ secret }) => isGone || onChange({ secret, isOfSession: true }),
      (failure: unknown) => isGone || setError(failure),
    );
    return () => {
      isGone = true;
    };
  }, [isMade]);
  if (held === undefined)
    return isMade ? null : (
      <PasteKey
        error={error}
        onPaste={(secret) => {
          onPasting(false);
          onChange({ secret, isOfSession: false });
        }}
      />
    );
  const another = (): void => {
    onPasting(held.isOfSession);
    onChange(undefined);
  };
  return (
    <div className={styles['key']}>
      <KeyIcon />
      <span>
        {held.isOfSession
          ? t('keyOfSession', { amount: formatCents(sessionKeyCents) })
          : t('keyHeld', { end: held.secret.slice(-4) })}
      </span>
      <Button small look="quiet" onClick={another}>
        {held.isOfSession ? t('anotherKey') : t('forget')}
      </Button>
    </div>
  );
}

function PasteKey({ error, onPaste }: { readonly error: unknown; readonly onPaste: (secret: string) => void }) {
  const t = useText<PlaygroundTexts>('playground');
  const paste = (form: FormData): void => {
    const secret = String(form.get('secret')).trim();
    if (secret !== '') onPaste(secret);
  };
  return (
    <Panel>
      <Form error={error} onSubmit={paste}>
        <p>{t('keyText')}</p>
        <div className={styles['paste']}>
          <input
            className={classes(controlClass, styles['secret'])}
            name="secret"
            autoComplete="off"
            spellCheck={false}
            aria-label={t('key')}
            placeholder={t('key')}
          />
          <Button type="submit">{t('send')}</Button>
        </div>
      </Form>
    </Panel>
  );
}

import { Fragment } from 'react';

import { Dialog } from '../components/dialog.tsx';
import { useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';
import styles from './shell.module.css';

const keys: readonly (readonly [string, keyof AppTexts])[] = [
  ['Ctrl K · ⌘K', 'keyPalette'],
  ['/', 'keyFilter'],
  ['j', 'keyNext'],
  ['k', 'keyPrevious'],
  ['Enter', 'keyEnter'],
  ['Esc', 'keyClose'],
  ['?', 'keyHelp'],
];

export function HelpDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<AppTexts>('app');
  return (
    <Dialog title={t('keys')} onClose={onClose}>
      <dl className={styles['shortcuts']}>
        {keys.map(([key, what]) => (
          <Fragment key={key}>
            <dt>
              <kbd className={styles['key']}>{key}</kbd>
            </dt>
            <dd>{t(what)}</dd>
          </Fragment>
        ))}
      </dl>
    </Dialog>
  );
}

import { useRouter } from '@tanstack/react-router';
import { useId, useState } from 'react';
import type { KeyboardEvent } from 'react';

import { useGet } from '../api/use-api.ts';
import type { Session } from '../api/session.ts';
import { Dialog } from '../components/dialog.tsx';
import { controlClass } from '../components/form.tsx';
import { KeyIcon, LogIcon } from '../components/icons.tsx';
import type { Icon } from '../components/icons.tsx';
import { useLanguage, useText } from '../i18n/text.ts';
import type { AppTexts } from './messages/en.ts';
import { entriesFor } from './navigation.ts';
import styles from './shell.module.css';

interface Destination {
  readonly to: string;
  readonly text: string;
  readonly note?: string;
  readonly icon: Icon;
}

const shownMax = 12;

/** Pages, what one does there, keys, and ids: one types or pastes, and Enter goes there. */
export function Palette({ session, onClose }: { readonly session: Session; readonly onClose: () => void }) {
  const t = useText<AppTexts>('app');
  const router = useRouter();
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const id = useId();
  const found = useDestinations(session, typed.trim());
  const go = ({ to }: Destination): void => {
    onClose();
    void router.navigate({ href: to });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setAt(Math.min(found.length - 1, Math.max(0, at + step)));
    } else if (event.key === 'Enter' && found[at] !== undefined) {
      event.preventDefault();
      go(found[at]);
    }
  };
  return (
    <Dialog title={t('palette')} onClose={onClose}>
      <input
        className={controlClass}
        role="combobox"
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={found.length === 0 ? undefined : `${id}-${at}`}
        aria-label={t('palette')}
        placeholder={t('paletteHint')}
        autoComplete="off"
        spellCheck={false}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      {found.length === 0 && <p role="status">{t('noMatch')}</p>}
      <div id={id} role="listbox" aria-label={t('palette')} className={styles['results']}>
        {found.map((one, index) => (
          // The keyboard is at the field, which says which one is meant.
          <div
            key={`${one.to} ${one.text}`}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            className={styles['result']}
            onPointerMove={() => setAt(index)}
            onClick={() => go(one)}
          >
            <one.icon />
            {one.text}
            {one.note !== undefined && <small>{one.note}</small>}
          </div>
        ))}
      </div>
    </Dialog>
  );
}

function useDestinations(session: Session, typed: string): readonly Destination[] {
  const t = useText<AppTexts>('app');
  const language = useLanguage();
  const keys = useGet('/v1/keys', { query: { limit: 100 } }, { enabled: session.account !== undefined });
  if (/^(req_|gen_)?[0-9a-f-]{8,}/i.test(typed) || typed.startsWith('req_'))
    return [
      {
        to: `/requests/${encodeURIComponent(typed)}`,
        text: t('openRequest', { id: typed.slice(0, 40) }),
        icon: LogIcon,
      },
    ];
  const wanted = typed.toLowerCase();
  const matches = (...texts: readonly string[]): boolean => texts.some((text) => text.toLowerCase().includes(wanted));
  const entries = entriesFor(session);
  const actions = entries.flatMap(({ to, label: page, icon, actions: all = [] }) =>
    all
      .filter(
        ({ label, roles }) => wanted !== '' && matches(label[language], label.en) && (!roles || session.may(roles)),
      )
      .map(({ label, to: start = to }) => ({ to: start, text: label[language], note: page[language], icon })),
  );
  const pages = entries
    .filter(({ to, label }) => matches(to, label[language], label.en))
    .map(({ to, label, icon }) => ({ to, text: label[language], icon }));
  const ofKeys = (keys.data?.data ?? [])
    .filter(({ name, label, id }) => typed !== '' && matches(name, label, id))
    .map(({ id, name, label }) => ({ to: `/keys/${id}`, text: name, note: label, icon: KeyIcon }));
  return [...pages, ...actions, ...ofKeys].slice(0, shownMax);
}

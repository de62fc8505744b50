import { useRouter } from '@tanstack/react-router';
import { useId, useState } from 'react';
import type { KeyboardEvent } from 'react';

import { useGet } from '../api/use-api.ts';
import type { Session } from '../api/session.ts';
import { Dialog } from '../components/dialog.tsx';
import { controlClass } from '../components/form.tsx';
import { BookIcon, BuildingIcon, ExternalIcon, KeyIcon, LogIcon, ModelIcon, PersonIcon } from '../components/icons.tsx';
import type { Icon } from '../components/icons.tsx';
import { usePaused } from '../components/use-paused.ts';
import { useLanguage, useText } from '../i18n/text.ts';
import { useAllRows } from './use-all-rows.ts';
import { useDocsFound } from './use-docs-found.ts';
import type { AppTexts } from './messages/en.ts';
import { entriesFor } from './navigation.ts';
import styles from './shell.module.css';

interface Destination {
  readonly to: string;
  /** A page outside of the console. */
  readonly isOutside?: true;
  readonly text: string;
  readonly note?: string;
  readonly icon: Icon;
}

const shownMax = 12;
const accountsMax = 5;
const headingsMax = 5;
/** Characters from which the server searches: accounts, and the documentation. */
const searchedFrom = 2;
/** A key that was pasted by mistake stays out of addresses, which proxies write into their logs. */
const secretLike = /[^\s@]{33}/;

/**
 * Pages, what one does there, keys, models, people, for operators accounts, headings of the documentation, and ids: one types or
 * pastes, and Enter goes there.
 */
export function Palette({ session, onClose }: { readonly session: Session; readonly onClose: () => void }) {
  const t = useText<AppTexts>('app');
  const router = useRouter();
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const id = useId();
  const found = useDestinations(session, typed.trim());
  const counted = usePaused(typed) === typed && typed.trim() !== '';
  const go = ({ to, isOutside }: Destination): void => {
    onClose();
    if (isOutside === true) window.location.assign(to);
    else void router.navigate({ href: to });
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
      {/* Once the typing pauses: nobody listens to a number for each letter. */}
      <p className="visually-hidden" role="status">
        {counted && t('results', { n: found.length })}
      </p>
      <div id={id} role="listbox" aria-label={t('palette')} className={styles['results']}>
        {found.map((one, index) => (
          // The keyboard is at the field, which says which one is meant.
          <div
            key={`${one.to} ${one.text}`}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            ref={index === at ? showWhole : undefined}
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

/** The list is longer than a low window. */
const showWhole = (row: HTMLElement | null): void => row?.scrollIntoView({ block: 'nearest' });

function useDestinations(session: Session, typed: string): readonly Destination[] {
  const t = useText<AppTexts>('app');
  const language = useLanguage();
  const enabled = session.account !== undefined && typed !== '';
  const keys = useAllRows('/v1/keys', enabled);
  const models = useGet('/v1/models/cards', undefined, { enabled });
  const members = useAllRows('/v1/members', enabled);
  const search = usePaused(typed);
  const isAsked = search.length >= searchedFrom && !secretLike.test(search);
  const accounts = useGet(
    '/v1/admin/accounts',
    { query: { search, limit: accountsMax } },
    { enabled: session.isOperator && isAsked },
  );
  const sections = useDocsFound(search, isAsked);
  if (/^(req_|gen_)?[0-9a-f-]{8,}$/i.test(typed) || typed.startsWith('req_'))
    return [
      {
        to: `/requests/${encodeURIComponent(typed)}`,
        text: t('openRequest', { id: typed.slice(0, 40) }),
        icon: LogIcon,
      },
    ];
  if (session.isOperator && /^acct_\w+$/.test(typed))
    return [{ to: `/operator/accounts/${typed}`, text: typed, icon: BuildingIcon }];
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
  const ofKeys = (keys ?? [])
    .filter(({ name, label, id }) => typed !== '' && matches(name, label, id))
    .map(({ id, name, label }) => ({ to: `/keys/${id}`, text: name, note: label, icon: KeyIcon }));
  if (typed === '') return pages.slice(0, shownMax);
  const ofModels = (models.data?.data ?? [])
    .filter(({ model, card: { display_name: name } }) => matches(model, name))
    .map(({ model, card: { display_name: name } }) => ({
      to: `/models/${encodeURIComponent(model)}`,
      text: name,
      ...(name === model ? {} : { note: model }),
      icon: ModelIcon,
    }));
  const ofPeople = (members ?? [])
    .filter(({ name, email }) => matches(name, email))
    .map(({ id, name, email }) => ({
      to: `/team?person=${encodeURIComponent(id)}`,
      text: name,
      note: email,
      icon: PersonIcon,
    }));
  // Never those of an earlier word: Enter would open another customer.
  const ofAccounts = (search === typed ? (accounts.data?.data ?? []) : []).map(({ id, name }) => ({
    to: `/operator/accounts/${id}`,
    text: name === '' ? id : name,
    note: id,
    icon: BuildingIcon,
  }));
  const headings = (search === typed ? sections : [])
    .slice(0, headingsMax)
    .map(({ url, heading, page }): Destination => ({
      to: url,
      isOutside: true,
      text: heading,
      note: page === heading ? t('documentation') : page,
      icon: BookIcon,
    }));
  const searchDocs: Destination = {
    to: `/docs/search?q=${encodeURIComponent(typed)}`,
    isOutside: true,
    text: t('searchDocs', { words: typed.slice(0, 40) }),
    icon: ExternalIcon,
  };
  const found = [...pages, ...actions, ...ofKeys, ...ofModels, ...ofPeople, ...ofAccounts];
  return [...found.slice(0, shownMax - 1 - headings.length), ...headings, searchDocs];
}

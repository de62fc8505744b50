import { Link, Outlet, useRouter, useRouterState } from '@tanstack/react-router';
import { useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useCallback, useEffect, useRef, useState } from 'react';
import type { ReactNode } from 'react';
import { areas } from 'virtual:areas';

import { chooseAccount } from '../api/account-choice.ts';
import { offersStepUp } from '../api/step-up.ts';
import { send, useGet } from '../api/use-api.ts';
import { useSession } from '../api/session.ts';
import type { Session } from '../api/session.ts';
import { Button, IconButton } from '../components/button.tsx';
import { ChevronIcon, MenuIcon, PersonIcon, SearchIcon } from '../components/icons.tsx';
import { Menu, MenuItem, MenuLabel, MenuLine } from '../components/menu.tsx';
import { Note } from '../components/state.tsx';
import { setTimeZone } from '../format/date.ts';
import { formatMoney } from '../format/money.ts';
import { languages } from '../i18n/language.ts';
import type { Language } from '../i18n/language.ts';
import { changeLanguage, useLanguage, useText } from '../i18n/text.ts';
import type { NavigationEntry } from './area.ts';
import { useShortcuts } from './keyboard.ts';
import type { AppTexts } from './messages/en.ts';
import { entriesFor, groups } from './navigation.ts';
import { applyTheme, chosenTheme } from './theme.ts';
import type { Theme } from './theme.ts';
import styles from './shell.module.css';

// No part of the first load. The palette comes right after it: one types as soon as it is opened.
const HelpDialog = lazy(async () => ({ default: (await import('./help.tsx')).HelpDialog }));
const StepUpDialog = lazy(async () => ({ default: (await import('./step-up-dialog.tsx')).StepUpDialog }));
const Viewing = lazy(async () => ({ default: (await import('./viewing.tsx')).Viewing }));
const loadPalette = async () => ({ default: (await import('./palette.tsx')).Palette });
const Palette = lazy(loadPalette);

/** Listens for the API's wish for proof of identity. */
function StepUp({ session }: { readonly session: Session }) {
  const [answer, setAnswer] = useState<(proved: boolean) => void>();
  useEffect(() => offersStepUp((asked) => setAnswer(() => asked)), []);
  if (answer === undefined) return null;
  const end = (proved: boolean): void => {
    setAnswer(undefined);
    answer(proved);
  };
  return (
    <Suspense fallback={null}>
      <StepUpDialog session={session} onEnd={end} />
    </Suspense>
  );
}

/** Whether an area has this page. */
const hasPage = (to: string): boolean =>
  areas.some(({ navigation }) => navigation.some((entry: NavigationEntry) => entry.to === to));

export function Mark() {
  return (
    <svg className={styles['mark']} viewBox="0 0 32 32" width="20" height="20" fill="currentColor" aria-hidden="true">
      <path d="M16 2 3 9v3h26V9zM5 14h4v11H5zm9 0h4v11h-4zm9 0h4v11h-4zM3 27h26v3H3z" />
    </svg>
  );
}

/** Around the pages of people who are signed in. */
export function Shell() {
  const t = useText<AppTexts>('app');
  const session = useSession();
  const [open, setOpen] = useState<'palette' | 'help' | 'drawer'>();
  const openPalette = useCallback(() => setOpen('palette'), []);
  const openHelp = useCallback(() => setOpen('help'), []);
  const close = useCallback(() => setOpen(undefined), []);
  useShortcuts({ openPalette, openHelp });
  useEffect(() => void loadPalette().catch(() => {}), []);
  return (
    <div className={styles['shell']}>
      <a className={styles['skip']} href="#content">
        {t('skip')}
      </a>
      <Link to="/" className={styles['brand']}>
        <Mark />
        Tokenhouse
      </Link>
      <header className={styles['header']}>
        <IconButton
          className={styles['menuButton']!}
          label={t('menu')}
          icon={<MenuIcon />}
          onClick={() => setOpen('drawer')}
        />
        <button type="button" className={styles['search']} onClick={openPalette}>
          <SearchIcon />
          <span>{t('paletteHint')}</span>
          <kbd className={styles['key']} aria-hidden="true">
            {/Mac|iP/.test(navigator.platform) ? '⌘K' : 'Ctrl K'}
          </kbd>
        </button>
        {session.account !== undefined && <Balance />}
        {session.me.accounts.length > 1 && <AccountMenu session={session} />}
        <UserMenu session={session} />
      </header>
      <nav className={styles['nav']} aria-label={t('navigation')}>
        <Navigation session={session} />
      </nav>
      <main id="content" className={styles['main']} tabIndex={-1}>
        {session.me.viewing !== null && (
          <Suspense>
            <Viewing of={session.me.viewing} />
          </Suspense>
        )}
        {session.account?.status === 'suspended' && <div className={styles['suspended']}>{t('suspended')}</div>}
        {session.account === undefined && !session.isOperator && <Note tone="warn">{t('noAccount')}</Note>}
        <Outlet />
      </main>
      <Suspense>
        {open === 'palette' && <Palette session={session} onClose={close} />}
        {open === 'help' && <HelpDialog onClose={close} />}
      </Suspense>
      {open === 'drawer' && <Drawer session={session} onClose={close} />}
      <StepUp session={session} />
    </div>
  );
}

function Navigation({ session }: { readonly session: Session }) {
  const t = useText<AppTexts>('app');
  const language = useLanguage();
  const entries = entriesFor(session);
  return (
    <>
      {groups.map(([group, title]) => {
        const own = entries.filter((entry) => entry.group === group);
        if (own.length === 0) return null;
        return (
          <div key={group} role="group" aria-label={t(title)}>
            <div className={styles['group']} aria-hidden="true">
              {t(title)}
            </div>
            {own.map(({ to, label, icon: Icon }) => (
              <Link
                key={to}
                to={to}
                className={styles['link']}
                activeOptions={{ exact: to === '/', includeSearch: false }}
              >
                <Icon />
                {label[language]}
              </Link>
            ))}
          </div>
        );
      })}
    </>
  );
}

/** The navigation on a phone. */
function Drawer({ session, onClose }: { readonly session: Session; readonly onClose: () => void }) {
  const t = useText<AppTexts>('app');
  const dialog = useRef<HTMLDialogElement>(null);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const opened = useRef(path);
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    if (path !== opened.current) onClose();
  }, [path, onClose]);
  return (
    <dialog
      ref={dialog}
      className={styles['drawer']}
      aria-label={t('navigation')}
      onClose={onClose}
      onClick={(event) => {
        const chosen = event.target as HTMLElement;
        if (chosen === event.currentTarget || chosen.closest('a') !== null) onClose();
      }}
    >
      <nav aria-label={t('navigation')}>
        <Navigation session={session} />
      </nav>
    </dialog>
  );
}

/** What can be spent now, wherever one is. */
function Balance() {
  const t = useText<AppTexts>('app');
  useAccountZone();
  const { data } = useGet('/v1/credits', undefined, { every: 15_000 });
  if (data === undefined) return null;
  const available = formatMoney(data.available_microcents);
  const held = data.held_microcents > 0 ? ` · ${t('held', { amount: formatMoney(data.held_microcents) })}` : '';
  const shown = { className: styles['balance'], title: t('balance', { amount: available }) + held };
  const content = (
    <>
      {available} <small>{t('available')}</small>
    </>
  );
  return hasPage('/billing') ? (
    <Link to="/billing" {...shown}>
      {content}
    </Link>
  ) : (
    <span {...shown}>{content}</span>
  );
}

/** Times everywhere are of the account's zone. */
function useAccountZone(): void {
  const { data } = useGet('/v1/account');
  if (data !== undefined) setTimeZone(data.time_zone);
}

function AccountMenu({ session: { me, account } }: { readonly session: Session }) {
  const t = useText<AppTexts>('app');
  const queries = useQueryClient();
  const router = useRouter();
  const choose = (id: string): void => {
    chooseAccount(id);
    // Nothing of the other account stays, not even for a moment.
    queries.removeQueries({ queryKey: ['api'] });
    void router.navigate({ to: '/' });
    void router.invalidate();
  };
  return (
    <Menu
      trigger={
        <Button look="quiet" className={styles['account']!} aria-label={`${t('accounts')}: ${account?.name ?? ''}`}>
          <span>{account?.name}</span>
          <ChevronIcon />
        </Button>
      }
    >
      <MenuLabel>{t('accounts')}</MenuLabel>
      {me.accounts.map(({ id, name }) => (
        <MenuItem key={id} checked={id === account?.id} onSelect={() => choose(id)}>
          {name}
        </MenuItem>
      ))}
    </Menu>
  );
}

/** Signs out, and forgets everything that was read. */
export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient();
  return async () => {
    await send('post', '/v1/auth/sign-out').catch(() => {});
    queries.clear();
    location.assign('/sign-in');
  };
}

function UserMenu({ session: { me } }: { readonly session: Session }) {
  const t = useText<AppTexts>('app');
  const language = useLanguage();
  const router = useRouter();
  const signOut = useSignOut();
  const [theme, setTheme] = useState(chosenTheme);
  const chooseTheme = (wanted: Theme): void => {
    applyTheme(wanted);
    setTheme(wanted);
  };
  return (
    <Menu trigger={<IconButton label={t('userMenu')} icon={<PersonIcon />} />}>
      <MenuLabel>{t('signedInAs', { email: me.email })}</MenuLabel>
      {hasPage('/settings') && (
        <MenuItem onSelect={() => void router.navigate({ to: '/settings' })}>{t('settings')}</MenuItem>
      )}
      <MenuItem onSelect={() => void window.open('/docs', '_blank', 'noopener')}>{t('documentation')}</MenuItem>
      <MenuLine />
      <MenuLabel>{t('theme')}</MenuLabel>
      {(['system', 'light', 'dark'] as const).map((one) => (
        <MenuItem key={one} checked={one === theme} onSelect={() => chooseTheme(one)}>
          {t(one)}
        </MenuItem>
      ))}
      <MenuLine />
      <MenuLabel>{t('language')}</MenuLabel>
      {Object.entries(languages).map(([one, name]) => (
        <MenuItem key={one} checked={one === language} onSelect={() => void changeLanguage(one as Language)}>
          {name}
        </MenuItem>
      ))}
      <MenuLine />
      <MenuItem onSelect={() => void signOut()}>{t('signOut')}</MenuItem>
    </Menu>
  );
}

/** Around pages for everybody: signing in, mostly. */
export function OpenFrame(): ReactNode {
  const t = useText<AppTexts>('app');
  const language = useLanguage();
  return (
    <div className={styles['open']}>
      <main className={styles['card']}>
        <a href="/" className={styles['cardBrand']}>
          <Mark />
          Tokenhouse
        </a>
        <Outlet />
        <div className={styles['openFoot']}>
          <select
            aria-label={t('language')}
            value={language}
            onChange={(event) => void changeLanguage(event.target.value as Language)}
          >
            {Object.entries(languages).map(([one, name]) => (
              <option key={one} value={one}>
                {name}
              </option>
            ))}
          </select>
        </div>
      </main>
    </div>
  );
}

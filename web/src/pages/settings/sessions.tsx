import { useGet, useSend } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { useSignOut } from '../../app/shell.tsx';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { ErrorNote, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { deviceOf } from './device.ts';
import type { SettingsTexts } from './messages/en.ts';

type Session = Row<'/v1/auth/sessions'>;
const refreshes = ['/v1/auth/sessions'];

/** Where one is signed in. */
export function Sessions() {
  const t = useText<SettingsTexts>('settings');
  const found = useGet('/v1/auth/sessions', undefined, { every: 10_000 });
  const endOthers = useSend('delete', '/v1/auth/sessions', { refreshes });
  const end = useSend('delete', '/v1/auth/sessions/{id}', { refreshes });
  const signOut = useSignOut();
  const error = endOthers.error ?? end.error;
  const hasOthers = (found.data?.data.length ?? 0) > 1;
  const columns: readonly Column<Session>[] = [
    {
      head: t('device'),
      main: true,
      cell: ({ user_agent: agent, is_current: isCurrent }) => (
        <span title={agent ?? undefined}>
          {nameOf(agent, t('unknownDevice'))} {isCurrent && <Badge tone="accent">{t('thisOne')}</Badge>}
        </span>
      ),
    },
    { head: t('address'), cell: ({ address }) => (address === null ? '–' : <code>{address}</code>) },
    { head: t('signedIn'), cell: ({ created_at: at }) => <Time at={at} relative /> },
    { head: t('ends'), cell: ({ expires_at: at }) => <Time at={at} relative /> },
    {
      head: t('actions'),
      bare: true,
      cell: ({ id, is_current: isCurrent, user_agent: agent }) => (
        <Button
          small
          look="quiet"
          busy={end.isPending}
          aria-label={t('signOutOf', { device: nameOf(agent, t('unknownDevice')) })}
          onClick={() => {
            if (isCurrent) void signOut();
            else end.mutate({ params: { path: { id } } }, { onSuccess: () => toast(t('sessionEnded')) });
          }}
        >
          {t('signOut')}
        </Button>
      ),
    },
  ];
  return (
    <Panel
      title={t('sessions')}
      flush
      actions={
        hasOthers && (
          <Button
            small
            busy={endOthers.isPending}
            onClick={() => endOthers.mutate({}, { onSuccess: () => toast(t('othersEnded')) })}
          >
            {t('signOutOthers')}
          </Button>
        )
      }
    >
      {error !== null && <ErrorNote error={error} />}
      <Loaded of={found}>
        {({ data }) => (
          <DataTable
            label={t('sessions')}
            columns={columns}
            list={wholeList(data)}
            keyOf={({ id }) => id}
            empty={null}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function nameOf(agent: string | null, unknown: string): string {
  const { browser, system } = deviceOf(agent);
  return [browser, system].filter((part) => part !== undefined).join(' · ') || unknown;
}

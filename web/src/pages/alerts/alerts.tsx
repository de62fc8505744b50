import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useList, useSend } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button, IconButton } from '../../components/button.tsx';
import { ConfirmDialog } from '../../components/dialog.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { Menu, MenuItem } from '../../components/menu.tsx';
import { Meter } from '../../components/meter.tsx';
import { Panel } from '../../components/page.tsx';
import { EmptyState, ErrorNote } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { formatCents, formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { AlertDialog } from './alert-dialog.tsx';
import { shareOf, watchOf } from './alert.ts';
import type { Alert, NewAlert } from './alert.ts';
import { SubjectName } from './subjects.tsx';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

const refreshes = ['/v1/spend_alerts'];

interface AlertsProps {
  readonly mayChange: boolean;
  readonly isAdding: boolean;
  readonly onAdded: () => void;
}

export function Alerts({ mayChange, isAdding, onAdded }: AlertsProps) {
  const t = useText<AlertTexts>('alerts');
  const list = useList('/v1/spend_alerts', undefined, { every: 5000 });
  // Not in its row: that is gone before the dialog has said so.
  const [open, setOpen] = useState<OpenDialog>();
  const close = (): void => setOpen(undefined);
  const columns: readonly Column<Alert>[] = [
    {
      head: t('alert'),
      main: true,
      cell: (alert) => (
        <>
          <bdi className={styles['name']}>{alert.name}</bdi>
          <div className={styles['quiet']}>
            <Condition of={alert} />
          </div>
        </>
      ),
    },
    {
      head: t('state'),
      cell: (alert) =>
        alert.state === 'fired' ? (
          <>
            <Badge tone="bad">{t('fired')}</Badge> {alert.fired_at !== null && <Time at={alert.fired_at} relative />}
          </>
        ) : (
          <Badge tone="good">{t('ok')}</Badge>
        ),
    },
    { head: t('seen'), cell: (alert) => <Seen of={alert} /> },
    { head: t('notifies'), cell: (alert) => <Recipients of={alert} /> },
    ...(mayChange
      ? [{ head: t('actions'), bare: true, cell: (alert: Alert) => <AlertMenu of={alert} onOpen={setOpen} /> }]
      : []),
  ];
  return (
    <Panel title={t('alerts')} flush>
      <DataTable
        label={t('alerts')}
        columns={columns}
        list={list}
        keyOf={({ id }) => id}
        empty={mayChange ? null : <EmptyState title={t('noAlerts')}>{t('noAlertsText')}</EmptyState>}
      />
      {mayChange && !list.isLoading && <Suggestions beside={list.rows} />}
      {isAdding && <AlertDialog onClose={onAdded} />}
      {open?.what === 'change' && <AlertDialog of={open.alert} onClose={close} />}
      {open?.what === 'delete' && <DeleteDialog of={open.alert} onClose={close} />}
    </Panel>
  );
}

/** In words: when it fires. */
function Condition({ of: alert }: { readonly of: Alert }) {
  const t = useText<AlertTexts>('alerts');
  const { threshold_amount: cents, runway_days: days, interval, subject } = alert;
  const amount = formatCents(cents ?? 0);
  switch (watchOf(alert)) {
    case 'balance':
      return t('whenBelow', { amount });
    case 'runway':
      return t('whenRunway', { n: days ?? 0 });
    case 'spend':
      return (
        <>
          {t(interval === 'day' ? 'whenDay' : interval === 'week' ? 'whenWeek' : 'whenMonth', { amount })}
          {subject.kind !== 'account' && subject.id !== undefined && (
            <>
              {' · '}
              <SubjectName kind={subject.kind as 'key' | 'member' | 'tag'} id={subject.id} />
            </>
          )}
        </>
      );
  }
}

/** What the last look has found; of spending, as a bar. */
function Seen({ of: alert }: { readonly of: Alert }) {
  const t = useText<AlertTexts>('alerts');
  const { observed_microcents: seen, threshold_amount: cents } = alert;
  if (seen === null) return <span className={styles['quiet']}>{t('notLooked')}</span>;
  if (shareOf(alert) === undefined) return <Money microcents={seen} />;
  return (
    <Meter label={t('seen')} value={seen} max={(cents ?? 0) * 1_000_000}>
      {t('spentOf', { spent: formatMoney(seen), limit: formatCents(cents ?? 0) })}
    </Meter>
  );
}

function Recipients({ of: { recipients, webhook } }: { readonly of: Alert }) {
  const t = useText<AlertTexts>('alerts');
  const count = (recipients.members?.length ?? 0) + (recipients.addresses?.length ?? 0);
  const parts = [...(count > 0 ? [t('byMail', { n: count })] : []), ...(webhook ? [t('webhooks')] : [])];
  return parts.length === 0 ? <Badge tone="warn">{t('nobody')}</Badge> : <>{parts.join(', ')}</>;
}

interface OpenDialog {
  readonly what: 'change' | 'delete';
  readonly alert: Alert;
}

function AlertMenu({ of: alert, onOpen }: { readonly of: Alert; readonly onOpen: (dialog: OpenDialog) => void }) {
  const t = useText<AlertTexts>('alerts');
  return (
    <Menu trigger={<IconButton small label={t('actionsFor', { name: alert.name })} icon={<MoreIcon />} />}>
      <MenuItem onSelect={() => onOpen({ what: 'change', alert })}>{t('change')}</MenuItem>
      <MenuItem danger onSelect={() => onOpen({ what: 'delete', alert })}>
        {t('delete')}
      </MenuItem>
    </Menu>
  );
}

function DeleteDialog({ of: alert, onClose }: { readonly of: Alert; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const remove = useSend('delete', '/v1/spend_alerts/{id}', { refreshes });
  const confirm = (): void =>
    remove.mutate(
      { params: { path: { id: alert.id } } },
      {
        onSuccess: () => {
          toast(t('deleted'));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('deleteTitle', { name: alert.name })}
      action={t('delete')}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('deleteAlertText')}
    </ConfirmDialog>
  );
}

/** Two that most want, each one press away: for whoever presses. They go once there are alerts of both kinds, or two. */
function Suggestions({ beside: alerts }: { readonly beside: readonly Alert[] }) {
  const t = useText<AlertTexts>('alerts');
  const { me } = useSession();
  const add = useSend('post', '/v1/spend_alerts', { refreshes });
  const common = { subject: { kind: 'account' as const }, recipients: { members: [me.id] }, webhook: true };
  const suggested: readonly (NewAlert & { readonly name: string; readonly text: string })[] = [
    { ...common, kind: 'balance', name: t('lowName'), runway_days: 3, text: t('whenRunway', { n: 3 }) },
    {
      ...common,
      kind: 'spend',
      name: t('dayName'),
      threshold_amount: dayCents,
      interval: 'day',
      text: t('whenDay', { amount: formatCents(dayCents) }),
    },
  ];
  const missing = suggested.filter(({ kind }) => !alerts.some((alert) => alert.kind === kind));
  if (missing.length === 0 || alerts.length > 1) return null;
  return (
    <div className={styles['suggestions']}>
      <p>{t('suggest', { email: me.email })}</p>
      {add.error !== null && <ErrorNote error={add.error} />}
      <ul>
        {missing.map(({ text, ...alert }) => (
          <li key={alert.name}>
            <div>
              <strong>{alert.name}</strong>
              <div className={styles['quiet']}>{text}</div>
            </div>
            <Button
              small
              busy={add.isPending}
              aria-label={t('addNamed', { name: alert.name })}
              onClick={() => add.mutate({ body: alert }, { onSuccess: () => toast(t('saved')) })}
            >
              {t('addThis')}
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Ten dollars a day. */
const dayCents = 1000;

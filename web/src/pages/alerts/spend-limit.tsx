import { useState } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmDialog, FormDialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { FieldRow, Select, TextField } from '../../components/form.tsx';
import { Meter } from '../../components/meter.tsx';
import { Panel } from '../../components/page.tsx';
import { Loaded } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { exactPattern, formatMoney, microcentsOf, microcentsTyped } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { intervals } from './alert.ts';
import type { Interval } from './alert.ts';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

type Limit = NonNullable<Got<'/v1/account'>['spend_limit']>;
const refreshes = ['/v1/account', '/v1/spend_limit'];

/** What all keys of the account together may spend in a period. */
export function SpendLimit({ mayChange }: { readonly mayChange: boolean }) {
  const t = useText<AlertTexts>('alerts');
  // Its own route answers 404 where there is none.
  const found = useGet('/v1/account', undefined, { every: 5000 });
  const [open, setOpen] = useState<'set' | 'remove'>();
  const limit = found.data?.spend_limit ?? null;
  const close = (): void => setOpen(undefined);
  const actions = mayChange && found.data !== undefined && (
    <>
      {limit !== null && (
        <Button small onClick={() => setOpen('remove')}>
          {t('removeLimit')}
        </Button>
      )}
      <Button small onClick={() => setOpen('set')}>
        {limit === null ? t('setLimit') : t('change')}
      </Button>
    </>
  );
  return (
    <Panel title={t('limit')} actions={actions}>
      <Loaded of={found} lines={2}>
        {() => (limit === null ? <p>{t('noLimit')}</p> : <Shown of={limit} />)}
      </Loaded>
      {open === 'set' && <LimitDialog of={limit} onClose={close} />}
      {open === 'remove' && <RemoveDialog onClose={close} />}
    </Panel>
  );
}

function Shown({ of: limit }: { readonly of: Limit }) {
  const t = useText<AlertTexts>('alerts');
  const used = limit.spent_microcents + limit.held_microcents;
  return (
    <div className={styles['limit']}>
      <Meter label={t('limit')} value={used} max={limit.threshold_microcents}>
        {t(limit.interval === null ? 'usedInAll' : limitTexts[limit.interval], {
          spent: formatMoney(limit.spent_microcents),
          limit: formatMoney(limit.threshold_microcents, { precision: 'exact' }),
        })}
        {limit.held_microcents > 0 && ` · ${t('held', { amount: formatMoney(limit.held_microcents) })}`}
      </Meter>
      <p className={styles['quiet']}>
        {t('limitText')}{' '}
        {limit.resets_at !== null && (
          <>
            {t('renews')} <Time at={limit.resets_at} />
          </>
        )}
      </p>
    </div>
  );
}

const limitTexts = {
  day: 'usedInDay',
  week: 'usedInWeek',
  month: 'usedInMonth',
} as const satisfies Readonly<Record<Interval, keyof AlertTexts>>;

function LimitDialog({ of: limit, onClose }: { readonly of: Limit | null; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const set = useSend('post', '/v1/spend_limit', { refreshes });
  const submit = (form: FormData): void => {
    const interval = intervals.find((one) => one === form.get('interval')) ?? null;
    set.mutate(
      { body: { threshold_microcents: microcentsOf(String(form.get('threshold_microcents'))) ?? 0, interval } },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  };
  return (
    <FormDialog
      title={t('limit')}
      action={t('save')}
      busy={set.isPending}
      error={set.error}
      text={t('limitText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <FieldRow>
        <TextField
          name="threshold_microcents"
          label={t('amount')}
          isMoney
          pattern={exactPattern}
          defaultValue={limit === null ? '' : microcentsTyped(limit.threshold_microcents)}
          autoFocus
        />
        <Select
          name="interval"
          label={t('per')}
          hint={t('utcHint')}
          defaultValue={limit === null ? 'month' : (limit.interval ?? 'total')}
          options={[...intervals, 'total' as const].map((value) => ({ value, text: t(value) }))}
        />
      </FieldRow>
    </FormDialog>
  );
}

function RemoveDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const remove = useSend('delete', '/v1/spend_limit', { refreshes });
  const confirm = (): void =>
    remove.mutate(
      {},
      {
        onSuccess: () => {
          toast(t('limitRemoved'));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('removeLimitTitle')}
      action={t('removeLimit')}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('removeLimitText')}
    </ConfirmDialog>
  );
}

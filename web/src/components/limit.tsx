/** The budget of a key or a member: how much of it is used, and the fields that set it. */
import { useState } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import type { Got } from '../api/use-api.ts';
import { exactPattern, formatMoney, microcentsOf, microcentsTyped } from '../format/money.ts';
import { useText } from '../i18n/text.ts';
import { FieldRow, Select, TextField } from './form.tsx';
import { Meter } from './meter.tsx';

type Limit = Pick<Got<'/v1/keys/{id}'>, 'limit_microcents' | 'limit_remaining_microcents' | 'limit_reset'>;

/** What has been spent in the period of the budget; nothing where there is no budget. */
export function LimitBar({ of }: { readonly of: Limit }) {
  const t = useText<AppTexts>('app');
  const { limit_microcents: limit, limit_remaining_microcents: left } = of;
  if (limit === null) return null;
  const spent = limit - (left ?? 0);
  return (
    <Meter label={t('budget')} value={spent} max={limit}>
      {t('spentOf', { spent: formatMoney(spent), limit: formatMoney(limit, { precision: 'exact' }) })}
    </Meter>
  );
}

export const resets = {
  daily: 'renewsDaily',
  weekly: 'renewsWeekly',
  monthly: 'renewsMonthly',
  total: 'renewsNever',
} as const satisfies Record<string, keyof AppTexts>;
export type Reset = keyof typeof resets;

interface LimitFieldsProps {
  /** Left out: there is none yet. */
  readonly of?: Limit | undefined;
  readonly hint: string;
}

export function LimitFields({ of, hint }: LimitFieldsProps) {
  const t = useText<AppTexts>('app');
  const isSet = typeof of?.limit_microcents === 'number';
  const [amount, setAmount] = useState(isSet ? microcentsTyped(of.limit_microcents!) : '');
  const [reset, setReset] = useState<Reset>(isSet ? (of.limit_reset ?? 'total') : 'monthly');
  // Without a budget nothing renews, and nothing may look as if it did.
  const isEmpty = amount.trim() === '';
  return (
    <FieldRow>
      <TextField
        name="limit_microcents"
        label={t('budget')}
        hint={hint}
        optional
        isMoney
        pattern={exactPattern}
        value={amount}
        onChange={({ target }) => setAmount(target.value)}
      />
      <Select
        name="limit_reset"
        label={t('renews')}
        disabled={isEmpty}
        value={isEmpty ? '' : reset}
        onChange={({ target }) => setReset(target.value as Reset)}
        options={
          isEmpty
            ? [{ value: '', text: '–' }]
            : (Object.keys(resets) as Reset[]).map((value) => ({ value, text: t(resets[value]) }))
        }
      />
    </FieldRow>
  );
}

/** What `LimitFields` has, as the API takes it; null where nothing is filled in. */
export function limitIn(form: FormData): {
  readonly limit_microcents: number | null;
  readonly limit_reset: Exclude<Reset, 'total'> | null;
} {
  const limit = microcentsOf(String(form.get('limit_microcents') ?? '')) ?? null;
  const reset = form.get('limit_reset') as Reset | null;
  return { limit_microcents: limit, limit_reset: limit === null || reset === 'total' ? null : reset };
}

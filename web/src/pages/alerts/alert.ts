import type { Row, SendInput } from '../../api/use-api.ts';
import { centsOf } from '../../format/money.ts';

export type Alert = Row<'/v1/spend_alerts'>;
export type NewAlert = NonNullable<SendInput<'post', '/v1/spend_alerts'>['body']>;

export const intervals = ['day', 'week', 'month'] as const;
export type Interval = (typeof intervals)[number];

/** What is watched: spending in a period, the credit that is left, or how long it lasts. */
export const watches = ['spend', 'balance', 'runway'] as const;
export type Watch = (typeof watches)[number];
export const watchOf = ({ kind, runway_days: days }: Pick<Alert, 'kind' | 'runway_days'>): Watch =>
  kind === 'spend' ? 'spend' : days === null ? 'balance' : 'runway';

export const subjectKinds = ['account', 'key', 'member', 'tag'] as const;
export type SubjectKind = (typeof subjectKinds)[number];

/** What an alert was compared with at the last look, as a share of what makes it fire; undefined: it is no share. */
export function shareOf({ kind, threshold_amount: cents, observed_microcents: seen }: Alert): number | undefined {
  if (kind !== 'spend' || cents === null || seen === null || cents === 0) return undefined;
  return seen / (cents * 1_000_000);
}

/** The fields of the form as the API takes them. It checks them, and says which one is wrong. */
export function alertIn(form: FormData): NewAlert {
  const text = (name: string): string => String(form.get(name) ?? '').trim();
  const watch = watches.find((one) => one === text('watch')) ?? 'spend';
  const subject = subjectKinds.find((one) => one === text('subject')) ?? 'account';
  const isWhole = watch !== 'spend' || subject === 'account';
  return {
    kind: watch === 'spend' ? 'spend' : 'balance',
    name: text('name'),
    threshold_amount: watch === 'runway' ? null : (centsOf(text('threshold_amount')) ?? null),
    runway_days: watch === 'runway' ? Number(text('runway_days')) : null,
    interval: watch === 'spend' ? (intervals.find((one) => one === text('interval')) ?? 'month') : null,
    subject: isWhole ? { kind: 'account' } : { kind: subject, id: text('subject_id') },
    recipients: {
      members: form.getAll('member').map(String),
      addresses: text('addresses')
        .split(/[\s,;]+/)
        .filter((address) => address !== ''),
    },
    webhook: form.get('webhook') !== null,
  };
}

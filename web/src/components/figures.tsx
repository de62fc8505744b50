import { formatDate, formatRelative } from '../format/date.ts';
import { formatMoney } from '../format/money.ts';
import { formatNumber } from '../format/number.ts';
import { useLanguage } from '../i18n/text.ts';
import { useNow } from './use-now.ts';

/** An amount; its tip is the exact one. */
export function Money({ microcents, sign }: { readonly microcents: number | bigint; readonly sign?: boolean }) {
  useLanguage();
  const text = formatMoney(microcents, { sign: sign === true });
  const exact = formatMoney(microcents, { exact: true, sign: sign === true });
  return <span title={exact === text ? undefined : exact}>{text}</span>;
}

export function Count({ value }: { readonly value: number }) {
  useLanguage();
  return <>{formatNumber(value)}</>;
}

/** A moment of unix seconds in the account's zone, or how long ago it is, with the other one as its tip. */
export function Time({
  at,
  relative,
  dateOnly,
  full,
}: {
  readonly at: number;
  readonly relative?: boolean;
  readonly dateOnly?: boolean;
  /** To the second, with the zone. */
  readonly full?: boolean;
}) {
  useLanguage();
  const now = useNow(relative === true ? 30_000 : undefined);
  const style = dateOnly === true ? 'date' : full === true ? 'full' : 'short';
  const text = relative === true ? formatRelative(at, now / 1000) : formatDate(at, style);
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={formatDate(at, 'full')}>
      {text}
    </time>
  );
}

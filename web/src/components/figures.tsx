import { formatDate, formatRelative } from '../format/date.ts';
import { formatMoney } from '../format/money.ts';
import type { Precision } from '../format/money.ts';
import { formatNumber } from '../format/number.ts';
import { useLanguage } from '../i18n/text.ts';
import { useNow } from './use-now.ts';

interface MoneyProps {
  readonly microcents: number | bigint;
  readonly sign?: boolean;
  readonly precision?: Precision;
}

/** An amount; where it is rounded, its tip is the exact one. */
export function Money({ microcents, sign = false, precision = 'cents' }: MoneyProps) {
  useLanguage();
  const text = formatMoney(microcents, { precision, sign });
  const exact = formatMoney(microcents, { precision: 'exact', sign });
  return <span title={precision !== 'cents' || exact === text ? undefined : exact}>{text}</span>;
}

/** What a million tokens cost: all decimals, because prices are often parts of a cent. */
export const Price = ({ microcents }: Pick<MoneyProps, 'microcents'>) => (
  <Money microcents={microcents} precision="exact" />
);

/** What a request cost: as many decimals as every other, because columns of them are compared. */
export const Charge = ({ microcents }: Pick<MoneyProps, 'microcents'>) => (
  <Money microcents={microcents} precision="fixed" />
);

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

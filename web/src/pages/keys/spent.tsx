import { Money } from '../../components/figures.tsx';
import { Meter } from '../../components/meter.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { Key } from './key.ts';
import type { KeyTexts } from './messages/en.ts';

/** What has been spent in the period of the budget; without a budget at all. */
export function SpentBar({ of: key }: { readonly of: Key }) {
  const t = useText<KeyTexts>('keys');
  const { limit_microcents: limit, limit_remaining_microcents: left } = key;
  if (limit === null) return <Money microcents={key.usage} />;
  const spent = limit - (left ?? 0);
  return (
    <Meter label={t('budget')} value={spent} max={limit}>
      {t('spentOf', { spent: formatMoney(spent), limit: formatMoney(limit) })}
    </Meter>
  );
}

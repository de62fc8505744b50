import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorCatalogueTexts } from './messages/en.ts';

/** `2026-12-31`, as the card has it: until the end of that day in UTC. */
export function Retirement({ date }: { readonly date: string | null }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const at = date === null ? Number.NaN : Date.parse(`${date}T00:00:00Z`) / 1000;
  if (Number.isNaN(at)) return <>{date ?? '–'}</>;
  const isPast = at * 1000 < Date.now();
  return (
    <Badge tone={isPast ? 'bad' : 'warn'}>
      {isPast ? t('retired') : t('retires')} <Time at={at} relative />
    </Badge>
  );
}

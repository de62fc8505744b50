import { Badge } from '../../components/badge.tsx';
import { useText } from '../../i18n/text.ts';
import type { Account } from './account.ts';
import type { OperatorAccountTexts } from './messages/en.ts';

export function AccountState({ of: { status } }: { readonly of: Pick<Account, 'status'> }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  if (status === 'active') return <Badge tone="good">{t('active')}</Badge>;
  if (status === 'suspended') return <Badge tone="bad">{t('suspended')}</Badge>;
  return <Badge>{t('deleted')}</Badge>;
}

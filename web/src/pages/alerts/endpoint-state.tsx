import { Badge } from '../../components/badge.tsx';
import { Time } from '../../components/figures.tsx';
import { useText } from '../../i18n/text.ts';
import type { Endpoint } from './events.ts';
import type { AlertTexts } from './messages/en.ts';

export function EndpointState({
  of: { status, disabled_reason: reason, failing_since: since },
}: {
  readonly of: Endpoint;
}) {
  const t = useText<AlertTexts>('alerts');
  if (status === 'disabled')
    return (
      <Badge tone={reason === 'failing' ? 'bad' : 'warn'}>{t(reason === 'failing' ? 'gaveUp' : 'disabled')}</Badge>
    );
  if (since === null) return <Badge tone="good">{t('active')}</Badge>;
  return (
    <>
      <Badge tone="bad">{t('failing')}</Badge> <Time at={since} relative />
    </>
  );
}

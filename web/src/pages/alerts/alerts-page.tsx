import { mayManage, mayPay, useSession } from '../../api/session.ts';
import { LinkButton } from '../../components/button.tsx';
import { Page } from '../../components/page.tsx';
import { useText } from '../../i18n/text.ts';
import { Alerts } from './alerts.tsx';
import { alertsRoute } from './routes.ts';
import { Endpoints } from './endpoints.tsx';
import { SpendLimit } from './spend-limit.tsx';
import type { AlertTexts } from './messages/en.ts';

export default function AlertsPage() {
  const t = useText<AlertTexts>('alerts');
  const { account, may } = useSession();
  const { add } = alertsRoute.useSearch();
  const navigate = alertsRoute.useNavigate();
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('title')}>{null}</Page>;
  const pays = may(mayPay);
  const action = pays && (
    <LinkButton look="primary" to="/alerts" search={{ add: true } as never}>
      {t('addAlert')}
    </LinkButton>
  );
  return (
    <Page title={t('title')} lead={t('lead')} actions={action}>
      <SpendLimit mayChange={pays} />
      <Alerts
        mayChange={pays}
        isAdding={add === true && pays}
        onAdded={() => void navigate({ search: {} as never, replace: true })}
      />
      {may(mayManage) && <Endpoints />}
    </Page>
  );
}

import { mayPay, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { LinkButton } from '../../components/button.tsx';
import { CodeBlock } from '../../components/code.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { Page, Panel, Tiles } from '../../components/page.tsx';
import type { Tile } from '../../components/page.tsx';
import { Loaded, Note } from '../../components/state.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { AddCreditDialog } from './add-credit.tsx';
import { billingRoute } from './routes.ts';
import { AutoTopup } from './auto-topup.tsx';
import { CheckoutReturn } from './checkout-return.tsx';
import { Invoices } from './invoices.tsx';
import { Movements } from './movements.tsx';
import { Payments } from './payments.tsx';
import { Receipts } from './receipts.tsx';
import type { BillingTexts } from './messages/en.ts';

export default function BillingPage() {
  const t = useText<BillingTexts>('billing');
  const { may, account } = useSession();
  const { add, checkout } = billingRoute.useSearch();
  const navigate = billingRoute.useNavigate();
  const server = useGet('/v1/server');
  const pays = may(mayPay);
  const takesPayments = server.data !== undefined && server.data.payments !== null;
  // Without an account there is nothing to show; the shell says so.
  if (account === undefined) return <Page title={t('title')}>{null}</Page>;
  const actions = pays && takesPayments && (
    <LinkButton look="primary" to="/billing" search={{ add: true } as never}>
      {t('add')}
    </LinkButton>
  );
  const close = (): void => void navigate({ search: {} as never, replace: true });
  return (
    <Page title={t('title')} lead={t('lead')} actions={actions}>
      {checkout !== undefined && <CheckoutReturn outcome={checkout} onClose={close} />}
      <Credit />
      {server.data?.payments === null && (
        <Panel title={t('noPayments')}>
          <p>{t('noPaymentsText')}</p>
          <CodeBlock
            label={t('noPayments')}
            code={`npx tokenhouse credits grant --account ${account.id} --dollars 5.00`}
          />
        </Panel>
      )}
      {!pays && <Note>{t('askPayer')}</Note>}
      {takesPayments && <AutoTopup mayChange={pays} />}
      <Lists pays={pays} />
      {add === true && pays && takesPayments && (
        <AddCreditDialog isDemo={server.data.payments === 'demo'} onClose={close} />
      )}
    </Page>
  );
}

function Credit() {
  const credits = useGet('/v1/credits', undefined, { every: 5000 });
  return <Loaded of={credits}>{(found) => <CreditTiles of={found} />}</Loaded>;
}

function CreditTiles({ of }: { readonly of: Got<'/v1/credits'> }) {
  const t = useText<BillingTexts>('billing');
  const limit: readonly Tile[] =
    of.credit_limit_microcents === 0
      ? []
      : [
          {
            name: t('creditLimit'),
            value: <Money microcents={of.credit_limit_microcents} />,
            note: t('creditLimitNote'),
          },
        ];
  return (
    <>
      <Tiles
        tiles={[
          {
            name: t('available'),
            value: <Money microcents={of.available_microcents} />,
            note: t('ofBalance', { amount: formatMoney(of.balance_microcents) }),
          },
          {
            name: t('held'),
            value: <Money microcents={of.held_microcents} />,
            note: t('heldBy', { n: of.held_requests }),
          },
          { name: t('spent'), value: <Money microcents={of.spent_microcents} />, note: t('spentNote') },
          ...limit,
        ]}
      />
      {of.promotions.map(({ expires_at: at, left_microcents: left }) => (
        <Note key={at}>
          {t('promotion', { amount: formatMoney(left) })} <Time at={at} relative />
        </Note>
      ))}
    </>
  );
}

/** Payments first: what one looks for after paying. Documents are for those who may pay. */
function Lists({ pays }: { readonly pays: boolean }) {
  const t = useText<BillingTexts>('billing');
  const { view } = billingRoute.useSearch();
  const navigate = billingRoute.useNavigate();
  const documents = [
    { value: 'invoices', title: t('invoices'), content: <Invoices /> },
    { value: 'receipts', title: t('receipts'), content: <Receipts /> },
  ];
  return (
    <Panel>
      <Tabs
        label={t('lists')}
        value={view ?? 'payments'}
        onChange={(value) =>
          void navigate({ search: { view: value === 'payments' ? undefined : value } as never, replace: true })
        }
        tabs={[
          { value: 'payments', title: t('payments'), content: <Payments pays={pays} /> },
          { value: 'movements', title: t('movements'), content: <Movements /> },
          ...(pays ? documents : []),
        ]}
      />
    </Panel>
  );
}

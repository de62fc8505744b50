import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';

import { getFile, useGet, useSend } from '../../api/use-api.ts';
import { Button, IconButton } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { Menu, MenuItem, MenuLine } from '../../components/menu.tsx';
import { Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { useModelBudgetFacts } from '../../components/model-budgets.tsx';
import { useRateFacts } from '../../components/rates.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { EmptyState, ErrorNote, Note, Skeleton } from '../../components/state.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { formatCents, formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { Account } from './account.ts';
import { AccountState } from './account-state.tsx';
import { accountRoute } from './routes.ts';
import { AliasesDialog } from './aliases.tsx';
import { CreditDialog } from './credit.tsx';
import type { CreditType } from './credit.tsx';
import { DeleteDialog } from './delete-account.tsx';
import { LimitsDialog } from './limits.tsx';
import { Movements } from './movements.tsx';
import { OpenReceiptDialog } from './open-receipt.tsx';
import { InviteOwnerDialog } from './handover.tsx';
import { People } from './people.tsx';
import { SuspendDialog } from './suspend.tsx';
import { Suspensions, useLastSuspension } from './suspensions.tsx';
import type { OperatorAccountTexts } from './messages/en.ts';

export default function AccountPage() {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const { id } = accountRoute.useParams();
  const found = useGet('/v1/admin/accounts/{id}', { path: { id } }, { every: 3000 });
  const crumb = <Link to="/operator/accounts">{t('title')}</Link>;
  if (found.data !== undefined) return <ShownAccount key={id} of={found.data} crumb={crumb} />;
  if (found.error?.status === 404)
    return (
      <Page title={t('gone')} crumb={crumb}>
        <EmptyState title={t('gone')} action={<Link to="/operator/accounts">{t('title')}</Link>}>
          {t('goneText', { id })}
        </EmptyState>
      </Page>
    );
  return (
    <Page title={t('account')} crumb={crumb}>
      {found.error === null ? (
        <Skeleton lines={8} />
      ) : (
        <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
      )}
    </Page>
  );
}

type Opened = 'aliases' | { readonly credit: CreditType } | 'refund' | 'invite' | 'limits' | 'suspend' | 'delete';

function ShownAccount({ of: account, crumb }: { readonly of: Account; readonly crumb: ReactNode }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const [open, setOpen] = useState<Opened>();
  const close = (): void => setOpen(undefined);
  const view = useSend('post', '/v1/admin/accounts/{id}/view');
  const name = account.name === '' ? account.id : account.name;
  const actions = account.status !== 'deleted' && (
    <>
      <Button
        busy={view.isPending}
        onClick={() => view.mutate({ params: { path: { id: account.id } } }, { onSuccess: () => location.assign('/') })}
      >
        {t('viewAsCustomer')}
      </Button>
      <Button onClick={() => setOpen('limits')}>{t('limits')}</Button>
      <Button look="primary" onClick={() => setOpen({ credit: 'grant' })}>
        {t('grant')}
      </Button>
      <Menu trigger={<IconButton label={t('more')} look="plain" icon={<MoreIcon />} />}>
        <MenuItem onSelect={() => setOpen('aliases')}>{t('aliases')}</MenuItem>
        <MenuItem onSelect={() => setOpen('invite')}>{t('inviteOwner')}</MenuItem>
        <MenuItem onSelect={() => setOpen({ credit: 'adjust' })}>{t('moveCredit')}</MenuItem>
        <MenuItem onSelect={() => setOpen('refund')}>{t('refundRequest')}</MenuItem>
        <MenuLine />
        <MenuItem danger={account.status === 'active'} onSelect={() => setOpen('suspend')}>
          {account.status === 'active' ? t('suspend') : t('revive')}
        </MenuItem>
        <MenuItem danger onSelect={() => setOpen('delete')}>
          {t('delete')}
        </MenuItem>
      </Menu>
    </>
  );
  return (
    <Page title={name} crumb={crumb} lead={<Id value={account.id} />} actions={actions}>
      {view.error !== null && <ErrorNote error={view.error} />}
      {account.status === 'suspended' && <WhySuspended of={account} onRevive={() => setOpen('suspend')} />}
      {account.status === 'deleted' && (
        <Note>
          {t('deletedText')} {account.deleted_at !== null && <Time at={account.deleted_at} />}
        </Note>
      )}
      <Tiles
        tiles={[
          {
            name: t('available'),
            value: <Money microcents={account.available_microcents} />,
            note: t('ofBalance', { amount: formatMoney(account.balance_microcents) }),
          },
          {
            name: t('held'),
            value: <Money microcents={account.held_microcents} />,
            note: t('heldBy', { n: account.held_requests }),
          },
          { name: t('spent'), value: <Money microcents={account.spent_microcents} />, note: t('spentNote') },
          {
            name: t('creditLimit'),
            value: formatCents(account.credit_limit_cents),
            note: t('creditLimitNote'),
          },
        ]}
      />
      <AccountFacts of={account} />
      <Lists of={account} />
      {typeof open === 'object' && <CreditDialog of={account} type={open.credit} onClose={close} />}
      {open === 'refund' && <OpenReceiptDialog onClose={close} />}
      {open === 'invite' && <InviteOwnerDialog of={account} onClose={close} />}
      {open === 'limits' && <LimitsDialog of={account} onClose={close} />}
      {open === 'aliases' && <AliasesDialog of={account} onClose={close} />}
      {open === 'suspend' && <SuspendDialog of={account} onClose={close} />}
      {open === 'delete' && <DeleteDialog of={account} onClose={close} />}
    </Page>
  );
}

function WhySuspended({ of: { id }, onRevive }: { readonly of: Account; readonly onRevive: () => void }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const last = useLastSuspension(id);
  return (
    <Note tone="warn">
      {t('suspendedText')} {last !== undefined && <strong>{last}</strong>}{' '}
      <Button small onClick={onRevive}>
        {t('revive')}
      </Button>
    </Note>
  );
}

function AccountFacts({ of: account }: { readonly of: Account }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const rates = useRateFacts(account);
  const modelBudgets = useModelBudgetFacts(account.budgets_by_model);
  const prices = useGet('/v1/admin/account_prices', { query: { account_id: account.id } });
  const { spend_limit: limit, billing } = account;
  return (
    <Panel
      title={t('facts')}
      actions={
        account.status !== 'deleted' && (
          <SaveButton
            small
            name={`${account.id}.json`}
            load={() => getFile('/v1/admin/accounts/{id}/export', { path: { id: account.id } })}
          >
            {t('export')}
          </SaveButton>
        )
      }
    >
      <Facts
        facts={[
          [t('state'), <AccountState of={account} />],
          [t('plan'), account.plan_tier ?? '–'],
          [t('concurrency'), account.max_concurrency ?? t('ofPlan')],
          ...rates,
          ...modelBudgets,
          [
            t('aliases'),
            account.aliases.length === 0
              ? t('none')
              : account.aliases.map(({ name, model }) => `${name} (${model})`).join(', '),
          ],
          [t('models'), account.allowed_models === null ? t('allModels') : account.allowed_models.join(', ')],
          [
            t('spendLimit'),
            limit === null
              ? t('none')
              : t('spendOf', {
                  spent: formatMoney(limit.spent_microcents),
                  limit: formatMoney(limit.threshold_microcents),
                  per: t(limit.interval === null ? 'inAll' : intervals[limit.interval]),
                }),
          ],
          [
            t('prices'),
            <Link to="/operator/catalogue" search={{ account: account.id } as never}>
              {prices.data === undefined || prices.data.data.length === 0
                ? t('listPrices')
                : t('ownPrices', { n: prices.data.data.length })}
            </Link>,
          ],
          [t('country'), [billing.country ?? '–', t(taxes[billing.tax_status])].join(' · ')],
          [t('timeZone'), account.time_zone],
          [t('created'), <Time at={account.created_at} />],
          [
            t('changes'),
            <Link to="/operator/audit" search={{ account: account.id } as never}>
              {t('changesLink')}
            </Link>,
          ],
        ]}
      />
    </Panel>
  );
}

const intervals = { day: 'perDay', week: 'perWeek', month: 'perMonth' } as const;
const taxes = { standard: 'taxStandard', exempt: 'taxExempt', reverse_charge: 'taxReverse' } as const;

function Lists({ of: { id } }: { readonly of: Account }) {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const { view } = accountRoute.useSearch();
  const navigate = accountRoute.useNavigate();
  return (
    <Panel>
      <Tabs
        label={t('lists')}
        value={view ?? 'movements'}
        onChange={(value) =>
          void navigate({ search: { view: value === 'movements' ? undefined : value } as never, replace: true })
        }
        tabs={[
          { value: 'movements', title: t('movements'), content: <Movements account={id} /> },
          { value: 'people', title: t('people'), content: <People account={id} /> },
          { value: 'suspensions', title: t('suspensions'), content: <Suspensions account={id} /> },
        ]}
      />
    </Panel>
  );
}

import { Link } from '@tanstack/react-router';

import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { LinkButton } from '../../components/button.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { Checkbox, Select } from '../../components/form.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { accountsRoute } from './routes.ts';
import { CreateAccountDialog } from './create-account.tsx';
import { ReleaseDialog } from './release.tsx';
import { AccountState } from './account-state.tsx';
import type { OperatorAccountTexts } from './messages/en.ts';
import styles from './operator-accounts.module.css';

type Account = Row<'/v1/admin/accounts'>;

export default function AccountListPage() {
  const t = useText<OperatorAccountTexts>('operator-accounts');
  const { search, status, deleted, open } = accountsRoute.useSearch();
  const navigate = accountsRoute.useNavigate();
  const set = (changes: object): void =>
    void navigate({ search: { search, status, deleted, ...changes } as never, replace: true });
  const query = {
    ...(search === undefined ? {} : { search }),
    ...(status === undefined ? {} : { status }),
    ...(deleted === true ? { include_deleted: true } : {}),
  };
  const list = useList('/v1/admin/accounts', { query }, { every: 10_000 });
  const isNarrow = search !== undefined || status !== undefined;
  const create = (
    <LinkButton look="primary" to="/operator/accounts" search={{ search, status, deleted, open: 'create' } as never}>
      {t('create')}
    </LinkButton>
  );
  const actions = (
    <>
      <LinkButton to="/operator/accounts" search={{ search, status, deleted, open: 'release' } as never}>
        {t('release')}
      </LinkButton>
      {create}
    </>
  );
  const columns: readonly Column<Account>[] = [
    {
      head: t('account'),
      main: true,
      cell: ({ id, name }) => (
        <div className={styles['name']}>
          <Link to={`/operator/accounts/${id}`}>{name === '' ? id : name}</Link>
          <code>{id}</code>
        </div>
      ),
    },
    { head: t('state'), cell: (account) => <AccountState of={account} /> },
    { head: t('available'), number: true, cell: ({ available_microcents: sum }) => <Money microcents={sum} /> },
    { head: t('held'), number: true, cell: ({ held_microcents: sum }) => <Money microcents={sum} /> },
    { head: t('spent'), number: true, cell: ({ spent_microcents: sum }) => <Money microcents={sum} /> },
    { head: t('plan'), cell: ({ plan_tier: plan }) => plan ?? '–' },
    { head: t('created'), cell: ({ created_at: at }) => <Time at={at} dateOnly /> },
  ];
  return (
    <Page title={t('title')} lead={t('lead')} actions={actions}>
      <div className={styles['filters']} data-filter="">
        <SearchField label={t('search')} value={search} onChange={(typed) => set({ search: typed })} />
        <Select
          label={t('state')}
          value={status ?? ''}
          options={[
            { value: '', text: t('all') },
            { value: 'active', text: t('active') },
            { value: 'suspended', text: t('suspended') },
          ]}
          onChange={({ target: { value } }) => set({ status: value === '' ? undefined : value })}
        />
        <Checkbox
          label={t('showDeleted')}
          checked={deleted === true}
          onChange={({ target: { checked } }) => set({ deleted: checked || undefined })}
        />
      </div>
      <Panel flush>
        <DataTable
          label={t('title')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={
            isNarrow ? (
              <EmptyState title={t('noMatch')}>{t('noMatchText')}</EmptyState>
            ) : (
              <EmptyState title={t('empty')} action={create}>
                {t('emptyText')}
              </EmptyState>
            )
          }
        />
      </Panel>
      {open === 'create' && <CreateAccountDialog onClose={() => set({})} />}
      {open === 'release' && <ReleaseDialog onClose={() => set({})} />}
    </Page>
  );
}

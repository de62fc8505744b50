import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { Checkbox } from '../../components/form.tsx';
import { Meter } from '../../components/meter.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { keysRoute } from './area.tsx';
import type { KeyTexts } from './messages/en.ts';

type Key = Row<'/v1/keys'>;

export default function KeyListPage() {
  const t = useText<KeyTexts>('keys');
  const { disabled } = keysRoute.useSearch();
  const navigate = keysRoute.useNavigate();
  const list = useList('/v1/keys', { query: { include_disabled: disabled === true } }, { every: 2000 });
  const columns: readonly Column<Key>[] = [
    {
      head: t('name'),
      main: true,
      cell: (key) => (
        <>
          {key.name} {key.disabled && <Badge tone="warn">{t('paused')}</Badge>}{' '}
          {key.is_management_key && <Badge>{t('management')}</Badge>}
          <div>
            <code>{key.label}</code>
          </div>
        </>
      ),
    },
    {
      head: t('spent'),
      cell: (key) => <Spent of={key} />,
    },
    {
      head: t('models'),
      cell: ({ allowed_models: models }) => (models === null ? t('allModels') : models.join(', ')),
    },
    {
      head: t('lastUsed'),
      cell: ({ last_used_at: at }) => (at === null ? t('never') : <Time at={at} relative />),
    },
    {
      head: t('expires'),
      cell: ({ expires_at: at }) => (at === null ? t('never') : <Time at={at} relative />),
    },
  ];
  return (
    <Page title={t('title')} lead={t('lead')}>
      <Panel
        flush
        actions={
          <div data-filter="">
            <Checkbox
              label={t('showPaused')}
              checked={disabled === true}
              onChange={(event) => void navigate({ search: { disabled: event.target.checked || undefined } as never })}
            />
          </div>
        }
      >
        <DataTable
          label={t('title')}
          columns={columns}
          list={list}
          keyOf={({ id }) => id}
          empty={<EmptyState title={t('empty')}>{t('emptyText')}</EmptyState>}
        />
      </Panel>
    </Page>
  );
}

/** What has been spent in the period of the budget, or at all. */
function Spent({ of: key }: { readonly of: Key }) {
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

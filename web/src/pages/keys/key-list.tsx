import { Link } from '@tanstack/react-router';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { useList } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { LinkButton } from '../../components/button.tsx';
import { Time } from '../../components/figures.tsx';
import { Checkbox } from '../../components/form.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { keysRoute } from './routes.ts';
import { CreateKeyDialog } from './create-key.tsx';
import { SpentBar } from './spent.tsx';
import type { KeyTexts } from './messages/en.ts';

type Key = Row<'/v1/keys'>;

export default function KeyListPage() {
  const t = useText<KeyTexts>('keys');
  const { may } = useSession();
  const { disabled, create: isCreating } = keysRoute.useSearch();
  const navigate = keysRoute.useNavigate();
  const list = useList('/v1/keys', { query: { include_disabled: disabled === true } }, { every: 2000 });
  const create = may(mayMakeKeys) && (
    <LinkButton look="primary" to="/keys" search={{ create: true }}>
      {t('create')}
    </LinkButton>
  );
  const columns: readonly Column<Key>[] = [
    {
      head: t('name'),
      main: true,
      cell: (key) => (
        <>
          <Link to={`/keys/${key.id}`}>{key.name}</Link> {key.disabled && <Badge tone="warn">{t('paused')}</Badge>}{' '}
          {key.is_management_key && <Badge>{t('management')}</Badge>}
          <div>
            <code>{key.label}</code>
          </div>
        </>
      ),
    },
    {
      head: t('spent'),
      cell: (key) => <SpentBar of={key} />,
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
    <Page title={t('title')} lead={t('lead')} actions={create}>
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
          empty={
            <EmptyState title={t('empty')} action={create}>
              {t('emptyText')}
            </EmptyState>
          }
        />
      </Panel>
      {isCreating === true && <CreateKeyDialog onClose={() => void navigate({ search: {} as never })} />}
    </Page>
  );
}

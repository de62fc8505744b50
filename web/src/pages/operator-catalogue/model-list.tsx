import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useGet } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Price } from '../../components/figures.tsx';
import { Page, Panel } from '../../components/page.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { AddModel, LastAddition } from './add-model.tsx';
import { AddServer } from './add-server.tsx';
import { Retirement } from './retirement.tsx';
import { ServedAt } from './served-at.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import styles from './operator-catalogue.module.css';

type Model = Got<'/v1/admin/models'>['data'][number];

export function ModelList() {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [adding, setAdding] = useState<'model' | 'server'>();
  const models = useGet('/v1/admin/models', undefined, { every: 10_000 });
  const backends = useGet('/v1/admin/backends', undefined, { every: 10_000 });
  const columns: readonly Column<Model>[] = [
    {
      head: t('model'),
      main: true,
      cell: ({ id, display_name: name, dedicated_to: accounts }) => (
        <div className={styles['name']}>
          <Link to="/operator/catalogue" search={{ model: id } as never}>
            {name}
          </Link>
          <code>{id}</code>
          {accounts.length > 0 && <span>{t('dedicated', { n: accounts.length })}</span>}
        </div>
      ),
    },
    { head: t('context'), number: true, cell: ({ context_length: tokens }) => formatNumber(tokens) },
    {
      head: t('input'),
      number: true,
      cell: ({ input_microcents_per_million: rate }) => <Price microcents={rate} />,
    },
    {
      head: t('cached'),
      number: true,
      cell: ({ cache_read_microcents_per_million: rate }) => <Price microcents={rate} />,
    },
    {
      head: t('output'),
      number: true,
      cell: ({ output_microcents_per_million: rate }) => <Price microcents={rate} />,
    },
    { head: t('retirement'), cell: ({ deprecation_date: date }) => <Retirement date={date} /> },
    {
      head: t('servedAt'),
      cell: ({ id }) => <ServedAt backends={(backends.data?.data ?? []).filter(({ model }) => model === id)} />,
    },
  ];
  return (
    <Page
      title={t('title')}
      lead={t('lead')}
      actions={
        <>
          <Button onClick={() => setAdding('model')}>{t('addAModel')}</Button>
          <Button look="primary" onClick={() => setAdding('server')}>
            {t('addAServer')}
          </Button>
        </>
      }
    >
      <Panel flush>
        <Loaded of={models} lines={6}>
          {({ data }) => (
            <DataTable
              label={t('models')}
              columns={columns}
              list={wholeList(data)}
              keyOf={({ id }) => id}
              empty={<EmptyState title={t('empty')}>{t('emptyText')}</EmptyState>}
            />
          )}
        </Loaded>
      </Panel>
      <LastAddition />
      {adding === 'server' && <AddServer models={models.data?.data ?? []} onClose={() => setAdding(undefined)} />}
      {adding === 'model' && <AddModel onClose={() => setAdding(undefined)} />}
    </Page>
  );
}

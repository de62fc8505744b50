import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmDialog } from '../../components/dialog.tsx';
import { Price, Time } from '../../components/figures.tsx';
import { Panel } from '../../components/page.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { everyModel } from './price-dialog.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';

type Price = Got<'/v1/admin/account_prices'>['data'][number];

/** What accounts pay instead of the list prices: of one model, or of one account. */
export function Prices(of: { readonly model: string } | { readonly account: string }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [ending, setEnding] = useState<Price>();
  const isOfModel = 'model' in of;
  const query = isOfModel ? { model: of.model } : { account_id: of.account };
  const prices = useGet('/v1/admin/account_prices', { query }, { every: 10_000 });
  const columns: readonly Column<Price>[] = [
    {
      head: isOfModel ? t('account') : t('model'),
      main: true,
      cell: ({ account_id: account, model }) =>
        isOfModel ? (
          <Link to={`/operator/accounts/${account}`}>{account}</Link>
        ) : model === everyModel ? (
          t('allModels')
        ) : (
          <Link to="/operator/catalogue" search={{ model } as never}>
            {model}
          </Link>
        ),
    },
    { head: t('input'), number: true, cell: (price) => priceOrNone(price.input_microcents_per_million) },
    { head: t('cached'), number: true, cell: (price) => priceOrNone(price.cache_read_microcents_per_million) },
    { head: t('output'), number: true, cell: (price) => priceOrNone(price.output_microcents_per_million) },
    { head: t('tiers'), cell: ({ tier_multiples: multiples }) => tiersShown(multiples) },
    { head: t('from'), cell: ({ valid_from: at }) => <Time at={at} /> },
    { head: t('until'), cell: ({ valid_to: at }) => (at === null ? '–' : <Time at={at} />) },
    {
      head: t('end'),
      bare: true,
      cell: (price) => (
        <Button small onClick={() => setEnding(price)}>
          {t('end')}
        </Button>
      ),
    },
  ];
  return (
    <Panel flush title={t('accountPrices')}>
      <Loaded of={prices} lines={2}>
        {({ data }) => (
          <DataTable
            label={t('accountPrices')}
            columns={columns}
            list={wholeList(data)}
            keyOf={(price) => `${price.account_id} ${price.model} ${price.valid_from}`}
            empty={<EmptyState title={t('noPrices')}>{t('noPricesText')}</EmptyState>}
          />
        )}
      </Loaded>
      {ending !== undefined && <EndDialog of={ending} onClose={() => setEnding(undefined)} />}
    </Panel>
  );
}

const priceOrNone = (microcents: number | null) => (microcents === null ? '–' : <Price microcents={microcents} />);

const tiersShown = (multiples: Price['tier_multiples']): string =>
  multiples === null
    ? '–'
    : Object.entries(multiples)
        .map(([tier, multiple]) => `${tier} × ${formatNumber(multiple, { maximumFractionDigits: 4 })}`)
        .join(', ');

function EndDialog({
  of: { account_id: account, model },
  onClose,
}: {
  readonly of: Price;
  readonly onClose: () => void;
}) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const end = useSend('delete', '/v1/admin/account_prices', { refreshes: ['/v1/admin/account_prices'] });
  const confirm = (): void =>
    end.mutate(
      { params: { query: { account_id: account, model } } },
      {
        onSuccess: () => {
          toast(t('ended'));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('endTitle')}
      action={t('end')}
      danger
      busy={end.isPending}
      error={end.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {model === everyModel ? t('endTextAll', { account }) : t('endText', { account, model })}
    </ConfirmDialog>
  );
}

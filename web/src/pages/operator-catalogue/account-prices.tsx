import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useGet } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Page } from '../../components/page.tsx';
import { useText } from '../../i18n/text.ts';
import { PriceDialog } from './price-dialog.tsx';
import { Prices } from './prices.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';

/** What one account pays instead of the list prices. */
export function AccountPrices({ account }: { readonly account: string }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [isSetting, setSetting] = useState(false);
  const found = useGet('/v1/admin/accounts/{id}', { path: { id: account } });
  const models = useGet('/v1/admin/models');
  const known = models.data?.data ?? [];
  const crumb = (
    <>
      <Link to="/operator/catalogue" search={{} as never}>
        {t('title')}
      </Link>
      {' · '}
      <Link to={`/operator/accounts/${account}`}>{found.data?.name ?? account}</Link>
    </>
  );
  const actions = (
    <Button look="primary" disabled={known.length === 0} onClick={() => setSetting(true)}>
      {t('setPrice')}
    </Button>
  );
  return (
    <Page
      title={t('pricesOf', { name: found.data?.name ?? account })}
      crumb={crumb}
      lead={t('pricesLead')}
      actions={actions}
    >
      <Prices account={account} />
      {isSetting && <PriceDialog account={account} models={known} onClose={() => setSetting(false)} />}
    </Page>
  );
}

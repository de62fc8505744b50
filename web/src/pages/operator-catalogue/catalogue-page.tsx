import { catalogueRoute } from './routes.ts';
import { AccountPrices } from './account-prices.tsx';
import { ModelDetail } from './model-detail.tsx';
import { ModelList } from './model-list.tsx';

/** All models; one of them; or what an account pays. */
export default function CataloguePage() {
  const { model, account } = catalogueRoute.useSearch();
  if (account !== undefined) return <AccountPrices key={account} account={account} />;
  if (model !== undefined) return <ModelDetail key={model} id={model} />;
  return <ModelList />;
}

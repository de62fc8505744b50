import { Receipts } from '../../../src/billing/invoices/receipts.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { uuid } from '../../store/fixture.ts';
import { settings } from './invoicing.ts';

/** Issues receipts on a store, for a provider that always answers. `begun` is called as each receipt is begun, which goes on when it resolves. */
export const receiptsOn = (
  store: { readonly repositories: Repositories; now(): number },
  begun: (account: { readonly id: string }) => Promise<void> = () => Promise.resolve(),
): Receipts =>
  new Receipts({
    repositories: store.repositories,
    settings: () => settings,
    timeZoneOf: () => Promise.resolve('UTC'),
    buyerOf: async ({ id, name }) => {
      await begun({ id });
      return { name, address: [], email: null, country: null, taxId: null, taxStatus: 'standard' };
    },
    factsOf: () => Promise.resolve({ method: { type: 'card', brand: 'visa', last4: '4242' }, tax: undefined }),
    issued: () => {},
    newId: uuid,
    now: () => store.now(),
  });

import { Receipts } from '../../src/invoices/receipts.ts';
import type { Desk } from '../../src/store/operations.ts';
import { uuid } from '../store/fixture.ts';
import { settings } from './house.ts';

/** Issues receipts on a store, for a provider that always answers. */
export const receiptsOn = (store: { readonly desk: Desk; now(): number }): Receipts =>
  new Receipts({
    desk: store.desk,
    settings: () => settings,
    timeZoneOf: () => Promise.resolve('UTC'),
    buyerOf: ({ name }) =>
      Promise.resolve({ name, address: [], email: null, country: null, taxId: null, taxStatus: 'standard' }),
    factsOf: () => Promise.resolve({ method: { type: 'card', brand: 'visa', last4: '4242' }, tax: undefined }),
    issued: () => {},
    newId: uuid,
    now: () => store.now(),
  });

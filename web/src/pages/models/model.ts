import type { Row } from '../../api/use-api.ts';

/** A model that the account may use. */
export type Model = Row<'/v1/models/cards'>;
export type Endpoint = Model['endpoints'][number];
export type Feature = Endpoint['features'][number];

/** What a price on a card is in microcents: cards say cents, which have six decimals at most. */
export const microcentsOf = (cents: number): number => Math.round(cents * 1_000_000);

import type { Row } from '../../api/use-api.ts';
import type { Tone } from '../../components/badge.tsx';
import type { BillingTexts } from './messages/en.ts';

export type Topup = Row<'/v1/credits/topups'>;

/** The text and the colour of a state. */
export const states: Readonly<Record<Topup['status'], readonly [keyof BillingTexts, Tone]>> = {
  pending: ['pending', 'plain'],
  paid: ['paid', 'good'],
  failed: ['failed', 'bad'],
  expired: ['expired', 'warn'],
  refunded: ['refunded', 'warn'],
  disputed: ['disputed', 'bad'],
};

export const origins: Readonly<Record<Topup['origin'], keyof BillingTexts>> = {
  checkout: 'byHand',
  auto: 'automatic',
};

/** Whether its payment page still takes money. */
export const isPayable = (topup: Topup): topup is Topup & { readonly checkout_url: string } =>
  topup.status === 'pending' && topup.checkout_url !== null;

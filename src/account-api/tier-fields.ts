/** The service tiers of a key or an account: how the API shows and sets them. */
import Type from 'typebox';

import { tierNames } from '../accounts/key-limits.ts';
import type { KeyLimits } from '../accounts/key-limits.ts';
import { nullable } from './wire.ts';

type Tiers = Pick<KeyLimits, 'tier' | 'tiers'>;

/** Fields that are shown. */
export const tierSchema = {
  service_tier: nullable(
    Type.Enum([...tierNames], {
      description: 'The tier of requests that name none; null: `default`, or for a key that of its account.',
    }),
  ),
  service_tiers: nullable(
    Type.Array(Type.Enum([...tierNames]), {
      maxItems: tierNames.length,
      description: 'The tiers that requests may use besides `default`; null: all that a model sells.',
    }),
  ),
};

/** Fields that can be set. */
export const tierSettings = Type.Partial(Type.Object(tierSchema)).properties;

const nameOf = (tier: string | undefined) => tierNames.find((name) => name === tier);

export const tiersShown = ({ tier, tiers }: Tiers) => ({
  service_tier: nameOf(tier) ?? null,
  service_tiers: tiers?.map(nameOf).filter((name) => name !== undefined) ?? null,
});

/** The change that is asked for, without what is left out. */
export const tiersAskedFor = ({
  service_tier: tier,
  service_tiers: tiers,
}: {
  readonly service_tier?: string | null;
  readonly service_tiers?: readonly string[] | null;
}) => ({ ...(tier === undefined ? {} : { tier }), ...(tiers === undefined ? {} : { tiers }) });

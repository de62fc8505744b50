import { Money } from '../../components/figures.tsx';
import { LimitBar } from '../../components/limit.tsx';
import type { Key } from './key.ts';

/** What has been spent in the period of the budget; without a budget at all. */
export function SpentBar({ of: key }: { readonly of: Key }) {
  return key.limit_microcents === null ? <Money microcents={key.usage} /> : <LimitBar of={key} />;
}

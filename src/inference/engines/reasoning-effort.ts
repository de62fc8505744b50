import type { Effort } from '../../generation/request.ts';

/** Tokens of reasoning after which a capable engine forces its end; `undefined`: unlimited. */
export const reasoningBudgetTokens: Readonly<Record<Effort, number | undefined>> = {
  none: 0,
  low: 512,
  medium: 2_048,
  high: 8_192,
  xhigh: 16_384,
  max: undefined,
};

/** Returns the tier for a backend with three of them: higher ones count as the highest. */
export function plainEffort(effort: Effort): Effort {
  return effort === 'xhigh' || effort === 'max' ? 'high' : effort;
}

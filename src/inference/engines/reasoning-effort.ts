import type { Effort } from '../../generation/request.ts';

/** Tokens of reasoning before its end is said for the model, where an engine can say it; `undefined`: it runs. */
export const reasoningBudgetTokens: Readonly<Record<Effort, number | undefined>> = {
  none: 0,
  low: 512,
  medium: 2_048,
  high: 8_192,
  xhigh: 16_384,
  max: undefined,
};

/** The tier for whoever knows three of them: those above count as the highest. */
export function plainEffort(effort: Effort): Effort {
  return effort === 'xhigh' || effort === 'max' ? 'high' : effort;
}

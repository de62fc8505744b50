/** In the order in which they run: limits of a key count what it did before. */
export const checkNames = [
  'rates',
  'budgets',
  'answers',
  'leaving',
  'doubled',
  'lying',
  'dropping',
  'stalling',
  'restarts',
] as const;

export type CheckName = (typeof checkNames)[number];

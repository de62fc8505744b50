/**
 * Outcomes that can be simulated for a checkout at the built-in provider, or for its payment. In a separate file, so that the CLI loads no
 * more.
 */
export const demoOutcomes = [
  'success',
  'duplicate',
  'delay',
  'failure',
  'expire',
  'refund',
  'refund_failure',
  'dispute',
  'win',
  'lose',
] as const;
export type DemoOutcome = (typeof demoOutcomes)[number];

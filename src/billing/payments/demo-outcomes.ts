/** Outcomes that can be played with a checkout at the built-in provider, or with its payment. Apart, so that the command line loads no more. */
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

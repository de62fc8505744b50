import type { MonthSize } from '../../month/month.ts';

/** CI plays a shorter one; what happens in it is the same (tests/month/timeline.ts). */
export const fullMonth: MonthSize = {
  requests: Number(process.env['TOKENHOUSE_MONTH_REQUESTS'] ?? 200_000),
  asked: 300,
};

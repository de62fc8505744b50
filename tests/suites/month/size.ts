import type { MonthSize } from '../../month/month.ts';

export const fullMonth: MonthSize = { requests: 200_000, asked: 300 };

import type { Ending } from '../store/ledger.ts';

/** Whether a request with this ending is charged for its usage: the table of endings (docs/money.md). */
export const isCharged = (ending: Ending): boolean => charged[ending];

const charged: Readonly<Record<Ending, boolean>> = {
  finished: true,
  credit: true,
  client_left: true,
  reader_stalled: true,
  revoked: true,
  failed: false,
  deadline: false,
  drained: false,
  cancelled: false,
  lost: false,
  crashed: false,
};

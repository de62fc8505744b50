import type { Ending } from '../store/ledger.ts';

/** Whether a request with this ending is charged for its usage: the table of endings (docs/money.md). */
export function isCharged(ending: Ending): boolean {
  switch (ending) {
    case 'finished':
    case 'credit':
    case 'client_left':
    case 'reader_stalled':
    case 'revoked':
      return true;
    case 'failed':
    case 'deadline':
    case 'drained':
    case 'cancelled':
    case 'lost':
    case 'crashed':
      return false;
  }
}

import type { LimitServer } from '../../billing/rate-limits/limit-server.ts';
import type { LimitExchange, LimitName } from '../../store/limit-leases.ts';
import { StoreError } from '../../store/store-error.ts';
import type { WorkerPort } from '../../store/workers/protocol.ts';

/** Lets a worker lease shares of the limits that this process has whole. `holder` names it. */
export function leaseLimits(port: WorkerPort, limitServer: LimitServer, holder: string): void {
  port.handle({
    exchange_limits: (asks: unknown) => limitServer.exchange(holder, exchangesOf(asks)),
    wanted_limits: () => limitServer.wanted(holder),
    held_limits: () => limitServer.sharesOf(holder),
  });
}

const kinds: ReadonlySet<unknown> = new Set<LimitName['kind']>(['running', 'quota', 'requests', 'tokens']);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function exchangesOf(value: unknown): readonly LimitExchange[] {
  if (!Array.isArray(value)) throw unfit();
  for (const ask of value as readonly LimitExchange[]) {
    const counts = [ask.lengthMs, ask.startsAt, ask.limit, ask.back, ask.owed, ask.least, ask.need, ask.want];
    if (typeof ask.subject !== 'string' || !kinds.has(ask.kind) || !counts.every(isCount)) throw unfit();
  }
  return value as readonly LimitExchange[];
}

const unfit = (): StoreError => new StoreError('invalid', 'what a worker asks of limits is of no known form');

/** A month of requests and movements of credit, made of a seed: what happens when, before anything has. */
import type { Prices } from '../../src/catalog/pricing.ts';
import type { Movement } from '../../src/accounts/operations/credit.ts';
import type { Ending } from '../../src/store/ledger.ts';
import { nextBucket, nextDay, startOfZoneMonth } from '../../src/platform/calendar/time-zone.ts';

export const minuteMs = 60_000;
export const hourMs = 60 * minuteMs;
export const dayMs = 24 * hourMs;

/** March of next year: what runs through a service before it runs now, and is on an earlier statement. */
export const year = new Date().getUTCFullYear() + 1;
const march = (day: number, ...time: number[]): number => Date.UTC(year, 2, day, ...time);

/** At half hours, and its clocks change in March. */
export const firstZone = 'America/St_Johns';
/** At :45. */
export const secondZone = 'Asia/Kathmandu';
export const zoneChangeAt = march(17, 14, 23, 45, 678);
/** The month is on one statement: it begins where the first zone has it, and ends where the second does. */
export const statementSpan = {
  from: startOfZoneMonth(firstZone, year, 3),
  to: startOfZoneMonth(secondZone, year, 4),
};
const span = { from: march(-3), to: march(36) };

export const bystanders = ['acct_bystander1', 'acct_bystander2'] as const;
/** Whose they are; null: nobody's. */
export const members = ['ann', 'ann', 'bob', 'cyd', null, null] as const;
/** One after the other, so that what was not used of one is what was charged while it held. */
export const grants = [
  { at: march(4, 3, 29, 59, 999), lastsMs: 2 * dayMs, microcents: 10n ** 11n },
  { at: march(9, 12), lastsMs: 12 * dayMs + 1, microcents: 5_000n },
  { at: march(24, 18, 15), lastsMs: 9 * dayMs, microcents: 10n ** 11n },
] as const;

interface Rates extends Prices {
  readonly from: number;
}

/** Microcents per million tokens, by the start of requests, newest last. Odd, so that every sum is rounded. */
export const rates: Readonly<Record<string, readonly Rates[]>> = {
  glm: [
    { from: 0, input: 4_999_999n, output: 19_999_997n, cacheRead: 1_250_001n },
    { from: march(10, 7, 59, 59, 999), input: 5_000_001n, output: 20_000_003n, cacheRead: 2_500_007n },
    { from: march(23), input: 3_333_333n, output: 17_171_717n, cacheRead: 1n },
  ],
  qwen: [
    { from: 0, input: 1_000_001n, output: 2_000_003n, cacheRead: 500_009n },
    { from: statementSpan.from, input: 1_000_003n, output: 2_000_029n, cacheRead: 250_007n },
  ],
  tiny: [{ from: 0, input: 7n, output: 13n, cacheRead: 3n }],
  free: [{ from: 0, input: 0n, output: 0n, cacheRead: 0n }],
};

/** Ten-thousandths of the price, by the tier that serves. Odd, like the rates. */
export const tierParts = { priority: 17_501n, default: 10_000n, flex: 4_999n, batch: 3_333n } as const;
type Tier = keyof typeof tierParts;
/** Their lines are charged all through the month. */
export const batchIds = ['batch_first', 'batch_second'] as const;

/** A request as it will end. What it costs is for its price to say. */
export interface Planned {
  readonly accountId: string;
  readonly keyIndex: number;
  readonly modelId: string;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly ending: Ending;
  readonly finish: string | null;
  readonly errorCode: string | null;
  readonly tags: string | null;
  readonly plan: string | null;
  /** The backend reports more than was held for it. */
  readonly isBeyondHold: boolean;
  readonly streamed: boolean;
  readonly tier: Tier;
  readonly batchId: string | null;
  /** What is given back of it, in per cent of its cost, and when. */
  readonly refund: { readonly at: number; readonly percent: number } | undefined;
}

export interface PlannedMove {
  readonly at: number;
  readonly movement: Movement;
  readonly microcents: bigint;
  readonly lastsMs?: number;
}

export interface Timeline {
  /** By their end. */
  readonly requests: readonly Planned[];
  /** Movements of the account that the month is about. */
  readonly moves: readonly PlannedMove[];
}

const endings: readonly (readonly [share: number, Ending, finish: string | null, errorCode: string | null])[] = [
  [0.72, 'finished', 'stop', null],
  [0.8, 'finished', 'length', null],
  [0.83, 'finished', 'tool_calls', null],
  [0.88, 'client_left', null, null],
  [0.9, 'reader_stalled', null, null],
  [0.91, 'revoked', null, 'invalid_api_key'],
  [0.93, 'credit', 'length', null],
  [0.96, 'failed', null, 'backend_http_error'],
  [0.97, 'deadline', null, 'backend_timeout'],
  [0.98, 'drained', null, 'no_healthy_backends'],
  [0.99, 'lost', null, 'internal_error'],
  [1, 'crashed', null, null],
];
const labels = [[], [], [], ['red'], ['blue'], ['red', 'blue'], ['red-ish']] as const;
const zones = ['UTC', 'Europe/Berlin', 'Australia/Lord_Howe', firstZone, secondZone];
/** Refunds end before the last month that is closed does. */
export const lastRefundAt = Date.UTC(year, 4, 20);

/** So many requests of the account in the month, and those around it and of the bystanders. */
export function timelineOf(random: () => number, accountId: string, count: number): Timeline {
  const pick = <Value>(list: readonly Value[]): Value => list[Math.floor(random() * list.length)]!;
  const days = startsOfDays();
  const momentOf = (): number => {
    const kind = random();
    if (kind < 0.06) return pick(days) - (random() < 0.5 ? 1 : 0);
    const at = span.from + Math.floor(random() * (span.to - span.from));
    if (kind > 0.1) return at;
    const hour = nextBucket(pick(zones), '1h', at);
    return hour - (random() < 0.5 ? 1 : 0);
  };
  const request = (owner: string): Planned => {
    const endedAt = momentOf();
    const [, ending, finish, errorCode] = pickShare(random());
    const promptTokens = random() < 0.01 ? 0 : Math.floor(random() ** 3 * 20_000);
    const tags = pick(labels);
    const tier = pick<Tier>(['default', 'default', 'default', 'priority', 'flex', 'batch']);
    return {
      accountId: owner,
      keyIndex: Math.floor(random() * members.length),
      modelId: pick(['glm', 'glm', 'glm', 'qwen', 'qwen', 'tiny', 'free']),
      startedAt: endedAt - Math.floor(random() * (random() < 0.02 ? hourMs : minuteMs)),
      endedAt,
      promptTokens,
      cachedTokens: Math.floor(random() * promptTokens),
      completionTokens: random() < 0.02 ? 0 : Math.floor(random() * 2_000),
      ending,
      finish,
      errorCode,
      tags: tags.length === 0 ? null : JSON.stringify(tags),
      plan: random() < 0.02 ? 'included' : null,
      isBeyondHold: random() < 0.01,
      streamed: random() < 0.5,
      tier,
      batchId: tier === 'batch' ? pick(batchIds) : null,
      refund:
        random() < 0.012
          ? {
              at: Math.min(endedAt + Math.floor(random() ** 2 * 45 * dayMs), lastRefundAt),
              percent: pick([100, 100, 50, 33]),
            }
          : undefined,
    };
  };
  const requests: Planned[] = [];
  for (let inMonth = 0; inMonth < count;) {
    const one = request(accountId);
    if (statementSpan.from <= one.endedAt && one.endedAt < statementSpan.to) inMonth++;
    requests.push(one);
    if (requests.length % 40 === 0) for (const other of bystanders) requests.push(request(other));
  }
  requests.sort((a, b) => a.endedAt - b.endedAt);
  const { from, to } = statementSpan;
  const moves: readonly PlannedMove[] = [
    { at: span.from - dayMs, movement: 'topup', microcents: 10n ** 12n },
    { at: from - 1, movement: 'topup', microcents: 1_000_000_001n },
    { at: from, movement: 'topup', microcents: 2_000_000_003n },
    { at: to - 1, movement: 'topup', microcents: 3_000_000_007n },
    { at: to, movement: 'topup', microcents: 4_000_000_009n },
    { at: march(6), movement: 'adjust_up', microcents: 77_777n },
    { at: zoneChangeAt, movement: 'adjust_down', microcents: 88_888n },
    { at: march(20, 1), movement: 'payback', microcents: 1_234_567n },
    { at: march(21, 1), movement: 'chargeback', microcents: 7_654_321n },
    { at: march(33), movement: 'adjust_down', microcents: 1n },
    ...grants.map(({ at, lastsMs, microcents }) => ({ at, movement: 'grant' as const, microcents, lastsMs })),
  ];
  return { requests, moves };
}

const pickShare = (random: number) => endings.find(([share]) => random < share)!;

/** Where days begin in any of the zones, and where the statement does. */
function startsOfDays(): readonly number[] {
  const days = [statementSpan.from, statementSpan.to, zoneChangeAt];
  for (const zone of zones) for (let at = nextDay(zone, span.from); at < span.to; at = nextDay(zone, at)) days.push(at);
  return days;
}

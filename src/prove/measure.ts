import { setTimeout as delay } from 'node:timers/promises';

import type { Adapter, Administration } from './adapters.ts';
import type { Answer, Gateway } from './ask.ts';
import type { ScriptedUpstream } from './scripted-upstream.ts';
import { compare, isWithin, type Prices, type Range } from './truth.ts';

/** All that a check works with. */
export interface Scene {
  readonly gateway: Gateway;
  /** Both pay for themselves; the second one is given a rate and a budget, where the gateway has them. */
  readonly keys: readonly [string, string];
  readonly upstream: ScriptedUpstream;
  readonly prices: Prices;
  readonly adapter: Adapter;
  readonly admin: Administration;
  /** How long a charge may take until it can be read. */
  readonly settleMs: number;
  /** The limit of requests a minute that is tried. */
  readonly requestsPerMinute: number;
  /** The budget that is tried, in microcents. */
  readonly budget: bigint;
  /** Kills the gateway and starts it again; undefined: it stays as it is. */
  readonly restart: (() => Promise<void>) | undefined;
  /** Text that clients got and that was not theirs. */
  readonly foreign: string[];
}

export type Verdict = 'right' | 'wrong' | 'not offered' | 'not run';

/** What a check found. Amounts are microcents. */
export interface Row {
  readonly check: string;
  readonly what: string;
  readonly verdict: Verdict;
  /** null: the gateway does not say. */
  readonly charged: bigint | null;
  readonly range: Range | null;
  readonly lost: bigint;
  readonly madeUp: bigint;
  readonly faults: readonly string[];
  readonly notes: readonly string[];
}

/** What happened at the upstream and the clients while charges were watched. */
export interface Happened {
  readonly range: Range;
  /** Requests that may have been charged: each may be rounded. */
  readonly requests: number;
  readonly faults?: readonly string[];
  readonly notes?: readonly string[];
  /** What was tried does not exist there, and what happened instead was charged as it was. */
  readonly isNotOffered?: boolean;
}

const pollMs = 400;

/** Runs something, and compares what the key was charged for it with what is right. */
export async function measure(
  scene: Scene,
  { check, what, key }: { readonly check: string; readonly what: string; readonly key: string },
  run: () => Promise<Happened>,
): Promise<Row> {
  const { adapter, admin } = scene;
  const spent = async (): Promise<bigint | null> => (adapter.spent === undefined ? null : adapter.spent(admin, key));
  const before = await spent();
  const happened = await run();
  const { range, faults = [], notes = [] } = happened;
  const charged = before === null ? null : await settled(scene, before, happened, spent);
  const isTolerated = charged === null || isWithin(charged, tolerant(scene, happened));
  const { lost, madeUp } = isTolerated ? none : compare(charged, range);
  const isWrong = faults.length > 0 || lost > 0n || madeUp > 0n;
  const verdict = isWrong ? 'wrong' : happened.isNotOffered === true ? 'not offered' : 'right';
  return { check, what, verdict, charged, range, lost, madeUp, faults, notes };
}

const none = { lost: 0n, madeUp: 0n };

/** Each charge may be rounded to the smallest amount of the gateway's ledger, unless it is a multiple of it already. */
function tolerant({ adapter }: Scene, { range, requests }: Happened): Range {
  const { unitMicrocents: unit } = adapter;
  // What is true is itself rounded to a microcent.
  const isRound = unit > 1n && range.least % unit === 0n && range.most % unit === 0n;
  const rounding = isRound ? 0n : unit * BigInt(requests);
  return { least: range.least - rounding, most: range.most + rounding };
}

/**
 * What has been charged since: when it is right and stays so for a moment, else after the time that the gateway takes. Where more than
 * one amount is right, all of that time passes, because a part of the charge is right too, and the rest would be the next row's.
 */
async function settled(
  scene: Scene,
  before: bigint,
  happened: Happened,
  spent: () => Promise<bigint | null>,
): Promise<bigint> {
  const range = tolerant(scene, happened);
  const isExact = happened.range.least === happened.range.most;
  const deadline = performance.now() + scene.settleMs;
  for (let last: bigint | undefined; ;) {
    const charged = ((await spent()) ?? 0n) - before;
    if (isExact && charged === last && isWithin(charged, range)) return charged;
    if (performance.now() > deadline) return charged;
    last = charged;
    await delay(pollMs);
  }
}

export const notRun = (check: string, what: string, verdict: 'not offered' | 'not run', why: string): Row => ({
  ...{ check, what, verdict, charged: null, range: null, lost: 0n, madeUp: 0n, faults: [], notes: [why] },
});

/** Remembers what came to a client and was not for it. */
export function noteForeign(scene: Scene, answers: readonly Answer[]): void {
  for (const { foreign, status } of answers) if (status === 200 && foreign !== '') scene.foreign.push(foreign);
}

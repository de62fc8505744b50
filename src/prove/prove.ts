import { setTimeout as delay } from 'node:timers/promises';

import { dollars } from '../platform/dollars.ts';
import { ask } from './ask.ts';
import type { Check } from './checks.ts';
import { measure, type Row, type Scene } from './measure.ts';
import { cost, exactly, sum, type Range } from './truth.ts';

export interface Proof {
  readonly rows: readonly Row[];
  /** Microcents that the gateway did not charge and that it charged for nothing, over all rows. */
  readonly lost: bigint;
  readonly madeUp: bigint;
  readonly isRight: boolean;
}

/** Runs the checks one after the other; `onRow` sees each row when it is there. */
export async function prove(scene: Scene, chosen: readonly Check[], onRow: (row: Row) => void): Promise<Proof> {
  const rows: Row[] = [];
  const add = (row: Row): void => {
    rows.push(row);
    onRow(row);
  };
  const spent = async (): Promise<bigint | null> => {
    const { adapter, admin, keys } = scene;
    if (adapter.spent === undefined) return null;
    const [first, second] = [await adapter.spent(admin, keys[0]), await adapter.spent(admin, keys[1])];
    return first + second;
  };
  const before = await spent();
  add(await reach(scene));
  for (const check of chosen) for (const row of await check(scene)) add(row);
  add(await together(scene, rows, before, spent));
  add(bytesRow(scene));
  return {
    rows,
    lost: rows.reduce((all, { lost }) => all + lost, 0n),
    madeUp: rows.reduce((all, { madeUp }) => all + madeUp, 0n),
    isRight: rows.every(({ verdict }) => verdict !== 'wrong'),
  };
}

/** What both keys were charged from the beginning to the end: a charge that came after its row is seen here. */
async function together(
  { adapter, settleMs }: Scene,
  rows: readonly Row[],
  before: bigint | null,
  spent: () => Promise<bigint | null>,
): Promise<Row> {
  const range: Range = sum(rows.flatMap((row) => (row.range === null ? [] : [row.range])));
  const row = {
    check: 'all',
    what: 'both keys, from the first request to the last',
    range,
    lost: 0n,
    madeUp: 0n,
    notes: [],
  };
  if (before === null || adapter.spent === undefined) return { ...row, verdict: 'right', charged: null, faults: [] };
  await delay(Math.min(settleMs, latestMs));
  const charged = ((await spent()) ?? 0n) - before;
  const late = charged - rows.reduce((all, each) => all + (each.charged ?? 0n), 0n);
  if (late === 0n) return { ...row, verdict: 'right', charged, faults: [] };
  return { ...row, verdict: 'wrong', charged, faults: [`${dollars(late)} were charged after their row had ended`] };
}

const latestMs = 10_000;

function bytesRow({ foreign }: Scene): Row {
  return {
    ...{ check: 'bytes', what: 'text of one answer in another', charged: null, range: null, lost: 0n, madeUp: 0n },
    verdict: foreign.length === 0 ? 'right' : 'wrong',
    faults: foreign.length === 0 ? [] : [`${foreign.length} answers had other text: ${foreign[0]}`],
    notes: [],
  };
}

/** The gateway does not answer, or asks another upstream. */
export class NotReached extends Error {}

const reachMs = 30_000;

/**
 * One small answer, and its charge: without them nothing else can be proved. A gateway may not have noticed yet that its upstream is
 * there now.
 */
async function reach(scene: Scene): Promise<Row> {
  return await measure(scene, { check: 'reach', what: 'one answer', key: scene.keys[0] }, async () => {
    const truth = scene.upstream.plan({ completionTokens: 2 });
    for (const deadline = performance.now() + reachMs; ; await delay(500)) {
      const { isWhole, status } = await ask(scene.gateway, scene.keys[0], truth, { stream: false, timeoutMs: 20_000 });
      const each = cost(scene.prices, truth.plan.promptTokens, 2);
      if (isWhole) return { range: exactly(each * BigInt(truth.finished)), requests: truth.asked };
      if (performance.now() < deadline) continue;
      if (status === 0) throw new NotReached('nothing answers there');
      const upstream = truth.asked === 0 ? 'did not ask the upstream of this command' : 'asked the upstream';
      throw new NotReached(`it answers with status ${status}, and ${upstream}`);
    }
  });
}

import { setTimeout as sleep } from 'node:timers/promises';

import { OperationError } from '../accounts/operation.ts';
import { UsageRemoval } from '../app/usage-removal.ts';
import type { RetentionPlan } from '../store/retention/retention.ts';
import { change } from './change.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';

export interface PruneOptions {
  /** Days. */
  readonly keep?: number;
  /** As typed. */
  readonly before?: string;
  readonly yes?: boolean;
}

const dayMs = 86_400_000;

const why: Readonly<Record<NonNullable<RetentionPlan['limitedBy']>, string>> = {
  recent: 'the last 31 days are always kept',
  statements:
    'a statement of an account from then on has not been issued yet; a running service issues them, month by month',
  'roll-ups': 'the sums of later hours are not complete yet; a running service completes them',
};

/** Shows what would be removed, and removes it with `--yes`: details of requests from before a time, but not their sums. */
export async function pruneDatabase(context: Context, options: PruneOptions): Promise<number> {
  const { print } = context;
  const plan = await reading(context, async ({ repositories, now }) => {
    const at = now;
    const before = beforeOf(options, at);
    return {
      before,
      ...(await repositories.planRetention({ before, now: at })),
      current: await repositories.retentionOf({}),
    };
  });
  const { keptSince, limitedBy, rows, staying, rowBytes, current } = plan;
  const leaving = Math.max(0, rows - staying);
  const fields = {
    before: dateOf(keptSince),
    limited_by: limitedBy ?? null,
    rows: leaving,
    rows_staying: staying,
    bytes: leaving * rowBytes,
    details_since: current.keptSince === 0 ? null : dateOf(current.keptSince),
  };
  const lines = [
    ...(limitedBy === undefined
      ? []
      : [`Not as late as ${dateOf(plan.before)}, which was asked for: ${why[limitedBy]}.`]),
    `${leaving} requests that ended before ${dateOf(keptSince)} would lose their details: about ${leaving * rowBytes} bytes, and their entries in indexes.`,
    ...(staying === 0
      ? []
      : [
          `${staying} older ones stay: money of their account was moved in the same hour. So do those of refunded requests.`,
        ]),
    'Balances, statements, budgets and sums of usage by hour and day stay as they are, by model, key, person and label.',
  ];
  const isNew = keptSince > current.keptSince;
  if (options.yes !== true) {
    print.result({ ...fields, removed: null, done: false }, [
      ...lines,
      isNew || current.removedAt === null
        ? 'Nothing was changed. Make a backup, then: the same with --yes. It cannot be undone.'
        : 'Nothing is to be done.',
    ]);
    return 0;
  }
  let removed = 0;
  let isHere = false;
  const answer = await change(context, { kind: 'prune_usage', before: keptSince }, async (store) => {
    isHere = true;
    const removal = new UsageRemoval(store);
    for (;;) {
      const run = await removal.run(reportEveryMs);
      removed += run.removed;
      if (run.state === 'done') return;
      print.say(`${removed} removed so far; it can be interrupted, and goes on with the next run or start`);
      // Another process is removing, and will do the rest.
      if (run.state === 'elsewhere') await sleep(reportEveryMs);
    }
  });
  const since = dateOf(answer.keptSince);
  print.result(
    { ...fields, details_since: since, removed: isHere ? removed : null, done: isHere || answer.isRemoved },
    [
      isHere
        ? `${removed} requests from before ${since} have lost their details. The space of the rows is free, or used again.`
        : `Details of requests are kept since ${since}. The running service removes older rows in the background: see tokenhouse db status`,
    ],
  );
  return 0;
}

const reportEveryMs = 5_000;

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

function beforeOf({ keep, before }: PruneOptions, now: number): number {
  if ((keep === undefined) === (before === undefined))
    throw new OperationError('Say how long details are kept: --keep <days>, or --before <date>, such as 2026-08-01.');
  if (keep !== undefined) return now - keep * dayMs;
  const at = Date.parse(`${before}T00:00:00Z`);
  if (!/^\d{4}-\d\d-\d\d$/.test(before!) || Number.isNaN(at) || dateOf(at) !== before)
    throw new OperationError(`${before} is no date: write it as 2026-08-01.`);
  return at;
}

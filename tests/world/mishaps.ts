/** What befalls the process, its disk and its clock in the faulty part of a schedule. */
import { written, type Mishap } from './disk.ts';
import { lengthMs, themes, type Story } from './story.ts';

const errors: readonly Mishap[] = ['busy', 'full', 'broken'];

export function mishapsOf(story: Story): Promise<void>[] {
  const { scheduler, host, disk } = story;
  // Those of days come when days pass.
  const often = story.theme === undefined ? scheduler.pick([0, 1, 1, 2, 3]) : story.theme === 'days' ? 0 : 3;
  return Array.from({ length: often }, async () => {
    await scheduler.sleep(lengthMs * scheduler.random());
    const kind = scheduler.pick([
      'kill',
      'near',
      'near',
      'near',
      'statement',
      'errors',
      'slow',
      'clock',
      'day',
    ] as const);
    if (story.theme === 'clocks') {
      // What a process wrote by its clock, the next one reads by another.
      if (scheduler.chance(0.3)) host.kill();
      scheduler.setClock(scheduler.pick([-3_600_000, -3_600_000, -60_000, 20_000, 3_600_000]));
      scheduler.note(`the clock is ${scheduler.aheadMs} ahead`);
      return;
    }
    // Charges that fail for a while: what ends an account has to wait for them.
    if (story.theme === 'accounts' && scheduler.chance(0.6)) {
      disk.plan(scheduler.pick(errors), { near: 'usage', until: 0, times: scheduler.pick([3, 12]) });
      return;
    }
    if (story.theme !== undefined) {
      dieNear(story, themes[story.theme]);
      return;
    }
    scheduler.note(`mishap: ${kind}`);
    switch (kind) {
      case 'kill':
        host.kill();
        return;
      case 'near':
        dieNear(story);
        return;
      case 'statement':
        disk.plan(scheduler.pick(['dies-before', 'dies-after']), { until: scheduler.between(0, 40) });
        return;
      case 'errors': {
        const times = scheduler.pick([1, 1, 3, 12]);
        disk.plan(scheduler.pick(errors), { until: scheduler.between(0, 30), times });
        return;
      }
      case 'slow':
        disk.mishaps++;
        disk.slowMs = scheduler.pick([50, 500, 3_000, 6_000]);
        await scheduler.sleep(2_000);
        disk.slowMs = 0;
        return;
      case 'clock':
        scheduler.setClock(scheduler.between(-8_000, 20_000));
        scheduler.note(`it is ${new Date(scheduler.wallMs).toISOString()}`);
        return;
      case 'day':
        scheduler.setClock(scheduler.pick([-3_600_000, 3_600_000, 86_400_000]));
        return;
    }
  });
}

/**
 * What two threads write one after the other is rarely interrupted between them by chance: the process dies a few statements after one
 * that writes to a table, and rare tables are as likely as busy ones.
 */
export function dieNear(
  { scheduler, disk }: Pick<Story, 'scheduler' | 'disk'>,
  tables: readonly string[] = written,
): void {
  const near = scheduler.pick(tables);
  const mishap = scheduler.pick(['dies-before', 'dies-after'] as const);
  const after = scheduler.pick([0, 0, 1, 3]);
  scheduler.note(`will die near ${near}`);
  // What one process did not finish, the next one finds, and may die of too.
  disk.plan(mishap, { near, after, until: scheduler.pick([0, 1, 2, 3, 4, 6]), again: scheduler.pick([0, 0, 1, 2]) });
}

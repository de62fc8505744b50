/** Days pass after a schedule: they are signed, customers get proofs of their requests, and details that are too old are removed. */
import { checkProof, publishedIn } from '../../src/store/proofs/check-proof.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { ask } from './clients.ts';
import { differencesOf } from './invariants.ts';
import { dieNear } from './mishaps.ts';
import { getAs } from './readers.ts';
import { sendAny } from './requests.ts';
import { themes, type Story } from './story.ts';

const dayMs = 86_400_000;
/** Jobs run once in a minute, after a start too. */
const jobsMs = 130_000;
const statementsMs = 700_000;
const tables = [...themes.days, 'signing_key', 'usage', 'pruned_usage'] as const;

export async function daysPass(story: Story): Promise<void> {
  const { scheduler, host, faults } = story;
  const lives = (): readonly string[] =>
    story.asked.filter(({ seen }) => seen.kind === 'answer').map(({ publicId }) => publicId);
  const isTheme = story.theme === 'days';
  for (let days = scheduler.pick([1, 2, 3]); days > 0; days--) {
    scheduler.setClock(dayMs);
    scheduler.note('a day later');
    // Each day but the last has some of its own, which the next one signs.
    if (days > 1) await sendAny(story, 3);
    const deaths = host.deathsMs.length;
    if (scheduler.chance(isTheme ? 0.8 : 0.5)) dieNear(story, isTheme ? themes.days : tables);
    await scheduler.sleep(jobsMs);
    story.disk.heal();
    await host.comesUp();
    if (host.deathsMs.length > deaths) await scheduler.sleep(jobsMs);
  }
  await scheduler.sleep(jobsMs);
  faults.push(...(await proofsOf(story, lives().slice(0, 3))));
  // It takes as long as ten other schedules.
  if (scheduler.chance(0.2)) await prune(story, lives().slice(0, 2));
  const db = openReadOnly(story.disk.file);
  try {
    for (const difference of await differencesOf(db)) faults.push(`days later: ${difference}`);
  } finally {
    await db.destroy();
  }
}

/** A proof that its customer can check, with the heads that are published. */
async function proofsOf(story: Story, ids: readonly string[]): Promise<readonly string[]> {
  const { template, asked, scheduler, host, deletedMs } = story;
  const published = await ask(scheduler, host, { host: 'account', method: 'GET', path: '/v1/heads?limit=100' });
  const faults: string[] = [];
  for (const id of ids) {
    const one = asked.find(({ publicId }) => publicId === id)!;
    if (one.idempotencyKey !== undefined) continue;
    const { account } = one.by;
    if (account === template.leaving.account && deletedMs !== undefined) continue;
    const { status, body } = await getAs(story, account, `/v1/generation/proof?id=${id}`);
    const { problem } =
      status === 200
        ? checkProof(body, { keys: publishedIn(published.body, 'keys'), heads: publishedIn(published.body, 'heads') })
        : { problem: `${status} ${body}` };
    scheduler.note(`proof of ${id}: ${problem ?? 'holds'}`);
    if (problem !== undefined) faults.push(`${id} is not proved: ${problem}`);
  }
  return faults;
}

/** An operator has details removed; what they were stays in the sums. */
async function prune(story: Story, ids: readonly string[]): Promise<void> {
  const { scheduler, host, asked, faults, disk } = story;
  // Statements of a month are issued before its details may go.
  scheduler.setClock(45 * dayMs);
  await scheduler.sleep(statementsMs);
  const before = Math.floor(scheduler.wallMs / dayMs) * dayMs;
  const reply = await host.operate({ kind: 'prune_usage', before });
  scheduler.note(`prunes: ${JSON.stringify(reply)}`);
  const { keptSince = 0 } = (reply?.answer ?? {}) as { readonly keptSince?: number };
  if (scheduler.chance(0.5)) dieNear(story, tables);
  await scheduler.sleep(jobsMs);
  disk.heal();
  await host.comesUp();
  await scheduler.sleep(jobsMs);
  for (const id of ids) {
    const { by } = asked.find(({ publicId }) => publicId === id)!;
    const { status } = await getAs(story, by.account, `/v1/generation?id=${id}`);
    if (keptSince > Date.UTC(2026, 11) && status !== 404 && status !== 401)
      faults.push(`${id} has a receipt although its details are removed: ${status}`);
  }
}

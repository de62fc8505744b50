/** What operators do in the middle of a schedule, on the control socket. They ask again until they are answered. */
import { lengthMs, type Story } from './story.ts';

export function operatorsOf(story: Story): Promise<void>[] {
  const { scheduler } = story;
  const at = async (share: number, work: (story: Story) => Promise<void>): Promise<void> => {
    const isDone = scheduler.chance(share);
    const ms = lengthMs * scheduler.random();
    if (!isDone) return;
    await scheduler.sleep(ms);
    await work(story);
  };
  const ends = story.theme === 'accounts' ? 1 : 0.15;
  return [at(0.2, grant), at(0.25, refund), at(0.25, refund), at(ends, revoke), at(ends, deleteAccount)];
}

/** Resolves with whether it was done; not: the service refused it. It may have done what it has no answer to. */
async function operate(story: Story, request: object): Promise<boolean> {
  const { scheduler, host } = story;
  const name = (request as { readonly kind: string }).kind;
  for (let tries = 0; tries < 200; tries++) {
    await host.comesUp();
    const reply = await host.operate(request);
    scheduler.note(
      `operator: ${name}: ${reply === undefined ? 'no answer' : (reply.refused ?? reply.failed ?? 'done')}`,
    );
    if (reply?.answer !== undefined) return true;
    if (reply?.refused !== undefined && !reply.refused.includes('try again')) return false;
    await scheduler.sleep(300);
  }
  story.faults.push(`the operator gets no answer to ${name}`);
  return false;
}

async function grant(story: Story): Promise<void> {
  const { template, scheduler } = story;
  const account = template.owner.account;
  const microcents = BigInt(scheduler.between(1, 9) * 1_000_000);
  const request = { kind: 'move_credit', movement: 'grant', idempotencyKey: 'in the middle', accountId: account };
  if (await operate(story, { ...request, microcents: String(microcents) })) story.granted.push({ account, microcents });
}

/** Of a request that has ended, all or a part; an operator who is not sure does it twice. */
async function refund(story: Story): Promise<void> {
  const { scheduler, asked, template } = story;
  const ended = asked.filter(
    ({ overMs, by, idempotencyKey }) =>
      overMs < scheduler.nowMs && by.account !== template.leaving.account && idempotencyKey === undefined,
  );
  if (ended.length === 0) return;
  const { by, publicId } = scheduler.pick(ended);
  const microcents = scheduler.chance(0.5) ? undefined : BigInt(scheduler.between(1, 60_000));
  const refunded = { account: by.account, publicId, microcents, isDone: false };
  story.refunded.push(refunded);
  const amount = microcents === undefined ? {} : { microcents: String(microcents) };
  const request = {
    kind: 'refund_request',
    accountId: by.account,
    requestId: publicId,
    ...amount,
    reference: 'asked for',
  };
  for (let times = scheduler.pick([1, 2]); times > 0; times--)
    if (await operate(story, request)) refunded.isDone = true;
}

/** What was done without an answer is refused the second time. */
async function revoke(story: Story): Promise<void> {
  await operate(story, { kind: 'revoke_key', keyId: story.template.doomed.id });
  story.revokedMs = story.scheduler.nowMs;
}

async function deleteAccount(story: Story): Promise<void> {
  await operate(story, { kind: 'delete_account', accountId: story.template.leaving.account, forfeitCredit: true });
  story.deletedMs = story.scheduler.nowMs;
}

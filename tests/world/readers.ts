/** What customers read at the end of a schedule: the receipts of their own requests, and nothing of others. */
import { ask, type Answer } from './clients.ts';
import type { Story } from './story.ts';

const readMost = 2;

export function getAs(story: Story, account: string, path: string): Promise<Answer> {
  const key = story.template.managers.get(account);
  return ask(story.scheduler, story.host, { host: 'account', method: 'GET', path, key });
}

export async function readAll(story: Story): Promise<void> {
  const { asked, template, faults, deletedMs, scheduler } = story;
  const charged = asked.filter(({ seen, idempotencyKey }) => seen.kind === 'answer' && idempotencyKey === undefined);
  const from = charged.length === 0 ? 0 : scheduler.between(0, charged.length - 1);
  const some = [...charged.slice(from), ...charged.slice(0, from)].slice(0, readMost);
  const accounts = [...template.managers.keys()];
  for (const { publicId, by, seen } of some)
    // Its own account, and one of the others: a stranger's look costs most.
    for (const account of [by.account, scheduler.pick(accounts.filter((one) => one !== by.account))]) {
      if (account === template.leaving.account && deletedMs !== undefined) continue;
      const { status, body } = await getAs(story, account, `/v1/generation?id=${publicId}`);
      if (account !== by.account) {
        if (status !== 404) faults.push(`${account} sees ${publicId} of ${by.account}: ${status}`);
        continue;
      }
      const receipt = JSON.parse(body) as Receipt;
      if (status !== 200 || seen.kind !== 'answer') faults.push(`${publicId} has no receipt: ${status}`);
      else if (receipt.tokens_prompt !== seen.usage.prompt || receipt.tokens_completion !== seen.usage.completion)
        faults.push(`the receipt of ${publicId} says ${body}`);
    }
  if (deletedMs === undefined) return;
  const { status } = await getAs(story, template.leaving.account, '/v1/generations');
  if (status !== 401) faults.push(`a key of a deleted account is answered with ${status}`);
}

interface Receipt {
  readonly tokens_prompt: number;
  readonly tokens_completion: number;
}

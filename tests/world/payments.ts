/** Top-ups, whose events come once, twice, late, and again in any order. */
import { createHmac } from 'node:crypto';
import { DatabaseSync } from '@photostructure/sqlite';

import { ask } from './clients.ts';
import type * as Program from './program.ts';
import { lengthMs, type Story } from './story.ts';

export function paymentsOf(story: Story): Promise<void>[] {
  const { scheduler, template, host } = story;
  const manager = template.managers.get(template.owner.account);
  const often = story.theme === 'payments' ? 3 : scheduler.pick([0, 0, 1, 2]);
  return Array.from({ length: often }, async (_, number) => {
    await scheduler.sleep(lengthMs * scheduler.random());
    await host.comesUp();
    const made = await ask(scheduler, host, {
      host: 'account',
      path: '/v1/credits/topups',
      key: manager,
      headers: { 'idempotency-key': `top-up-${number}` },
      body: JSON.stringify({ amount_cents: 500 }),
    });
    if (made.status !== 201 || !made.isWhole) return;
    const { checkout_url: url } = JSON.parse(made.body) as { readonly checkout_url: string | null };
    if (url === null) return;
    await pay(story, url);
    await scheduler.sleep(500 * scheduler.random());
    if (scheduler.chance(0.5)) await deliverEvents(story);
  });
}

async function pay({ scheduler, host }: Story, url: string): Promise<void> {
  for (let tries = 0; tries < 2; tries++) {
    const outcome = scheduler.pick(['success', 'duplicate', 'delay']);
    scheduler.note(`pays ${url.slice(url.lastIndexOf('/') + 1)}: ${outcome}`);
    const answer = await ask(scheduler, host, {
      host: 'account',
      path: new URL(url).pathname,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: `outcome=${outcome}`,
    });
    scheduler.note(`paid ${answer.status}`);
    if (answer.status === 303) return;
    await scheduler.sleep(200);
    await host.comesUp();
  }
}

/** The provider sends what it has, as it may do at any time. Resolves with whether all of it was taken. */
async function deliverEvents(story: Story): Promise<boolean> {
  const { scheduler, host } = story;
  await host.comesUp();
  let isTaken = true;
  for (const body of ofProvider(story, 'event')) {
    const seconds = Math.floor(scheduler.wallMs / 1_000);
    const digest = createHmac('sha256', eventSecret(story)).update(`${seconds}.${body}`).digest('hex');
    const answer = await ask(scheduler, host, {
      host: 'account',
      path: '/v1/webhooks/payments',
      headers: { 'stripe-signature': `t=${seconds},v1=${digest}` },
      body,
    });
    scheduler.note(`event ${answer.status} ${/"outcome":"\w+"/.exec(answer.body)?.[0] ?? ''}`);
    isTaken &&= answer.status === 200;
  }
  return isTaken;
}

function eventSecret({ scripts, disk }: Story): string {
  const { openSecret, demoEventSecret } = scripts.exportsOf('program') as unknown as typeof Program;
  const secret = openSecret({ fromEnvironment: undefined, dataFolder: `${disk.folder}/data`, warn: () => {} });
  return demoEventSecret(secret.demoPayments);
}

/** What the provider knows, which has its records in the same database. */
function ofProvider({ disk }: Story, kind: 'event' | 'checkout'): readonly string[] {
  const reader = new DatabaseSync(disk.file, { readOnly: true });
  const rows = reader.prepare('select body from demo_payment_object where kind = ? order by id').all(kind);
  reader.close();
  return (rows as { readonly body: string }[]).map(({ body }) => body);
}

/** All events come again, until they are taken. */
export async function redeliver(story: Story): Promise<void> {
  for (let tries = 0; tries < 20; tries++) {
    if (await deliverEvents(story)) {
      const checkouts = ofProvider(story, 'checkout').map((body) => JSON.parse(body) as Checkout);
      for (const { status, amountCents } of checkouts)
        if (status === 'paid') story.paidMicrocents += BigInt(amountCents) * 1_000_000n;
      return;
    }
    await story.scheduler.sleep(500);
  }
  story.faults.push('the events of payments are not taken');
}

interface Checkout {
  readonly status: string;
  readonly amountCents: number;
}

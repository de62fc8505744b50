/** Clients of a schedule: whole and streamed requests of every API, some keyed and asked again, some left. */
import { askOnOne, type Ask } from './clients.ts';
import { bodyOf, chosenOf, markOf, pathOf, seenOf, type Wanted } from './dialects.ts';
import { ownName, type WorldKey } from './setup.ts';
import { lengthMs, type Asked, type Story } from './story.ts';

export function requestsOf(story: Story): Promise<void>[] {
  const { scheduler, template, host } = story;
  // Sometimes all of them come at once, with one key.
  const burst = scheduler.chance(0.15) ? { by: scheduler.pick(template.keys), atMs: 500 } : undefined;
  return Array.from({ length: burst === undefined ? scheduler.between(3, 14) : 14 }, async (_, number) => {
    await scheduler.sleep(burst === undefined ? lengthMs * scheduler.random() : burst.atMs + 50 * scheduler.random());
    const idempotencyKey = scheduler.chance(0.2) ? `key-${number}` : undefined;
    const isEnding = story.theme === 'accounts' && scheduler.chance(0.5);
    const by = isEnding ? template.leaving : (burst?.by ?? scheduler.pick(template.keys));
    const request = { by, idempotencyKey, mark: markOf(number), ...wantedOf(story, by) };
    const leaves = scheduler.chance(0.3);
    const twins =
      idempotencyKey === undefined ? 'none' : scheduler.pick(['none', 'apart', 'on one connection'] as const);
    if (twins === 'on one connection') await sendOnOne(story, request, leaves, 2);
    else await Promise.all([send(story, request, leaves), ...(twins === 'none' ? [] : [send(story, request, false)])]);
    // A client that lost its answer asks again, and tells so.
    if (idempotencyKey !== undefined)
      for (let again = 0; again < 2; again++) {
        await scheduler.sleep(300 * scheduler.random());
        await host.comesUp();
        await send(story, request, false);
      }
  });
}

function wantedOf({ scheduler, template }: Story, by: WorldKey): Wanted {
  const own = by.account === template.owner.account ? [ownName] : [];
  return chosenOf(scheduler, ['m', 'm', 'f', ...own]);
}

type Request = Wanted & Pick<Asked, 'mark' | 'by' | 'idempotencyKey'>;

const send = async (story: Story, request: Request, leaves: boolean): Promise<Asked> =>
  (await sendOnOne(story, request, leaves, 1))[0]!;

/** The same request so many times, on one connection, without waiting for an answer. */
async function sendOnOne(story: Story, request: Request, leaves: boolean, times: number): Promise<readonly Asked[]> {
  const { scheduler, asked } = story;
  const { by, idempotencyKey, mark, api, model } = request;
  const ones = Array.from({ length: times }, (): Asked => {
    const publicId = `req_${(asked.length + 1).toString(16).padStart(12, '0')}`;
    const one: Asked = {
      ...{ ...request, publicId, begunMs: scheduler.nowMs, overMs: Infinity },
      answer: { status: 0, headers: new Map(), body: '', isWhole: false },
      seen: { kind: 'part' },
    };
    asked.push(one);
    scheduler.note(`asks ${publicId} ${mark} ${by.id} ${api} ${model}${leaves ? ', will leave' : ''}`);
    return one;
  });
  const how = scheduler.pick(['reset', 'fin'] as const);
  const leaving = leaves ? { bytes: scheduler.between(1, 3_000), ms: 1_000 * scheduler.random(), how } : undefined;
  const asks = ones.map(({ publicId }): Ask => ({
    host: 'inference',
    path: pathOf[api],
    key: by.key,
    headers: {
      'x-request-id': publicId,
      ...(api === 'messages' ? { 'anthropic-version': '2023-06-01' } : {}),
      ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
    },
    body: JSON.stringify(bodyOf(request, mark)),
    leaves: leaving,
  }));
  const answers = await askOnOne(scheduler, story.host, asks as [Ask, ...Ask[]]);
  for (const [index, one] of ones.entries()) {
    one.answer = answers[index]!;
    one.seen = seenOf(one.answer);
    one.overMs = scheduler.nowMs;
    scheduler.note(`sees ${one.publicId} ${one.answer.status} ${JSON.stringify(one.seen)}`);
  }
  return ones;
}

/** Requests of several keys, one after the other, whatever they come to. */
export async function sendAny(story: Story, requests: number): Promise<void> {
  for (let index = 0; index < requests; index++) {
    const by = story.scheduler.pick(story.template.keys);
    const request = { by, idempotencyKey: undefined, mark: markOf(800 + story.asked.length), ...wantedOf(story, by) };
    await send(story, request, false);
  }
}

/** At the end a key is as good as at the beginning: nothing of what has failed keeps its slot or its money. */
export async function askAgain(story: Story): Promise<void> {
  const { template, scheduler, faults } = story;
  const from = scheduler.between(0, template.keys.length - 1);
  for (let index = 0; index < 3; index++) {
    const by = template.keys[(from + index) % template.keys.length]!;
    const wanted = { api: 'chat', model: 'm', tokensMax: 4, isStreamed: false, tier: undefined } as const;
    const { seen } = await send(story, { ...wanted, by, mark: markOf(900 + index), idempotencyKey: undefined }, false);
    const isLimited = by.perMinute !== undefined || by.budget !== undefined || by.modelBudget !== undefined;
    const isGone =
      (by === template.doomed && story.revokedMs !== undefined) ||
      (by === template.leaving && story.deletedMs !== undefined);
    if (seen.kind === 'answer' || isLimited || isGone) continue;
    scheduler.note('the last request fails');
    faults.push(`${by.id} cannot ask any more: ${JSON.stringify(seen)}`);
  }
}

/** Load on a service before several real servers: streamed answers, and how they ended. */
import { setTimeout as delay } from 'node:timers/promises';

import type { TestService } from './service.ts';
import type { TestLedger } from './test-ledger.ts';

/** Of one request while the machine is busy. */
export const patienceMs = 120_000;

/** What a client sees of a streamed answer. */
export interface Seen {
  readonly requestId: string;
  readonly isWhole: boolean;
  readonly elapsedMs: number;
  readonly hasBegun: boolean;
  /** The text, or all that came where it is not one. */
  readonly text: string;
  readonly promptTokens: number;
}

export async function ask(service: TestService, messages: readonly object[], model = 'real'): Promise<Seen> {
  const askedAt = performance.now();
  const answer = await service.chat(
    { model, messages, stream: true, max_tokens: 16 },
    { signal: AbortSignal.timeout(patienceMs) },
  );
  const body = await answer.text();
  const events = body.split('\n\n').flatMap((event) => (event.startsWith('data: {') ? [event.slice(6)] : []));
  const chunks = events.map(
    (event) =>
      JSON.parse(event) as { choices?: { delta: { content?: string } }[]; usage?: { prompt_tokens: number } | null },
  );
  const text = chunks.map(({ choices }) => choices?.[0]?.delta.content ?? '').join('');
  return {
    requestId: answer.headers.get('x-request-id') ?? '',
    isWhole: answer.status === 200 && body.endsWith('data: [DONE]\n\n'),
    elapsedMs: performance.now() - askedAt,
    hasBegun: text !== '',
    text: answer.status === 200 && !body.includes('"error"') ? text : body,
    promptTokens: chunks.find(({ usage }) => usage !== undefined && usage !== null)?.usage?.prompt_tokens ?? 0,
  };
}

/** How a server that is back was taken up again; milliseconds from its return. */
export interface Comeback {
  /** Until a request was put there; Infinity: none was that has ended since. */
  readonly chosenMs: number;
  /** Until it had answered one, perhaps one that it had got before. */
  readonly answeredMs: number;
  /** Requests that came after `withinMs` and were put elsewhere before either of these. */
  readonly passedOver: number;
}

/** By what the service has recorded of requests that have ended. `backAt`: by the clock of the day. */
export async function comebackOf(
  ledger: TestLedger,
  backend: string,
  backAt: number,
  withinMs: number,
): Promise<Comeback> {
  const rows = (await ledger.everyRow()).filter(({ endedAt }) => endedAt >= backAt);
  const tries = rows.flatMap(({ startedAt, attempts }) =>
    (attempts ?? []).map((attempt) => ({ backend: attempt.backend, ms: startedAt + attempt.atMs - backAt })),
  );
  const there = tries.filter((each) => each.backend === backend && each.ms >= 0).map(({ ms }) => ms);
  const answers = rows.filter((row) => row.backend === backend && row.ending === 'finished');
  const chosenMs = Math.min(Infinity, ...there);
  const answeredMs = Math.min(Infinity, ...answers.map(({ endedAt }) => endedAt - backAt));
  const usedMs = Math.min(chosenMs, answeredMs);
  const passedOver = tries.filter((each) => each.backend !== backend && each.ms > withinMs && each.ms < usedMs);
  return { chosenMs, answeredMs, passedOver: passedOver.length };
}

/**
 * Calls `askOnce` every quarter of a second for three seconds, whether or not those before are answered. Clients who wait for long answers may all be
 * waiting when a server is back: of these there is always one for whom it can be chosen.
 */
export async function askOften(askOnce: () => Promise<Seen>): Promise<readonly Seen[]> {
  const asked: Promise<Seen>[] = [];
  for (let count = 0; count < 12; count++) {
    asked.push(askOnce());
    await delay(250);
  }
  return Promise.all(asked);
}

/** Runs `clients` loops of `next` until one of them has nothing left. */
export async function inParallel(clients: number, next: () => Promise<unknown> | undefined): Promise<void> {
  const loop = async (): Promise<void> => {
    for (let step = next(); step !== undefined; step = next()) await step;
  };
  await Promise.all(Array.from({ length: clients }, loop));
}

export const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

/** Words that no other text has. */
export function words(random: () => number, characters: number): string {
  let text = '';
  while (text.length < characters) text += `${Math.floor(random() * 36 ** 6).toString(36)} `;
  return text;
}

export interface ConversationShape {
  readonly conversations: number;
  readonly turns: number;
  /** Of the text that begins each, and of each question after it. */
  readonly beginCharacters: number;
  readonly turnCharacters: number;
  readonly question: (text: string) => object;
}

/** Conversations, four at a time, each begun by a long text of its own. Resolves with the prompt tokens of all. */
export async function converse(
  random: () => number,
  { conversations: count, turns, beginCharacters, turnCharacters, question }: ConversationShape,
  askOnce: (messages: readonly object[]) => Promise<Seen>,
): Promise<number> {
  const conversations = Array.from({ length: count }, () => ({
    messages: [question(words(random, beginCharacters))],
    turns: 0,
  }));
  let promptTokens = 0;
  const turn = async (conversation: (typeof conversations)[number]): Promise<void> => {
    const seen = await askOnce(conversation.messages);
    promptTokens += seen.promptTokens;
    conversation.messages.push({ role: 'assistant', content: seen.text }, question(words(random, turnCharacters)));
    conversation.turns++;
  };
  const idle = new Set(conversations);
  await inParallel(4, () => {
    const waiting = [...idle].filter((one) => one.turns < turns);
    const one = waiting[Math.floor(random() * waiting.length)];
    if (one === undefined) return undefined;
    idle.delete(one);
    return turn(one).then(() => idle.add(one));
  });
  return promptTokens;
}

/** The budget of a conversation (limits.md, "Limits of accounts and keys"): who is stopped, and who never is. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Conversations } from '../../../src/billing/rate-limits/conversations.ts';
import { Limits } from '../../../src/billing/rate-limits/rate-limits.ts';
import type { LimitedCaller, Spending } from '../../../src/billing/rate-limits/rate-limits.ts';
import { WholeLimits } from '../../../src/billing/rate-limits/whole-limits.ts';
import { Windows } from '../../../src/billing/rate-limits/windows.ts';
import type { Message } from '../../../src/generation/request.ts';
import { turnsOf } from '../../../src/inference/routing/prompt-prefixes.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { mulberry32 } from '../../support/random.ts';
import { MemoryWindows } from './memory-windows.ts';

const budgetCents = 100;
const microcents = 1_000_000;

const said = (role: 'system' | 'user', text: string): Message => ({ role, content: [{ type: 'text', text }] });
/** A step of an agent: what the model called, under an id of its own as servers give it, and what came back. */
function step(id: string, name: string, result: string, reasoning = ''): readonly Message[] {
  return [
    {
      role: 'assistant',
      content: [],
      reasoning: reasoning === '' ? [] : [{ text: reasoning, signature: undefined }],
      toolCalls: [{ id, name, arguments: '{}' }],
    },
    { role: 'tool', toolCallId: id, content: [{ type: 'text', text: result }] },
  ];
}

const turns = (messages: readonly Message[], scope = 'key_a', retain = true): readonly number[] =>
  turnsOf({ prompt: { type: 'messages', messages }, retain }, scope, 7);

/** Whether it was admitted; it then costs this much. */
function asks(conversations: Conversations, messages: readonly Message[], cents: number, likely = cents): boolean {
  try {
    conversations.begin(turns(messages), budgetCents, likely * microcents).end(cents * microcents);
    return true;
  } catch (error) {
    assert.ok(error instanceof ApiError && error.code === 'insufficient_credits' && error.status === 402);
    assert.match(
      error.message,
      /^This conversation has cost \$\d+\.\d+, and its key allows \$1\.00 for one\. Begin a new/,
    );
    return false;
  }
}

test('a thousand ordinary sessions of agents are never stopped, however alike they begin', () => {
  const random = mulberry32(44);
  const conversations = new Conversations();
  const systems = [said('system', 'You are an agent. '.repeat(200)), said('system', 'You review code.')];
  const sessions = Array.from({ length: 1000 }, (_, index) => ({
    index,
    messages: [systems[index % 2]!, said('user', `Do task ${index % 3}.`)] as readonly Message[],
    spent: 0,
    steps: 0,
  }));
  let live = sessions;
  while (live.length > 0) {
    const session = live[Math.floor(random() * live.length)]!;
    // A step costs up to three cents, a long one up to ten; what is estimated is some times more.
    const cents = Math.ceil(random() * (random() < 0.1 ? 10 : 3));
    const isTriedAgain = random() < 0.05;
    const costs = isTriedAgain ? 2 * cents : cents;
    if (session.spent + costs > budgetCents || session.steps > 40) {
      live = live.filter((each) => each !== session);
      continue;
    }
    for (let tries = isTriedAgain ? 2 : 1; tries > 0; tries--)
      assert.ok(
        asks(conversations, session.messages, cents, cents * 8),
        `${session.index} after ${session.spent} cents`,
      );
    session.spent += costs;
    session.steps++;
    // Alike but for the ids. Reasoning is in the prompts of a step and gone after the next word of the person.
    const isWord = random() < 0.2;
    const before = isWord
      ? session.messages.map((one) => (one.role === 'assistant' ? { ...one, reasoning: [] } : one))
      : session.messages;
    const more = isWord ? [said('user', 'Go on.')] : [];
    const thought = isWord ? '' : 'Hm.';
    session.messages = [...before, ...step(`call_${session.index}_${session.steps}`, 'ls', 'a b c', thought), ...more];
  }
  assert.ok(sessions.filter(({ spent }) => spent > 80).length > 100, 'many come near to their budget');
});

test('a loop passes the budget by one request at most: one that grows, and one that repeats itself', () => {
  const kinds = ['grows', 'repeats'] as const;
  const request = fc.record({ cents: fc.integer({ min: 0, max: 60 }), likely: fc.integer({ min: 0, max: 90 }) });
  fc.assert(
    fc.property(fc.constantFrom(...kinds), fc.array(request, { minLength: 20, maxLength: 60 }), (kind, requests) => {
      const conversations = new Conversations();
      let messages: readonly Message[] = [said('user', 'hi'), ...step('call_0', 'ls', 'a')];
      let spent = 0;
      let last = 0;
      for (const [index, { cents, likely }] of requests.entries()) {
        const isAsked = asks(conversations, messages, cents, likely);
        assert.equal(isAsked, spent < budgetCents, `${kind} after ${spent} cents`);
        if (!isAsked) continue;
        spent += cents;
        last = cents;
        if (kind === 'grows') messages = [...messages, ...step(`call_${index + 1}`, 'ls', 'a')];
      }
      assert.ok(spent - last < budgetCents);
    }),
    { numRuns: 200 },
  );
});

test('what runs at once has what is left between them, other keys and zero data retention have nothing to do with it', () => {
  const conversations = new Conversations();
  const messages = [said('user', 'hi'), ...step('call_0', 'ls', 'a')];
  const begin = (likelyCents: number, of = turns(messages)) =>
    conversations.begin(of, budgetCents, likelyCents * microcents);
  const one = begin(60);
  const two = begin(60);
  assert.throws(() => begin(1), { code: 'insufficient_credits' });
  begin(1, turns(messages, 'key_b')).end(0);
  one.end(10 * microcents);
  begin(1).end(0);
  two.end(90 * microcents);
  assert.throws(() => begin(1), { code: 'insufficient_credits' });
  assert.deepEqual(turns(messages, 'key_a', false), []);
  for (let index = 0; index < 100; index++) begin(100, []).end(100 * microcents);
  // Memory has a bound, and the oldest go first.
  for (let index = 0; index < 100_001; index++) begin(1, [index]).end(0);
  assert.equal(conversations.size, 100_000);
  begin(1).end(0);
});

test('a key without the budget is asked nothing, and a refusal takes no limit', () => {
  const counts = new WholeLimits(new Windows({ store: new MemoryWindows(), now: () => 0 }));
  const limits = new Limits({ counts, concurrencyPerAccountMax: 1, plans: [] });
  const caller = (sessionCents?: number): LimitedCaller => ({
    account: { id: 'acct_a' },
    key: { id: 'key_a', ...(sessionCents === undefined ? {} : { rates: { sessionCents } }) },
  });
  const unasked = (): never => assert.fail('it was asked');
  const none: Spending<LimitedCaller> = { microcentsLikely: unasked, turns: unasked };
  const some: Spending<LimitedCaller> = {
    microcentsLikely: () => microcents,
    turns: () => turns([said('user', 'hi'), ...step('call_0', 'ls', 'a')]),
  };
  const run = (sessionCents: number | undefined, spending: Spending<LimitedCaller>): void => {
    const admitted = limits.admit(caller(sessionCents), 'generate', 1, spending);
    assert.ok(!(admitted instanceof Promise));
    admitted.end({ tokens: 1, costMicrocents: BigInt(microcents), isCounted: true });
  };
  run(undefined, none);
  run(2, some);
  run(2, some);
  for (let tries = 0; tries < 3; tries++) assert.throws(() => run(2, some), { code: 'insufficient_credits' });
  assert.equal(limits.running, 0);
  run(3, some);
});

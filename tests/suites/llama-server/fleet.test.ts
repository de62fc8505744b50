/**
 * Three real llama-servers behind one model: how they share the load, what of their prompt caches is used, and what clients notice of one
 * that is killed or frozen (docs/decisions/030-least-expected-first-token.md, 031-failing-backends.md).
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';

import { slowness } from '../../support/busy.ts';
import { freePort } from '../../support/free-port.ts';
import { TestService, until } from '../../support/service.ts';
import { mulberry32 } from '../../support/random.ts';
import { LlamaServer, TinyModels, briefText, scriptedTiny, stopServer } from './llama-server.ts';

const slots = 4;
const contextLength = 8192;
const backends = 3;
/** Of one request while the machine is busy. */
const patienceMs = 120_000;
const models = new TinyModels();
after(() => models.dispose());
/** It takes nearly every character of a prompt as a token. */
const modelFile = models.write('fleet', { ...scriptedTiny, dimensions: 128, layers: 2 });

/** A llama-server that may be killed and started again at the same address. */
class Member {
  #server: LlamaServer;
  readonly port: number;
  readonly #slots: number;

  private constructor(server: LlamaServer, port: number, slotCount: number) {
    this.#server = server;
    this.port = port;
    this.#slots = slotCount;
  }

  static async start(slotCount = slots): Promise<Member> {
    const port = await freePort();
    return new Member(await serverAt(port, slotCount), port, slotCount);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/v1`;
  }

  /** Prompt tokens that it has read since its start, by its own counter; those from its cache are not among them. */
  async readTokens(): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${this.port}/metrics`);
    const found = /^llamacpp:prompt_tokens_total (\S+)$/m.exec(await answer.text());
    assert.ok(found !== null, 'it counts no prompt tokens');
    return Number(found[1]);
  }

  /** Answers that it works on now. */
  working(): Promise<number> {
    return this.#server.working();
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#server.pid, signal);
  }

  async startAgain(): Promise<void> {
    this.#server = await serverAt(this.port, this.#slots);
  }

  stop(): Promise<void> {
    return stopServer(this.#server);
  }
}

const serverAt = (port: number, slotCount: number): Promise<LlamaServer> =>
  LlamaServer.start({ modelFile, slots: slotCount, contextLength, port, arguments: ['--metrics'] });

interface Fleet {
  readonly members: readonly Member[];
  readonly service: TestService;
}

async function startFleet(t: TestContext, { count = backends, slotCount = slots } = {}): Promise<Fleet> {
  const members: Member[] = [];
  t.after(() => Promise.all(members.map((member) => member.stop())));
  for (let index = 0; index < count; index++) members.push(await Member.start(slotCount));
  const service = new TestService({
    limits: '  first_token_timeout_seconds: 5',
    config: `models:
  - id: real
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${members
  .map(
    ({ url }, index) =>
      `      - { engine: openai, name: server-${index + 1}, flavor: llama-server, url: "${url}", max_concurrency: ${slotCount} }`,
  )
  .join('\n')}`,
  });
  t.after(async () => {
    await service.verify();
    await service.dispose();
  });
  await service.start();
  return { members, service };
}

/** What a client sees of a streamed answer. */
interface Seen {
  readonly isWhole: boolean;
  readonly elapsedMs: number;
  readonly hasBegun: boolean;
  readonly text: string;
  readonly promptTokens: number;
}

async function ask(service: TestService, messages: readonly object[]): Promise<Seen> {
  const askedAt = performance.now();
  const answer = await service.chat(
    { model: 'real', messages, stream: true, max_tokens: 16 },
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
    isWhole: answer.status === 200 && body.endsWith('data: [DONE]\n\n'),
    elapsedMs: performance.now() - askedAt,
    hasBegun: text !== '',
    text: answer.status === 200 && !body.includes('"error"') ? text : body,
    promptTokens: chunks.find(({ usage }) => usage !== undefined && usage !== null)?.usage?.prompt_tokens ?? 0,
  };
}

const brief = (text: string): readonly object[] => [{ role: 'user', content: `${text}<brief>` }];

/** Runs `clients` loops of `next` until one of them has nothing left. */
async function inParallel(clients: number, next: () => Promise<unknown> | undefined): Promise<void> {
  const loop = async (): Promise<void> => {
    for (let step = next(); step !== undefined; step = next()) await step;
  };
  await Promise.all(Array.from({ length: clients }, loop));
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

const words = (random: () => number, characters: number): string => {
  let text = '';
  while (text.length < characters) text += `${Math.floor(random() * 36 ** 6).toString(36)} `;
  return text;
};

test('requests that have nothing in common are shared within a tenth', async (t) => {
  const { members, service } = await startFleet(t);
  const random = mulberry32(1);
  // Rounds, each of which finds all three idle: whoever asks again at once gives more to the server that has the processor more often.
  // One more is possible at each, so that nothing but the choice shares them.
  for (let round = 0; round < 12; round++) {
    const prompts = Array.from({ length: backends * (slots - 1) }, () => words(random, 600 + 400 * random()));
    const seen = await Promise.all(prompts.map((prompt) => ask(service, brief(prompt))));
    for (const { isWhole, text } of seen) assert.ok(isWhole && text === briefText, text);
  }
  const read = await Promise.all(members.map((member) => member.readTokens()));
  const mean = read.reduce((sum, tokens) => sum + tokens, 0) / members.length;
  t.diagnostic(`prompt tokens that each has read: ${read.join(', ')}`);
  for (const tokens of read) assert.ok(Math.abs(tokens - mean) <= mean / 10, `${tokens} of ${mean}`);
});

const conversationCount = 9;

/** Conversations of several turns, each begun by a long text of its own. Resolves with the part of all prompt tokens that caches had. */
async function reuse({ members, service }: Fleet): Promise<number> {
  const random = mulberry32(2);
  const conversations = Array.from({ length: conversationCount }, () => ({
    messages: [...brief(words(random, 1_500))],
    turns: 0,
  }));
  let promptTokens = 0;
  const turn = async (conversation: (typeof conversations)[number]): Promise<void> => {
    const seen = await ask(service, conversation.messages);
    assert.ok(seen.isWhole && seen.text === briefText, seen.text);
    promptTokens += seen.promptTokens;
    conversation.messages.push({ role: 'assistant', content: seen.text }, ...brief(words(random, 200)));
    conversation.turns++;
  };
  const idle = new Set(conversations);
  await inParallel(4, () => {
    const waiting = [...idle].filter(({ turns }) => turns < 8);
    const one = waiting[Math.floor(random() * waiting.length)];
    if (one === undefined) return undefined;
    idle.delete(one);
    return turn(one).then(() => idle.add(one));
  });
  const read = await Promise.all(members.map((member) => member.readTokens()));
  return 1 - read.reduce((sum, tokens) => sum + tokens, 0) / promptTokens;
}

test('nine tenths of the prompts that one server would have in its cache are found in the caches of three', async (t) => {
  // A slot holds one conversation, so nine may meet at a server without pushing each other out: it is the choice that is measured.
  const slotCount = conversationCount;
  const one = await reuse(await startFleet(t, { count: 1, slotCount }));
  const three = await reuse(await startFleet(t, { slotCount }));
  t.diagnostic(`reused: ${(100 * one).toFixed(1)} % by one server, ${(100 * three).toFixed(1)} % by three`);
  assert.ok(one > 0.5, `${one}: one server reuses prompts`);
  assert.ok(three >= 0.9 * one, `${three} of ${one}`);
});

/** Whether the first server was last left out or taken back. */
const latestOfFirst = ({ log }: TestService): unknown =>
  log.findLast(
    (line) => /^backend_(ejected|returned)$/.test(String(line['event'])) && /server-1/.test(JSON.stringify(line)),
  )?.['event'];

for (const [name, gone, isNoticed, back, isUsed] of [
  [
    'killed',
    (member: Member) => member.signal('SIGKILL'),
    () => true,
    (member: Member) => member.startAgain(),
    async (member: Member) => (await member.working()) > 0,
  ],
  // Until requests that met it were answered by others, and it was left out for the first time, which is for a second. What it works
  // on when it is back may be from before, so its answer counts.
  [
    'frozen',
    (member: Member) => member.signal('SIGSTOP'),
    (service: TestService) => latestOfFirst(service) === 'backend_ejected',
    async (member: Member) => member.signal('SIGCONT'),
    async (_: Member, service: TestService) => latestOfFirst(service) === 'backend_returned',
  ],
] as const)
  test(`one of three that is ${name} under load fails no answer that has not begun, and gets requests again when it is back`, async (t) => {
    const { members, service } = await startFleet(t);
    const [victim] = members as [Member];
    const random = mulberry32(3);
    const beginning = words(random, 1_200);
    const seen: Seen[] = [];
    let isOver = false;
    const load = inParallel(6, () =>
      isOver ? undefined : ask(service, brief(beginning + words(random, 300))).then((one) => seen.push(one)),
    );
    try {
      const answered = (more: number): Promise<void> => {
        const before = seen.length;
        return until(() => seen.length >= before + more, patienceMs);
      };
      await answered(20);
      await until(async () => (await victim.working()) > 0, patienceMs);
      gone(victim);
      await answered(40);
      await until(() => isNoticed(service), patienceMs);
      const usualMs = median(seen.map(({ elapsedMs }) => elapsedMs));
      await back(victim);
      const backAt = performance.now();
      await until(() => isUsed(victim, service), patienceMs);
      const afterMs = Math.round(performance.now() - backAt);
      await answered(20);
      t.diagnostic(`it was used ${afterMs} ms after it was back; an answer took ${Math.round(usualMs)} ms`);
      // Whoever asks next is waiting for an answer.
      assert.ok(afterMs <= 1_000 * slowness + 2 * usualMs, `${afterMs} ms`);
    } finally {
      isOver = true;
      await load;
    }
    const failed = seen.filter(({ isWhole, text }) => !isWhole || text !== briefText);
    t.diagnostic(`${seen.length} answers, ${failed.length} of them cut after their first text`);
    for (const { hasBegun, text } of failed) assert.ok(hasBegun, text);
    assert.ok(failed.length <= slots, 'no more than it was answering');
  });

/**
 * Three real llama-servers behind one model: how they share the load, what of their prompt caches is used, and what clients notice of one
 * that is killed or frozen (docs/decisions/030-least-expected-first-token.md, 031-failing-backends.md).
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';

import { slowness } from '../../support/busy.ts';
import { freePort } from '../../support/free-port.ts';
import { ask, comebackOf, converse, inParallel, median, patienceMs, words } from '../../support/fleet-load.ts';
import type { Seen } from '../../support/fleet-load.ts';
import { TestService, until } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { mulberry32 } from '../../support/random.ts';
import { LlamaServer, TinyModels, briefText, scriptedTiny, stopServer } from './llama-server.ts';

const slots = 4;
const contextLength = 8192;
const backends = 3;
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

  /** Answers that others than the service have got. */
  asked = 0;

  async askDirectly(text: string): Promise<void> {
    const answer = await this.#server.post('/v1/chat/completions', { messages: [question(text)], max_tokens: 16 });
    await answer.arrayBuffer();
    this.asked++;
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

const question = (text: string): object => ({ role: 'user', content: `${text}<brief>` });
const brief = (text: string): readonly object[] => [question(text)];

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

/** What our own page says of a backend; NaN: nothing. */
async function figureOf({ service }: Fleet, name: string, backend: string): Promise<number> {
  const text = await (await fetch(`${service.accountUrl}/metrics`)).text();
  return Number(new RegExp(`^tokenhouse_backend_${name}\\{.*backend="${backend}".*\\} (\\S+)$`, 'm').exec(text)?.[1]);
}

test('of two servers the one that others keep busy gets less', async (t) => {
  const fleet = await startFleet(t, { count: 2 });
  const { members, service } = fleet;
  const [busy] = members as [Member];
  const random = mulberry32(4);
  let isOver = false;
  // Three times as many as it has slots, so that most of them wait there.
  const others = inParallel(3 * slots, () => (isOver ? undefined : busy.askDirectly(words(random, 2_000))));
  try {
    const own = async (): Promise<string> => {
      const { requestId, isWhole, text } = await ask(service, brief(words(random, 1_000)));
      assert.ok(isWhole && text === briefText, text);
      return requestId;
    };
    await until(async () => {
      await own();
      return (await figureOf(fleet, 'foreign_waiting_tokens', 'server-1')) > 0;
    }, patienceMs);
    assert.equal(await figureOf(fleet, 'foreign_waiting_tokens', 'server-2'), 0);
    const before = busy.asked;
    const judged: string[] = [];
    // Between two of the others' requests a look finds none that waits, and without requests of ours there is no look.
    await until(async () => {
      const isBusy = (await figureOf(fleet, 'foreign_waiting_tokens', 'server-1')) > 0;
      const requestId = await own();
      if (isBusy) judged.push(requestId);
      return judged.length === 16;
    }, patienceMs);
    assert.ok(busy.asked > before, 'others went on meanwhile');
    const receipts = await Promise.all(judged.map((id) => service.command('explain', id)));
    const there = receipts.filter(({ stdout }) => /^ *backend +server-1/m.test(stdout)).length;
    t.diagnostic(`${there} of 16 at the server that others use`);
    assert.ok(there <= 4, `${there} of 16`);
  } finally {
    isOver = true;
    await others;
  }
});

const conversationCount = 9;

/** Resolves with the part of all prompt tokens that caches had. */
async function reuse({ members, service }: Fleet): Promise<number> {
  const shape = { conversations: conversationCount, turns: 8, beginCharacters: 1_500, turnCharacters: 200, question };
  const promptTokens = await converse(mulberry32(2), shape, async (messages) => {
    const seen = await ask(service, messages);
    assert.ok(seen.isWhole && seen.text === briefText, seen.text);
    return seen;
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

/** Events of the log about the first server being left out or taken back. */
const eventsOfFirst = ({ log }: TestService): readonly Readonly<Record<string, unknown>>[] =>
  log.filter(
    (line) => /^backend_(ejected|returned)$/.test(String(line['event'])) && /server-1/.test(JSON.stringify(line)),
  );
const latestOfFirst = (service: TestService): unknown => eventsOfFirst(service).at(-1)?.['event'];

/** Beyond every limit on the way: that of the first token, of a look, and several pauses. */
const longStopMs = 25_000;

interface Outage {
  readonly gone: (member: Member) => void;
  /** Whether it has lasted for long enough. */
  readonly isNoticed: (service: TestService, goneForMs: number) => boolean;
  /** Resolves when the server answers again, or goes on. */
  readonly back: (member: Member) => Promise<void> | void;
}

const freeze = (member: Member): void => member.signal('SIGSTOP');
const goOn = (member: Member): void => member.signal('SIGCONT');

const outages: Readonly<Record<string, Outage>> = {
  killed: {
    gone: (member) => member.signal('SIGKILL'),
    isNoticed: () => true,
    back: (member) => member.startAgain(),
  },
  // Until requests that met it were answered by others, and it was left out for the first time, which is for a second.
  frozen: {
    gone: freeze,
    isNoticed: (service) => latestOfFirst(service) === 'backend_ejected',
    back: goOn,
  },
  'frozen for long': {
    gone: freeze,
    isNoticed: (service, goneForMs) =>
      goneForMs >= longStopMs && eventsOfFirst(service).some((line) => JSON.stringify(line).includes('"silent":true')),
    back: goOn,
  },
};

for (const [name, { gone, isNoticed, back }] of Object.entries(outages))
  test(`one of three that is ${name} under load fails no answer that has not begun, and gets requests again when it is back`, async (t) => {
    const { members, service } = await startFleet(t);
    const [victim] = members as [Member];
    const random = mulberry32(3);
    const beginning = words(random, 1_200);
    const seen: Seen[] = [];
    let isOver = false;
    let backAt = 0;
    const comeback = () => comebackOf(new TestLedger(service), 'server-1', backAt, 1_000 * slowness);
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
      const goneAt = performance.now();
      await answered(40);
      await until(() => isNoticed(service, performance.now() - goneAt), patienceMs);
      const usualMs = median(seen.map(({ elapsedMs }) => elapsedMs));
      await back(victim);
      backAt = Date.now();
      await until(async () => {
        const { chosenMs, answeredMs } = await comeback();
        return chosenMs < Infinity && answeredMs < Infinity;
      }, patienceMs);
      t.diagnostic(`an answer took ${Math.round(usualMs)} ms meanwhile`);
    } finally {
      isOver = true;
      await load;
    }
    const { chosenMs, answeredMs, passedOver } = await comeback();
    t.diagnostic(`it was chosen ${chosenMs} ms after it was back, and had answered ${answeredMs} ms after it`);
    assert.equal(passedOver, 0, 'of the requests from a second after its return until it was used');
    const failed = seen.filter(({ isWhole, text }) => !isWhole || text !== briefText);
    t.diagnostic(`${seen.length} answers, ${failed.length} of them cut after their first text`);
    for (const { hasBegun, text } of failed) assert.ok(hasBegun, text);
    assert.ok(failed.length <= slots, 'no more than it was answering');
  });

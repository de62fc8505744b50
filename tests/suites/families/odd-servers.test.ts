/**
 * Odd servers behind a running service, over real sockets: every family gives what they meant, streamed and whole, the ledger charges
 * what the rule counts, and what is no answer fails and costs nothing. `TOKENHOUSE_TEST_ODD_SEEDS` says how many of each kind.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { flavors } from '../../../src/inference/engines/openai/flavors/flavors.ts';
import { chatFamilies, completionFamily, type AnswerFamily } from '../../conformance/answer-families.ts';
import { checkGiven } from '../../conformance/odd-given.ts';
import { oddOnes } from '../../support/odd-servers/habits.ts';
import { maxTokens } from '../../support/odd-servers/count.ts';
import { oddAnswer, type OddAnswer } from '../../support/odd-servers/odd-answer.ts';
import { oddServers } from '../../support/odd-servers/servers.ts';
import { oddTools } from '../../support/odd-calls.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { TestService } from '../../support/service.ts';
import { Upstream, chatChunk, event, type UpstreamExchange } from '../../support/upstream.ts';
import { ask, type FamilyAnswer } from './exchange.ts';
import { families, type Family } from './families.ts';

const seeds = Number(process.env['TOKENHOUSE_TEST_ODD_SEEDS'] ?? 60);
const options = { timeout: 600_000 };

/** Microcents for a token. */
const prices = { input: 100n, output: 200n, cacheRead: 50n };

const kinds = [...new Set(oddServers.map(({ flavor }) => flavor))];
const upstreams = new Map<string, Upstream>();
let service: TestService;

before(async () => {
  for (const flavor of kinds) upstreams.set(flavor, await Upstream.start(play));
  const models = kinds.map(
    (flavor) => `  - id: ${flavor}
    context_length: 16384
    pricing: { input_cents_per_million: ${prices.input}, output_cents_per_million: ${prices.output}, cache_read_cents_per_million: ${prices.cacheRead} }
    capabilities: { reasoning: true }
    backends: [ { engine: openai, flavor: ${flavor}, url: "${upstreams.get(flavor)!.url}" } ]`,
  );
  service = await new TestService({ config: `models:\n${models.join('\n')}` }).start();
});
after(async () => {
  try {
    await service.verify();
  } finally {
    await service.dispose();
    for (const upstream of upstreams.values()) await upstream.close();
  }
});

/** The answer that the prompt names. */
let playing: OddAnswer | undefined;

function play(exchange: UpstreamExchange): void {
  const isText = exchange.path.endsWith('/v1/completions');
  if (!isText && !exchange.path.endsWith('/chat/completions')) return exchange.json(404, {});
  if (playing === undefined) {
    const text = { choices: [{ index: 0, text: 'Hello', finish_reason: 'stop' }] };
    exchange.events();
    exchange.chunk((isText ? event(text) : chatChunk({ content: 'Hello' }, 'stop')) + event('[DONE]'));
    return exchange.endChunks();
  }
  const { bytes } = playing;
  if (Buffer.isBuffer(bytes)) {
    exchange.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${bytes.length}\r\n\r\n`);
    return exchange.write(bytes);
  }
  exchange.events();
  for (const read of bytes) exchange.chunk(read);
  exchange.endChunks();
}

/** No server makes more tokens of a text than it has bytes. */
const longEnough = 'Say something. '.repeat(8);

const asked = (family: Family, flavor: string, stream: boolean) => ({
  model: flavor,
  turns: [{ role: 'user' as const, text: longEnough }],
  stream,
  maxTokens,
  ...(family.name === 'completions'
    ? {}
    : {
        tools: oddTools.map((name) => ({
          name,
          description: 'A tool.',
          parameters: { type: 'object', properties: {} },
        })),
      }),
});

/** What is charged for a prompt that nobody counts, by flavor and family. */
const promptTokens = new Map<string, number>();

async function promptTokensOf(family: Family, flavor: string): Promise<number> {
  const name = `${flavor} ${family.name}`;
  const known = promptTokens.get(name);
  if (known !== undefined) return known;
  playing = undefined;
  const answer = await ask(service, family, asked(family, flavor, false));
  assert.equal(answer.status, 200, answer.text);
  const { prompt } = family.readWhole(answer.text).usage;
  promptTokens.set(name, prompt);
  return prompt;
}

for (const only of ['chat', 'completions'] as const) {
  const known: Readonly<Record<string, AnswerFamily>> =
    only === 'chat' ? chatFamilies : { completions: completionFamily };
  const asking = families.filter(({ name }) => Object.hasOwn(known, name));

  test(`odd servers of ${only}: the same answers and charges in all families`, options, async () => {
    const first = Math.floor(Math.random() * 2 ** 31);
    const servers = oddServers.filter(({ completes }) => only === 'chat' || completes);
    for (let at = 0; at < seeds; at++) {
      const seed = first + at;
      const server = servers[at % servers.length]!;
      // Without figures, its deltas are its tokens.
      const isReported = flavors[server.flavor].hasTokenPerDelta;
      const odd = oddAnswer(seed, { only, server, isReported });
      // It may come when the answer is over, and is dropped then.
      if (odd.fault === 'text after the finish') continue;
      for (const family of asking) {
        for (const stream of [true, false]) {
          await check(odd, family, known[family.name]!, stream).catch((error: Error) => {
            const habits = JSON.stringify({ ...oddOnes(odd.habits), fault: odd.fault });
            assert.fail(
              `seed ${seed}, ${odd.server.name}, ${family.name}, ${stream ? 'streamed' : 'whole'}: ${habits}\n${error.message}`,
            );
          });
        }
      }
    }
  });
}

async function check(odd: OddAnswer, family: Family, known: AnswerFamily, stream: boolean): Promise<void> {
  const estimate = await promptTokensOf(family, odd.server.flavor);
  playing = odd;
  const answer = await ask(service, family, asked(family, odd.server.flavor, stream));
  const row = await new TestLedger(service).row(answer.id);
  if (odd.fault !== undefined) {
    assert.deepEqual([row.ending, row.costMicrocents], ['failed', 0n]);
    return assertFailure(family, answer, stream);
  }
  assert.equal(answer.status, 200, answer.text);
  const { prompt = estimate, cached, completion, isMarked } = odd.counted;
  const cost =
    BigInt(prompt - cached) * prices.input + BigInt(cached) * prices.cacheRead + BigInt(completion) * prices.output;
  assert.deepEqual(
    [row.ending, row.promptTokens, row.cachedTokens, row.completionTokens, row.costMicrocents, row.counted],
    ['finished', prompt, cached, completion, cost, isMarked],
  );
  checkGiven(odd, stream ? known.streamed(answer.text) : known.whole(answer.text), family.name, estimate);
}

function assertFailure(family: Family, { status, text }: FamilyAnswer, stream: boolean): void {
  if (status === 200) assert.ok(stream, text);
  else assert.ok(status >= 500, `${status} ${text}`);
  const error = status === 200 ? family.streamErrorOf(text) : family.errorOf(text);
  assert.equal(error.code.startsWith('backend_'), true, error.code);
}

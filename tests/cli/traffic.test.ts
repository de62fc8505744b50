/** What is recorded of the traffic, and what a trace of it says: the round trip from a real service to the simulator. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { policies } from '../../bench/simulate/policies.ts';
import { runFleet } from '../../bench/simulate/run-fleet.ts';
import { readTrace } from '../../bench/simulate/trace.ts';
import { traceOf, type TracedLine } from '../../src/cli/traffic-trace.ts';
import { recordedBlockCharacters } from '../../src/inference/routing/prompt-prefixes.ts';
import type { RecordedRequest } from '../../src/inference/pipeline/traffic-recorder.ts';
import { PrefixCache } from '../support/prefix-cache.ts';
import { InnerService } from '../support/service.ts';

const words = (about: string, characters: number): string =>
  `${about} `.repeat(characters / about.length).slice(0, characters);

let server: PrefixCache;
let service: InnerService;

before(async () => {
  server = await PrefixCache.start(512);
  const model = (id: string): string => `  - id: ${id}
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    zdr: { supported: true }
    backends: [{ engine: openai, flavor: vllm, url: "${server.upstream.url}", zdr: true }]
`;
  service = await new InnerService({
    config: `models:\n${model('m')}${model('other')}`,
    firstCreditCents: '1000',
  }).start();
});

after(async () => {
  await service.dispose();
  await server.upstream.close();
});

interface Asking {
  readonly model?: string;
  readonly zdr?: boolean;
  readonly turns: number;
}

/** A conversation of some turns, each with everything said before. */
async function converse(about: string, system: string, { model = 'm', zdr = false, turns }: Asking): Promise<void> {
  const messages: { role: string; content: string }[] = [{ role: 'system', content: system }];
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: 'user', content: words(`${about} ${turn}`, 3_000 + 600 * turn) });
    const answer = await service.chat({ model, messages }, zdr ? { headers: { 'service-zdr': 'required' } } : {});
    const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
    messages.push({ role: 'assistant', content: choices[0]!.message.content });
  }
}

async function exported(
  ...options: string[]
): Promise<{ readonly lines: readonly TracedLine[]; readonly text: string }> {
  const { code, stdout, stderr } = await service.command('traffic', 'export', ...options);
  assert.equal(code, 0, stderr);
  return {
    text: stdout,
    lines: stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as TracedLine),
  };
}

const record = async (...options: string[]): Promise<void> => {
  const { code, stderr } = await service.command('traffic', 'record', ...options);
  assert.equal(code, 0, stderr);
};

const sharedBlocks = (a: TracedLine, b: TracedLine): number => {
  let shared = 0;
  while (shared < a.hash_ids.length && a.hash_ids[shared] === b.hash_ids[shared]) shared++;
  return shared;
};

test('an exported trace has the blocks that prompts share, nothing else of them, and the hit rate that the service counted', async () => {
  await converse('before', words('unrecorded', 4_000), { turns: 1 });
  server.empty();
  Object.assign(server.counts, { prompt: 0, cached: 0 });
  await record('--minutes', '5');
  const system = words('You are the assistant of a harbour', 6_000);
  await converse('ships', system, { turns: 4 });
  await converse('cargo', system, { turns: 3 });
  await converse('weather', words('You say the weather', 2_500), { turns: 2 });

  const file = 'trace.jsonl';
  const { code, stdout, stderr } = await service.command('traffic', 'export', '-o', file);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^trace\.jsonl: 9 requests, from 20.*Z to 20.*Z$/m);
  const path = join(service.folder, file);
  const text = readFileSync(path, 'utf8');
  assert.doesNotMatch(text, /ships|cargo|harbour|acct_|key_|req_/);
  const lines = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as TracedLine);
  for (const { hash_ids: ids, input_length: tokens } of lines) assert.equal(ids.length, Math.ceil(tokens / 512));
  assert.deepEqual([lines[0]!.timestamp, lines[0]!.account, lines[0]!.hash_ids[0]], [0, 0, 0]);
  // Prompts end 64 tokens or more behind a block, so a turn has all whole blocks of the turn before; two conversations those of their system text; others nothing.
  for (const turn of [1, 2, 3])
    assert.equal(sharedBlocks(lines[turn - 1]!, lines[turn]!), Math.floor(lines[turn - 1]!.input_length / 512));
  assert.equal(sharedBlocks(lines[0]!, lines[4]!), Math.floor(6_000 / 4 / 512));
  assert.equal(sharedBlocks(lines[0]!, lines[7]!), 0);

  const shape = { servers: 1, cacheBlocks: 100_000, tokensPerSecond: 1e6 };
  const { hitRate } = runFleet(readTrace(path), shape, policies['least expected first token']!);
  const { prompt, cached } = server.counts;
  assert.ok(cached > 0);
  assert.equal(hitRate, cached / prompt);
  const { requests } = await service.usage(9);
  const sum = (of: (line: (typeof requests)[number]) => number): number =>
    requests.reduce((all, each) => all + of(each), 0);
  assert.equal(hitRate, sum((line) => line.cached_tokens) / sum((line) => line.prompt_tokens));
  const again = await service.command('traffic', 'export', '-o', file);
  assert.deepEqual([again.code, /is there already/.test(again.stderr)], [1, true]);
});

test('a prompt under zero data retention shares no blocks', async () => {
  await record();
  const system = words('You keep nothing', 6_000);
  await converse('secret', system, { turns: 2, zdr: true });
  await converse('open', system, { turns: 2 });
  const { lines } = await exported();
  assert.deepEqual(
    lines.map((line, at) => lines.slice(0, at).map((earlier) => sharedBlocks(earlier, line))),
    [[], [0], [0, 0], [0, 0, Math.floor(lines[2]!.input_length / 512)]],
  );
});

test('one model, and a span', async () => {
  await record('--model', 'other');
  await converse('a', words('b', 4_000), { turns: 1 });
  await converse('a', words('b', 4_000), { turns: 2, model: 'other' });
  assert.deepEqual(
    (await exported()).lines.map(({ model }) => model),
    ['other', 'other'],
  );
  for (const none of [
    ['--model', 'm'],
    ['--to', '2020-01-01'],
    ['--from', '2999-01-01'],
  ])
    assert.match((await service.command('traffic', 'export', ...none)).stderr, /No such traffic is recorded/);
  assert.match((await service.command('traffic', 'record', '--model', 'none')).stderr, /There is no model "none"/);
});

test('nothing is recorded that nobody asked for', async () => {
  await service.command('traffic', 'forget');
  await converse('a', words('b', 4_000), { turns: 1 });
  const { code, stderr } = await service.command('traffic', 'export');
  assert.equal(code, 1);
  assert.match(stderr, /No such traffic is recorded.*tokenhouse traffic record/s);
});

/** A recorded prompt of blocks with these hashes. Tokens are of two characters, so each is 128 of them. */
const recorded = (hashes: readonly number[], more: Partial<RecordedRequest> = {}): RecordedRequest => ({
  ...{ atMs: 0, model: 'm', account: 1, tier: 'default', cachedTokens: 0, completionTokens: 1 },
  promptTokens: 128 * hashes.length,
  characters: recordedBlockCharacters * hashes.length,
  blocks: Buffer.from(Int32Array.from(hashes, (hash) => hash << 8).buffer).toString('base64'),
  ...more,
});

for (const [what, requests, ids] of [
  ['the same prompt', [recorded([1, 2, 3, 4]), recorded([1, 2, 3, 4])], [[0], [0]]],
  ['less than a block alike', [recorded([1, 2, 3, 4]), recorded([1, 2, 3, 5])], [[0], [1]]],
  [
    'a longer one',
    [recorded([1, 2, 3, 4, 5]), recorded([1, 2, 3, 4, 6, 7, 8, 9])],
    [
      [0, 1],
      [0, 2],
    ],
  ],
  [
    'alike again after a difference',
    [recorded([1, 2, 3, 4, 5]), recorded([9, 2, 3, 4, 5])],
    [
      [0, 1],
      [2, 3],
    ],
  ],
  ['another model', [recorded([1, 2, 3, 4]), recorded([1, 2, 3, 4], { model: 'n' })], [[0], [1]]],
  [
    'no hashes',
    [recorded([], { promptTokens: 600 }), recorded([], { promptTokens: 600 })],
    [
      [0, 1],
      [2, 3],
    ],
  ],
  [
    'a server that counts more tokens',
    [recorded([1, 2, 3, 4]), recorded([1, 2, 3, 4], { promptTokens: 1_024 })],
    [[0], [0, 1]],
  ],
] as const)
  test(`blocks of a trace: ${what}`, () => {
    assert.deepEqual(
      [...traceOf(requests)].map((line) => line.hash_ids),
      ids,
    );
  });

test('accounts of a trace are numbered as they appear', () => {
  const lines = [...traceOf([7, 5, 7].map((account, atMs) => recorded([1], { account, atMs: 500 + atMs })))];
  assert.deepEqual(
    lines.map(({ account, timestamp }) => [account, timestamp]),
    [
      [0, 0],
      [1, 1],
      [0, 2],
    ],
  );
});

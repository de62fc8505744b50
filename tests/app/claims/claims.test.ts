/** What a card says of a backend is looked at: a server that keeps all of it, and one for each way to break it. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { lacksAfter, lookAtClaims, type ClaimReport } from '../../../src/app/claims.ts';
import type { OpenAiBackendConfig } from '../../../src/config/config.ts';
import { readEnvironment } from '../../../src/config/environment.ts';
import { readConfig } from '../../../src/config/read.ts';
import { scriptSchema } from '../../../src/inference/engines/scripted/script-schema.ts';
import type { ClaimName } from '../../../src/inference/claims/claims.ts';
import { LyingServer, type Lie } from './lying-server.ts';

const all: readonly ClaimName[] = [
  ...([
    'usage',
    'window',
    'abort',
    'tools',
    'tool_streaming',
    'json_object',
    'json_schema',
    'regex',
    'grammar',
  ] as const),
  ...(['vision', 'reasoning', 'logprobs', 'n', 'token_ids', 'min_p', 'top_k'] as const),
];

function configured(url: string, more = '') {
  const config = readConfig(
    `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { vision: true, reasoning: true }
    backends:
      - { engine: openai, flavor: vllm, url: "${url}"${more} }`,
    {
      ...{ directory: '/srv', file: '/srv/tokenhouse.yaml', environment: readEnvironment({ HOME: '/home/x' }) },
      scriptSchema,
    },
  );
  const [model] = config.models;
  return { model: model!, backend: model!.backends[0] as OpenAiBackendConfig, limits: config.server.limits };
}

async function look(t: TestContext, lies: readonly Lie[], more = ''): Promise<readonly ClaimReport[]> {
  const server = await LyingServer.start(...lies);
  t.after(() => server.upstream.close());
  const { model, backend, limits } = configured(server.url, more);
  return await lookAtClaims(model, backend, limits, AbortSignal.timeout(120_000));
}

const of = (reports: readonly ClaimReport[], state: ClaimReport['state']): readonly ClaimName[] =>
  reports.filter((report) => report.state === state).map(({ claim }) => claim);

test('a server that keeps every claim', async (t) => {
  const reports = await look(t, []);
  assert.deepEqual(
    reports.map(({ claim }) => claim),
    all,
  );
  assert.deepEqual(of(reports, 'kept'), all, JSON.stringify(reports.filter(({ state }) => state !== 'kept')));
});

const lies: readonly (readonly [Lie, readonly ClaimName[], RegExp])[] = [
  ['tools', ['tools', 'tool_streaming'], /another form|without the call/],
  ['tools_refused', ['tools', 'tool_streaming'], /refuses such a request/],
  // A call that has to be made is checked here, too.
  ['tool_streaming', ['tools', 'tool_streaming'], /another form/],
  ['json_object', ['json_object'], /another form/],
  ['json_schema', ['json_schema'], /another form/],
  ['grammar', ['regex', 'grammar'], /another form/],
  ['vision', ['vision'], /an image adds no tokens/],
  ['vision_refused', ['vision'], /refuses such a request/],
  ['reasoning', ['reasoning'], /without reasoning/],
  ['logprobs', ['logprobs'], /reports none/],
  ['n', ['n'], /such requests fail, and others do not/],
  ['token_ids', ['token_ids'], /returns none|refuses/],
  ['min_p', ['min_p'], /two answers/],
  ['top_k', ['top_k'], /two answers/],
  ['usage_missing', ['usage'], /reports no usage/],
  ['usage_made_up', ['usage'], /100 words more in a prompt are 0 tokens more/],
  ['window', ['window'], /window is 2048 tokens, the card says 4096/],
  ['abort', ['abort'], /goes on for more than 5 seconds/],
];
for (const [lie, broken, words] of lies)
  test(`a server that breaks ${lie} is found out, in that and nothing else`, async (t) => {
    const reports = await look(t, [lie]);
    assert.deepEqual(
      of(reports, 'broken').filter((claim) => !isBeside(lie, claim)),
      broken,
      JSON.stringify(reports),
    );
    for (const { claim, found } of reports) if (broken.includes(claim)) assert.match(found!, words);
  });

/** Without honest usage nobody can tell whether an image was read. */
const isBeside = (lie: Lie, claim: ClaimName): boolean => lie === 'usage_made_up' && claim === 'vision';

test('a server that fails is not said to break anything', async (t) => {
  const reports = await look(t, ['down']);
  assert.deepEqual(of(reports, 'broken'), []);
  assert.deepEqual(of(reports, 'kept'), ['window']);
});

test('what the file takes back is looked at too, and what is unknown stays as the file has it', async (t) => {
  const reports = await look(t, ['tools'], ', lacks: [logprobs, grammar]');
  assert.deepEqual(lacksAfter(['logprobs', 'grammar'], reports), ['tools', 'tool_streaming']);
  assert.deepEqual(lacksAfter(['logprobs', 'grammar'], []), ['grammar', 'logprobs']);
});

/** Why a prompt was in no cache, as receipts of a real service with two servers say it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { GenerationReceipt } from '../../../src/account-api/generation-object.ts';
import { PrefixCache } from '../../support/prefix-cache.ts';
import { InnerService } from '../../support/service.ts';

let servers: readonly [PrefixCache, PrefixCache];
let service: InnerService;

before(async () => {
  servers = [await PrefixCache.start(16), await PrefixCache.start(16)];
  const backends = servers.map(
    ({ upstream }, index) => `{ engine: openai, name: gpu-${index}, flavor: vllm, url: "${upstream.url}", zdr: true }`,
  );
  const config = `models:
  - id: m
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { tools: true }
    zdr: { supported: true }
    backends: [ ${backends.join(', ')} ]
`;
  service = await new InnerService({ config, firstCreditCents: '1000' }).start();
});

after(async () => {
  await service.dispose();
  for (const { upstream } of servers) await upstream.close();
});

interface Asked {
  readonly system: string;
  readonly question: string;
  readonly tools?: readonly string[];
}

const long = (about: string): string => `${about} `.repeat(8_000 / about.length);

async function ask(
  { system, question, tools }: Asked,
  headers: Record<string, string> = {},
): Promise<GenerationReceipt> {
  const answer = await service.chat(
    {
      model: 'm',
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: question },
      ],
      ...(tools === undefined
        ? {}
        : {
            tools: tools.map((name) => ({
              type: 'function',
              function: { name, description: long(name), parameters: { type: 'object' } },
            })),
          }),
    },
    { headers },
  );
  assert.equal(answer.status, 200, await answer.text());
  const { stdout } = await service.command('usage', '--json', '--limit', '1');
  return (JSON.parse(stdout) as { requests: GenerationReceipt[] }).requests[0]!;
}

for (const [what, asked, miss, said] of [
  [
    'the system text changed',
    { system: long('Other.') },
    { reason: 'changed', differs: { in: 'system', message: 0 } },
    /message 0 \(system\)/,
  ],
  [
    'a time in the system text',
    { system: `${long('Base.')} 12:31` },
    { reason: 'changed', differs: { in: 'system', message: 0 } },
    /message 0 \(system\)/,
  ],
  [
    'the question changed',
    { question: long('Why?') },
    { reason: 'changed', differs: { in: 'user', message: 1 } },
    /message 1 \(user\)/,
  ],
  [
    'the tools changed',
    { tools: ['look', 'write'] },
    { reason: 'changed', differs: { in: 'tools', message: null } },
    /Its tools differ/,
  ],
  ['nothing changed', {}, null, /^The answer is complete: all used tokens are charged\.$/],
] as const)
  test(`a prompt that is not in a cache: ${what}`, async () => {
    const base = { system: `${long('Base.')} 12:30`, question: long(`For ${what}.`), tools: ['look'] };
    await ask(base);
    const receipt = await ask({ ...base, ...asked });
    assert.deepEqual(receipt.cache_miss, miss);
    assert.match(receipt.explanation, said);
    assert.doesNotMatch(JSON.stringify(receipt.attempts), /Base|12:3|look/);
  });

test('a prompt that is not in a cache: another backend has it, which has just failed', async () => {
  const base = { system: long('Elsewhere.'), question: 'Well?' };
  const { backend } = await ask(base);
  const server = servers[backend === 'gpu-0' ? 0 : 1];
  server.isFailing = true;
  const receipt = await ask(base);
  server.isFailing = false;
  assert.notEqual(receipt.backend, backend);
  assert.deepEqual(receipt.cache_miss, { reason: 'elsewhere', differs: null });
});

test('a prompt that is not in a cache: the servers have evicted it', async () => {
  const base = { system: long('Evicted.'), question: 'Well?' };
  await ask(base);
  servers.forEach((server) => server.empty());
  const receipt = await ask(base);
  assert.deepEqual(receipt.cache_miss, { reason: 'evicted', differs: null });
  const { stdout } = await service.command('explain', receipt.request_id);
  assert.match(stdout, /tokens were expected in the cache of gpu-\d, and it reported 0/);
});

test('a prompt under zero data retention is compared with none', async () => {
  const base = { system: long('Nothing is kept.'), question: 'Well?' };
  const zdr = { 'service-zdr': 'required' };
  await ask(base, zdr);
  const receipt = await ask({ ...base, question: 'And?' }, zdr);
  assert.equal(receipt.cache_miss, null);
});

/** The embedded engine with adapters: each is a model of its own, computed by real llama.cpp with its file. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { checkGgufAdapter, readGgufHeader } from '../../../../src/inference/engines/llama/gguf-header.ts';
import { TestLedger } from '../../../support/test-ledger.ts';
import { TestService, until } from '../../../support/service.ts';
import { encodeGguf, writeTinyGguf, writeTinyLora } from '../../../support/tiny-gguf.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-adapters-'));
const tiny = {
  chatTemplate: '{%- for message in messages %}{{- message.content }}{%- endfor %}',
  contextLength: 2048,
  script: [
    ['<ask>', 'base', '<|im_end|>'],
    ['legal', '<|im_end|>'],
    ['sales', '<|im_end|>'],
  ],
};
const pathOf = (name: string): string => join(folder, `${name}.gguf`);
const fileOf = (name: string): string =>
  `sources: [ "file:${pathOf(name)}" ], sha256: ${createHash('sha256')
    .update(readFileSync(pathOf(name)))
    .digest('hex')}`;
let service: TestService;

before(async () => {
  writeTinyGguf(pathOf('base'), tiny);
  for (const name of ['legal', 'sales']) writeTinyLora(pathOf(name), tiny, '<ask>', name);
  service = await new TestService({
    config: `models:
  - id: base
    context_length: 2048
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
      - { id: legal, file: { ${fileOf('legal')} }, price_multiple: 2 }
      - { id: sales, file: { ${fileOf('sales')} }, price_multiple: 3 }
      - { id: faint, file: { ${fileOf('sales')} }, scale: 0.1 }
      - { id: wrong, file: { ${fileOf('base')} } }
    backends: [ { engine: llama, ${fileOf('base')}, slots: 2, threads: 1 } ]`,
  }).start();
  await loaded(4);
});

after(async () => {
  await service.verify();
  await service.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const loaded = (models: number) =>
  until(() => service.log.filter(({ event }) => event === 'llama_ready').length === models, 120_000);

const expected = [
  ['base', 'base'],
  ['legal', 'legal'],
  ['sales', 'sales'],
  ['faint', 'base'],
] as const;

async function said(model: string): Promise<string> {
  const answer = await service.chat({ model, messages: [{ role: 'user', content: '<ask>' }], temperature: 0 });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return (JSON.parse(text) as { choices: { message: { content: string } }[] }).choices[0]!.message.content;
}

test('each name is answered with its own adapter, and charged at its own price', async () => {
  for (const [model, text] of expected) assert.equal(await said(model), text, model);
  const asked = Array.from({ length: 16 }, (_, turn) => expected[turn % expected.length]!);
  assert.deepEqual(
    await Promise.all(asked.map(([model]) => said(model))),
    asked.map(([, text]) => text),
  );
  const perToken = { base: 100n, legal: 200n, sales: 300n, faint: 100n } as Record<string, bigint>;
  const rows = await new TestLedger(service).newest(100);
  assert.equal(rows.length, 20);
  for (const { modelId, promptTokens, completionTokens, costMicrocents } of rows)
    assert.equal(costMicrocents, BigInt(promptTokens + completionTokens) * perToken[modelId]!, modelId);
});

test('a file that is no adapter is named in the log, and the others serve', async () => {
  const failed = service.log.find(({ event }) => event === 'llama_failed');
  assert.match(JSON.stringify(failed), /"wrong".*its adapter is no LoRA/);
  const answer = await service.chat({ model: 'wrong', messages: [{ role: 'user', content: '<ask>' }] });
  assert.equal(answer.status, 503, await answer.text());
});

test('one is added to a running service by the command line, at the terms of its base or its own', async () => {
  writeTinyLora(pathOf('late'), tiny, '<ask>', 'sales');
  const added = await service.command(
    'models',
    'add',
    pathOf('late'),
    '--adapter-of',
    'base',
    '--price',
    '5/5',
    '--json',
  );
  assert.equal(added.code, 0, added.stderr);
  const { id, adapter_of, answer, is_in_force } = JSON.parse(added.stdout) as Record<string, unknown>;
  assert.deepEqual({ id, adapter_of, is_in_force }, { id: 'late', adapter_of: 'base', is_in_force: true });
  assert.equal(typeof answer, 'string');
  await loaded(5);
  assert.equal(await said('late'), 'sales');
  const [row] = await new TestLedger(service).newest(1);
  assert.equal(row!.costMicrocents, BigInt(row!.promptTokens + row!.completionTokens) * 500n);
  for (const [words, reason] of [
    [[pathOf('base'), '--id', 'not-one', '--adapter-of', 'base'], /its adapter is no LoRA/],
    [[pathOf('late'), '--id', 'twice', '--adapter-of', 'late'], /late is not an embedded model/],
    [[pathOf('late'), '--adapter-of', 'base'], /There is a model late already/],
  ] as const) {
    const refused = await service.command('models', 'add', ...words);
    assert.equal(refused.code, 1, refused.stdout);
    assert.match(refused.stderr, reason);
  }
});

test('an adapter is checked before llama.cpp sees it', async () => {
  const header = await readGgufHeader(pathOf('base'));
  assert.equal(await checkGgufAdapter(pathOf('legal'), header), readFileSync(pathOf('legal')).length);
  const other = { ...header, architecture: 'qwen3' };
  await assert.rejects(
    checkGgufAdapter(pathOf('legal'), other),
    /for the architecture "llama", and the model is "qwen3"/,
  );
  const bytes = readFileSync(pathOf('legal'));
  const cases: readonly (readonly [Buffer, RegExp])[] = [
    [bytes.subarray(0, 3), /too few for a GGUF file/],
    [bytes.subarray(0, bytes.length / 2), /./],
    [Buffer.from('GGML'.padEnd(200)), /not a GGUF file/],
    [encodeGguf(new Map([['general.type', { type: 'string', value: 'adapter' }]]), []), /no tensors/],
  ];
  for (const [content, reason] of cases) {
    writeFileSync(pathOf('bad'), content);
    await assert.rejects(checkGgufAdapter(pathOf('bad'), header), reason);
  }
});

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { ErrorCode } from '../../src/platform/errors.ts';
import { askChat, plainBody } from '../inference/http/chat.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { InnerService } from '../support/service.ts';

/**
 * A request is taken exactly when the card of its model says so: for each flag a model whose card has it and one whose card
 * has not (contracts decision 20), and both partitions of zero data retention (specification §4.2.3(5)).
 */
const tool = { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } };
const schema = { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object', properties: {} } } };
const reference = { $ref: '#/$defs/a', $defs: { a: { type: 'object', properties: {} } } };

interface Flag {
  /** As the file and the card call it; after a blank, what the file says elsewhere. */
  readonly name: string;
  /** What the file writes to take it away. */
  readonly off: string;
  readonly needs: Readonly<Record<string, unknown>>;
  readonly code: ErrorCode;
  readonly param: string;
}
const chatFlag = (name: string, needs: Flag['needs'], code: ErrorCode, param: string): Flag => ({
  name,
  off: `chat_completions: { ${name}: false }`,
  needs,
  code,
  param,
});
const flags: readonly Flag[] = [
  chatFlag('supported', {}, 'unsupported_feature', 'model'),
  chatFlag('streaming', { stream: true }, 'unsupported_feature', 'stream'),
  chatFlag('tools', { tools: [tool] }, 'unsupported_feature', 'tools'),
  chatFlag('tool_streaming', { tools: [tool], stream: true }, 'unsupported_feature', 'tools'),
  chatFlag(
    'json_object',
    { response_format: { type: 'json_object' } },
    'unsupported_response_format',
    'response_format.type',
  ),
  chatFlag('json_schema', { response_format: schema }, 'unsupported_response_format', 'response_format.type'),
  chatFlag(
    'json_schema_refs',
    { response_format: { ...schema, json_schema: { name: 'a', schema: reference } } },
    'json_schema_refs_unsupported',
    'response_format.json_schema.schema',
  ),
  chatFlag(
    'tools_with_response_format',
    { tools: [tool], response_format: schema },
    'unsupported_feature',
    'response_format',
  ),
  chatFlag('n', { n: 2 }, 'unsupported_feature', 'n'),
  chatFlag('regex', { regex: '[a-z]+' }, 'unsupported_regex', 'regex'),
  chatFlag(
    'grammar',
    { response_format: { type: 'grammar', grammar: 'root ::= "a"' } },
    'unsupported_response_format',
    'response_format.type',
  ),
  {
    name: 'logprobs',
    off: 'logprobs: false',
    needs: { logprobs: true },
    code: 'unsupported_parameter',
    param: 'logprobs',
  },
  {
    name: 'logit_bias',
    off: 'logit_bias: false',
    needs: { logit_bias: { '5': 1 } },
    code: 'unsupported_parameter',
    param: 'logit_bias',
  },
];

const model = (id: string, settings: string): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${settings.replaceAll('\n', '\n    ')}
    backends: [ { engine: scripted, zdr: true, scripts: [ { say: [ { text: hello } ] } ] } ]`;
const service = new InnerService({
  config: `models:
${flags.map(({ name, off }) => model(`no-${name}`, `capabilities: { ${off} }`)).join('')}
${flags
  .filter(({ name }) => !['supported', 'tools'].includes(name))
  .map(({ name, off }) => model(`zdr-${name}`, `capabilities: { ${off} }\nzdr: { ${name}: true }`))
  .join('')}
${model('all', 'capabilities: { logprobs: true, logit_bias: true }')}
${model('without', 'zdr: { supported: false }')}`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const ask = (id: string, needs: Flag['needs'], isZdr = false) =>
  askChat(service, { ...plainBody, ...needs, model: id }, isZdr ? [['Service-ZDR', 'required']] : []);

for (const { name, needs, code, param } of flags) {
  test(`§2.3 ${name}: taken by a model whose card has it, refused by one whose card has not`, async () => {
    const taken = await ask('all', needs);
    assert.equal(taken.status, 200, taken.body);
    assertEnvelope(await ask(`no-${name}`, needs), code, { param });
    if (name !== 'supported') assert.equal((await ask(`no-${name}`, {})).status, 200, 'the rest is taken');
  });

  if (name === 'supported' || name === 'tools') continue;
  test(`§4.2.3(5) ${name} only with Service-ZDR: required`, async () => {
    assertEnvelope(await ask(`zdr-${name}`, needs), code, { param });
    const taken = await ask(`zdr-${name}`, needs, true);
    assert.equal(taken.status, 200, taken.body);
  });
}

test('§2.3 zdr: taken where the card says supported, else model_zdr_not_supported', async () => {
  assert.equal((await ask('all', {}, true)).status, 200);
  assertEnvelope(await ask('without', {}, true), 'model_zdr_not_supported', { param: 'model' });
});

test('§2.3 the cards say exactly what was refused', async () => {
  const { data } = (await exchange(service.url, { path: '/v1/models' })).json() as {
    data: { id: string; service: { capabilities: Record<string, Record<string, boolean>> } }[];
  };
  for (const { id, service: of } of data) {
    const [, kind, name = ''] = /^(no|zdr)-(.*)$/.exec(id) ?? [];
    const { chat_completions: chat = {}, zdr } = of.capabilities;
    if (kind !== undefined && name in chat) assert.equal(chat[name], false, id);
    assert.deepEqual(zdr, { supported: id !== 'without', same_capabilities: kind === 'no' || id === 'all' }, id);
  }
});

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Model } from '../../../src/catalog/model.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { checkFeatures } from '../../../src/inference/pipeline/features.ts';
import { capableModel, chatFlags, chatRequest, textCapabilities, withoutFlags } from './models.ts';
import type { ChatFlag } from './models.ts';

const tools = [{ type: 'function', function: { name: 'f' } }];
const schema = { type: 'json_schema', json_schema: { name: 's', schema: {} } };

/** Contracts decision 20, a row for each flag: the request that needs it, and how it is refused without. */
const rows: readonly (readonly [ChatFlag, Record<string, unknown>, string])[] = [
  ['supported', {}, 'unsupported_feature model'],
  ['streaming', { stream: true }, 'unsupported_feature stream'],
  ['tools', { tools }, 'unsupported_feature tools'],
  ['toolStreaming', { tools, stream: true }, 'unsupported_feature tools'],
  ['jsonObject', { response_format: { type: 'json_object' } }, 'unsupported_response_format response_format.type'],
  ['jsonSchema', { response_format: schema }, 'unsupported_response_format response_format.type'],
  [
    'grammar',
    { response_format: { type: 'grammar', grammar: 'root ::= "a"' } },
    'unsupported_response_format response_format.type',
  ],
  ['toolsWithResponseFormat', { tools, response_format: schema }, 'unsupported_feature response_format'],
  ['regex', { regex: 'a+' }, 'unsupported_regex regex'],
  ['n', { n: 2 }, 'unsupported_feature n'],
  ['logprobs', { logprobs: true }, 'unsupported_parameter logprobs'],
  ['logitBias', { logit_bias: { 50256: -100 } }, 'unsupported_parameter logit_bias'],
];

for (const [flag, fields, expected] of rows) {
  test(`decision 20: ${flag}`, () => {
    assert.equal(outcome(fields, capableModel), 'accepted');
    assert.equal(outcome(fields, withoutFlags(flag)), expected);
  });
}

test('a model without a flag takes every request that does not need it', () => {
  for (const [flag] of rows) {
    if (flag === 'supported') continue;
    for (const [other, fields] of rows) {
      const needs =
        other === flag ||
        (flag === 'tools' && 'tools' in fields) ||
        (flag === 'jsonSchema' && 'response_format' in fields && other === 'toolsWithResponseFormat') ||
        (flag === 'streaming' && 'stream' in fields);
      if (!needs) assert.equal(outcome(fields, withoutFlags(flag)), 'accepted', `${flag}: ${other}`);
    }
  }
});

test('every flag of the card is in the table, or refuses nothing', () => {
  // A missing json_schema_refs makes the references a fault of the schema, not the schema a fault of the request.
  const covered = [...rows.map(([flag]) => flag), 'jsonSchemaRefs'].sort();
  assert.deepEqual(Object.keys(capableModel.capabilities.chat).sort(), covered);
});

test('what says that a feature is not wanted needs no flag', () => {
  const nothing = withoutFlags(
    'streaming',
    'tools',
    'n',
    'logprobs',
    'logitBias',
    'regex',
    'jsonSchema',
    'jsonObject',
    'grammar',
  );
  const harmless = {
    stream: false,
    tools: [],
    n: 1,
    logprobs: false,
    logit_bias: null,
    regex: null,
    response_format: { type: 'text' },
  };
  assert.equal(outcome(harmless, nothing), 'accepted');
  assert.equal(outcome({ tool_choice: 'none', parallel_tool_calls: false }, nothing), 'accepted');
});

test('the first model refuses what is not built yet, each by its name', () => {
  const model: Model = { ...capableModel, capabilities: textCapabilities };
  for (const [flag, fields, expected] of rows) {
    const reported = outcome(fields, model);
    if (flag === 'supported' || flag === 'streaming') assert.equal(reported, 'accepted', flag);
    else if (flag === 'toolsWithResponseFormat') assert.equal(reported, 'unsupported_feature tools', flag);
    else assert.equal(reported, expected, flag);
  }
});

test('§4.2.2(5): a model that always reasons takes no forced tool choice', () => {
  const always: Model = {
    ...capableModel,
    capabilities: { ...capableModel.capabilities, efforts: ['low', 'high'], defaultEffort: 'low' },
  };
  const named = { type: 'function', function: { name: 'f' } };
  for (const choice of ['required', named]) {
    assert.equal(outcome({ tools, tool_choice: choice }, always), 'unsupported_feature tool_choice');
    assert.equal(outcome({ tools, tool_choice: choice }, capableModel), 'accepted');
  }
  for (const choice of ['auto', 'none', null])
    assert.equal(outcome({ tools, tool_choice: choice }, always), 'accepted');
});

function outcome(fields: Record<string, unknown>, model: Model): string {
  try {
    checkFeatures(chatRequest(fields), model, chatFlags(model));
    return 'accepted';
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.status, 400);
    assert.ok(error.message.includes(`'${model.id}'`));
    return `${error.code} ${error.param}`;
  }
}

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { completions } from '../../../src/inference/dialects/completions/completions.ts';
import { decodeCompletionRequest } from '../../../src/inference/dialects/completions/request.ts';
import { parseJson } from '../../../src/platform/http/json/parse.ts';
import { ApiError, errorBody } from '../../../src/platform/errors.ts';
import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import { checkFeatures } from '../../../src/inference/pipeline/features.ts';
import { fit } from '../../../src/inference/pipeline/fit.ts';
import type { InferenceRoute } from '../../../src/inference/pipeline/route.ts';
import { capableModel } from '../pipeline/models.ts';

const route = inferenceRoutes.get('/v1/completions') as InferenceRoute;
const valid = '"model":"m","prompt":"x"';

/** Everything of a request that is pure, on a model that can do everything. */
async function outcome(body: string | object): Promise<string> {
  try {
    const request = decodeCompletionRequest(typeof body === 'string' ? parseJson(Buffer.from(body)) : body);
    checkFeatures(request, capableModel, route.flags(capableModel.capabilities));
    await fit(
      { ...request, reasoningRoomTokens: 0 },
      capableModel,
      route,
      () => Promise.resolve(undefined),
      () => [],
    );
    const printed = JSON.stringify(request);
    assert.ok(!/\\ud[89a-f]/.test(printed), 'half a character goes on');
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const answer = completions.encodeError(errorBody(error, 'req_0123456789ab', 'http://localhost:8081'));
    assert.ok(answer.length < 2_000, 'an error does not repeat what the client sent');
    return `${error.code} ${error.param ?? '-'}`;
  }
}

const deepLists = '['.repeat(240) + ']'.repeat(240);
const deepObjects = '{"a":'.repeat(240) + '1' + '}'.repeat(240);

test('nesting as deep as a body may be is refused by name or ignored, in every field', async () => {
  const table: readonly (readonly [(deep: string) => string, RegExp])[] = [
    [(deep) => `{${valid},"no_such_field":${deep}}`, /^accepted$/],
    [(deep) => `{${valid},"stream_options":{"a":${deep}}}`, /^accepted$/],
    [(deep) => `{"model":"m","prompt":${deep}}`, /^schema_validation_failed prompt/],
    [(deep) => `{"model":"m","prompt":[${deep}]}`, /^schema_validation_failed prompt/],
    [(deep) => `{${valid},"stop_token_ids":${deep}}`, /^schema_validation_failed stop_token_ids/],
    [(deep) => `{${valid},"logit_bias":{"5":${deep}}}`, /^schema_validation_failed logit_bias.5$/],
    [
      (deep) => `{${valid},"structured_outputs":{"json":{"a":${deep}}}}`,
      /^schema_validation_failed structured_outputs.json$/,
    ],
    [
      (deep) => `{${valid},"response_format":{"type":"json_schema","json_schema":{"schema":{"a":${deep}}}}}`,
      /^schema_validation_failed response_format.json_schema.schema$/,
    ],
    [(deep) => `{${valid},"json_schema":${JSON.stringify(`{"a":${deep}}`)}}`, /^schema_validation_failed json_schema$/],
  ];
  for (const [body, expected] of table)
    for (const deep of [deepLists, deepObjects]) assert.match(await outcome(body(deep)), expected, body('…'));
});

test('halves of characters become whole ones, wherever text goes on', async () => {
  const half = '\\ud83d';
  for (const fields of [
    `"model":"m","prompt":"${half}"`,
    `"model":"m","prompt":["a","${half}"]`,
    `${valid},"stop":["${half}"]`,
    `${valid},"ebnf":"root ::= \\"${half}\\""`,
    `${valid},"regex":"${half}"`,
    `${valid},"structured_outputs":{"choice":["${half}"]}`,
    `${valid},"response_format":{"type":"grammar","grammar":"${half}"}`,
  ])
    assert.equal(await outcome(`{${fields}}`), 'accepted', fields);
  assert.equal(
    await outcome(`{${valid},"structured_outputs":{"json":{"a":"${half}"}}}`),
    'schema_validation_failed structured_outputs.json',
  );
});

test('numbers beyond what doubles hold, and ids beyond what tokens are', async () => {
  const table: readonly (readonly [string, string])[] = [
    ['"max_tokens":1e999', 'schema_validation_failed max_tokens'],
    ['"max_tokens":1e308', 'accepted'],
    ['"max_tokens":0', 'schema_validation_failed max_tokens'],
    ['"max_tokens":-1', 'schema_validation_failed max_tokens'],
    ['"min_tokens":1e999', 'schema_validation_failed min_tokens'],
    ['"min_tokens":1e308', 'accepted'],
    ['"min_tokens":5,"max_tokens":4', 'schema_validation_failed min_tokens'],
    ['"n":129', 'schema_validation_failed n'],
    ['"best_of":1e999', 'schema_validation_failed best_of'],
    ['"best_of":1e308', 'unsupported_parameter best_of'],
    ['"logprobs":-1', 'schema_validation_failed logprobs'],
    ['"logprobs":5.5', 'schema_validation_failed logprobs'],
    ['"stop_token_ids":[-1]', 'schema_validation_failed stop_token_ids[0]'],
    ['"stop_token_ids":[4294967296]', 'schema_validation_failed stop_token_ids[0]'],
    ['"seed":1e999', 'schema_validation_failed seed'],
    ['"temperature":1e999', 'schema_validation_failed temperature'],
    ['"prompt":[9007199254740993]', 'accepted'],
    ['"prompt":[1e308]', 'accepted'],
    ['"prompt":[1e999]', 'schema_validation_failed prompt[0]'],
    ['"prompt":[-0]', 'accepted'],
    ['"prompt":[[1],[-3]]', 'unsupported_value prompt[1][0]'],
    ['"echo":"yes"', 'schema_validation_failed echo'],
    ['"echo":1', 'schema_validation_failed echo'],
  ];
  for (const [field, expected] of table) assert.equal(await outcome(`{${valid},${field}}`), expected, field);
});

test('names that objects have of themselves are only names', async () => {
  for (const name of ['__proto__', 'constructor', 'toString']) {
    assert.equal(await outcome(`{${valid},"${name}":{"stream":true}}`), 'accepted');
    assert.equal(
      await outcome(`{${valid},"response_format":{"type":"${name}"}}`),
      'unsupported_response_format response_format.type',
    );
  }
});

test('values of the client come back short', async () => {
  const long = 'k'.repeat(1_000_000);
  assert.equal(
    await outcome(`{${valid},"response_format":{"type":"${long}"}}`),
    'unsupported_response_format response_format.type',
  );
  assert.equal(await outcome(`{${valid},"json_schema":"${long}"}`), 'unsupported_value json_schema');
  assert.equal(await outcome(`{${valid},"suffix":"${long}"}`), 'unsupported_parameter suffix');
});

test('a long list with a fault is refused, and one without is only counted', async () => {
  const many = new Array<number>(3_000_000).fill(1);
  assert.equal(await outcome({ model: 'm', prompt: many }), 'context_length_exceeded prompt');
  assert.match(await outcome({ model: 'm', prompt: [...many, 'x'] }), /^schema_validation_failed prompt\[\d+\]$/);
  assert.equal(
    await outcome({ model: 'm', prompt: new Array<string>(1_000_000).fill('a') }),
    'schema_validation_failed prompt',
  );
  assert.equal(
    await outcome({ model: 'm', prompt: 'x', stop_token_ids: many }),
    'schema_validation_failed stop_token_ids',
  );
});

test('what is not a JSON object', async () => {
  for (const text of ['[]', 'null', '5', '"x"', 'true'])
    assert.equal(await outcome(text), 'schema_validation_failed -');
  for (const text of ['', '{', '{"a":NaN}']) assert.equal(await outcome(text), 'invalid_json_request -');
});

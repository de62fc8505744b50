import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { responses } from '../../../src/inference/dialects/responses/responses.ts';
import { parseJson } from '../../../src/platform/http/json/parse.ts';
import { ApiError, errorBody } from '../../../src/platform/errors.ts';
import { Fold } from '../../../src/generation/fold.ts';
import { checkFeatures } from '../../../src/inference/pipeline/features.ts';
import { checkTools } from '../../../src/inference/pipeline/tool-rules.ts';
import { capableModel, chatFlags } from '../pipeline/models.ts';
import { plainSigner } from '../../support/plain-signer.ts';

const head = { requestId: 'r', id: '00'.repeat(16), created: 1, model: 'm', signer: plainSigner };

/** Everything of a request that is pure, on a model that can do everything; and an answer that repeats it. */
function outcome(body: string | object, items?: ReadonlyMap<string, unknown>): string {
  try {
    const json = typeof body === 'string' ? parseJson(Buffer.from(body)) : body;
    const { request, format } = responses.decodeRequest(json, { headers: {}, items });
    checkTools(request);
    checkFeatures(request, capableModel, chatFlags(capableModel));
    // What goes on to an engine can be printed, and is text that any server takes.
    assert.ok(!/\\ud[89a-f]/.test(JSON.stringify(request)), 'half a character goes on');
    const fold = new Fold();
    fold.read([{ type: 'finish', choice: 0, reason: 'stop' }]);
    JSON.parse(format.encodeResponse(fold.generation(), head));
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const answer = responses.encodeError(errorBody(error, 'req_0123456789ab', 'http://localhost:8081'));
    assert.ok(answer.length < 2_000, 'an error does not repeat what the client sent');
    return `${error.code} ${error.param ?? '-'}`;
  }
}

const deepLists = '['.repeat(240) + ']'.repeat(240);
const valid = '"model":"m","input":"x"';

test('nesting as deep as a body may be is refused by name or ignored, in every field', () => {
  for (const [body, expected] of [
    [`{${valid},"no_such_field":${deepLists}}`, 'accepted'],
    [`{${valid},"stream_options":{"a":${deepLists}}}`, 'accepted'],
    [`{${valid},"previous_response_id":${deepLists}}`, 'unsupported_parameter previous_response_id'],
    [`{${valid},"metadata":{"a":${deepLists}}}`, 'schema_validation_failed metadata.a'],
    [`{${valid},"tools":[{"type":"web_search","a":${deepLists}}]}`, 'schema_validation_failed tools[0]'],
    [
      `{${valid},"tools":[{"type":"function","name":"a","parameters":${deepLists}}]}`,
      'schema_validation_failed tools[0]',
    ],
    [
      `{${valid},"tool_choice":{"type":"allowed_tools","mode":"auto","tools":${deepLists}}}`,
      'schema_validation_failed tool_choice',
    ],
    [
      `{${valid},"text":{"format":{"type":"json_schema","name":"n","schema":{"a":${deepLists}}}}}`,
      'schema_validation_failed text.format.schema',
    ],
    [`{"model":"m","input":${deepLists}}`, 'schema_validation_failed input[0]'],
    [`{"model":"m","input":[{"type":"web_search_call","a":${deepLists}},{"role":"user","content":"x"}]}`, 'accepted'],
    [`{"model":"m","input":[{"role":"user","content":${deepLists}}]}`, 'schema_validation_failed input[0].content[0]'],
  ] as const)
    assert.equal(outcome(body), expected, body.slice(0, 80));
});

test('half a character, names of prototypes and infinite numbers do no harm', () => {
  const half = '\\ud800';
  for (const body of [
    `{"model":"m","input":"${half}"}`,
    `{${valid},"instructions":"${half}","metadata":{"${half}":"${half}"},"prompt_cache_key":"${half}","user":"${half}"}`,
    `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"${half}"}]}]}`,
    `{"model":"m","input":[{"type":"function_call","call_id":"${half}","name":"${half}","arguments":"${half}"},{"role":"user","content":"x"}]}`,
    `{"model":"m","input":[{"type":"custom_tool_call","call_id":"c","name":"n","input":"${half}"},{"role":"user","content":"x"}]}`,
    `{"model":"m","input":[{"type":"reasoning","summary":[{"text":"${half}"}]},{"role":"user","content":"x"}],"preserve_thinking":true}`,
    `{${valid},"__proto__":{"stream":true},"constructor":{"prototype":1}}`,
    `{${valid},"stop":["${half}"]}`,
  ])
    assert.equal(outcome(body), 'accepted', body);
  for (const body of [
    `{${valid},"tools":[{"type":"function","name":"${half}"}]}`,
    `{${valid},"temperature":1e999}`,
    `{${valid},"tools":[{"type":"mcp","a":1e999}]}`,
    `{"model":"m","input":[{"type":"__proto__"}]}`,
    `{"model":"m","input":[{"type":"constructor","role":"user"}]}`,
  ])
    assert.notEqual(outcome(body), 'accepted', body);
});

test('references are bounded, and lead to items only', () => {
  const references = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ type: 'item_reference', id: `rs_${index}` }));
  assert.equal(outcome({ model: 'm', input: references(4096) }), 'accepted');
  assert.equal(outcome({ model: 'm', input: references(4097) }), 'unsupported_value input[4096]');
  const loop = new Map([['msg_1', { type: 'item_reference', id: 'msg_1' }]]);
  assert.equal(
    outcome({ model: 'm', input: [{ type: 'item_reference', id: 'msg_1' }] }, loop),
    'unsupported_value input[0]',
  );
});

test('many items are read once each', () => {
  const items = Array.from({ length: 100_000 }, () => ({ role: 'assistant', content: 'x' }));
  assert.equal(outcome({ model: 'm', input: [{ role: 'user', content: 'a' }, ...items] }), 'accepted');
});

test('whatever stands in a field, a request is taken or refused in words', () => {
  const value = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom<unknown>('', 'auto', 'required', -1, 1e308, true, null, [], {}, [{}], [null], { type: 'function' }),
  );
  const item = fc.record(
    {
      type: fc.constantFrom<unknown>(
        'message',
        'reasoning',
        'function_call',
        'function_call_output',
        'item_reference',
        'x',
        5,
      ),
      role: fc.constantFrom<unknown>('user', 'assistant', 'tool', 1),
      id: value,
      content: fc.oneof(
        value,
        fc.array(
          fc.record(
            {
              type: fc.constantFrom('input_text', 'input_image', 'input_file', 'refusal'),
              text: value,
              image_url: value,
              file_id: value,
              file_data: value,
              refusal: value,
            },
            { requiredKeys: ['type'] },
          ),
        ),
      ),
      summary: value,
      encrypted_content: value,
      call_id: value,
      name: value,
      arguments: value,
      output: value,
    },
    { requiredKeys: [] },
  );
  const names = [
    'instructions',
    'tools',
    'tool_choice',
    'text',
    'reasoning',
    'include',
    'metadata',
    'store',
    'stop',
    'truncation',
    'max_output_tokens',
    'top_logprobs',
    'prompt',
    'user',
  ];
  fc.assert(
    fc.property(
      fc.oneof(fc.array(item, { maxLength: 4 }), value),
      fc.constantFrom(...names),
      value,
      (input, name, other) => {
        assert.match(outcome({ model: 'm', input, [name]: other }), /^(accepted|[a-z_]+ \S.*)$/s);
      },
    ),
    { numRuns: 3000 },
  );
});

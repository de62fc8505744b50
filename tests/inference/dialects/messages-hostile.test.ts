import assert from 'node:assert/strict';
import { test } from 'node:test';

import { messages, messageCount } from '../../../src/inference/dialects/messages/messages.ts';
import { parseJson } from '../../../src/platform/http/json/parse.ts';
import { ApiError, errorBody } from '../../../src/platform/errors.ts';
import { inferenceRoutes } from '../../../src/inference/http/routes.ts';
import { resolveEffort } from '../../../src/inference/pipeline/effort.ts';
import { checkFeatures } from '../../../src/inference/pipeline/features.ts';
import { fit } from '../../../src/inference/pipeline/fit.ts';
import { resolveParts } from '../../../src/inference/pipeline/resolve.ts';
import { checkTools } from '../../../src/inference/pipeline/tool-rules.ts';
import { capableModel } from '../pipeline/models.ts';
import { defaultImageRules } from '../../support/image-settings.ts';

const route = inferenceRoutes.get('/v1/messages')!;
const valid = '"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]';

/** Everything of a request that is pure, on a model that can do everything; then what an engine does with it. */
async function outcome(body: string | object): Promise<string> {
  try {
    const json = typeof body === 'string' ? parseJson(Buffer.from(body)) : body;
    const { request } = messages.decodeRequest(json, { headers: {}, items: undefined });
    messageCount.decodeRequest(json, { headers: {}, items: undefined });
    checkTools(request);
    const prompt = await resolveParts(request.prompt, true, defaultImageRules, new AbortController().signal);
    checkFeatures(request, capableModel, route.flags(capableModel.capabilities));
    resolveEffort(request.effort, capableModel, route);
    await fit(
      { ...request, prompt, reasoningRoomTokens: 0 },
      capableModel,
      route,
      () => Promise.resolve(undefined),
      () => [],
    );
    // What goes on to an engine can be printed, and is text that any server takes.
    assert.ok(!/\\ud[89a-f]/.test(JSON.stringify({ ...request, prompt })), 'half a character goes on');
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const answer = messages.encodeError(errorBody(error, 'req_0123456789ab', 'http://localhost:8081'));
    assert.ok(answer.length < 2_000, 'an error does not repeat what the client sent');
    return `${error.code} ${error.param ?? '-'}`;
  }
}

const nest = (depth: number, open = '[', close = ']'): string => open.repeat(depth) + close.repeat(depth);
/** As deep as a body may be, with what stands around it. */
const deepLists = nest(230);
const deepObjects = nest(230, '{"a":', '}').replace('}', '1}');
const message = (content: string, role = 'user'): string =>
  `{"model":"m","max_tokens":9,"messages":[{"role":"${role}","content":${content}}]}`;

test('nesting as deep as a body may be is refused by name or ignored, in every field', async () => {
  const table: readonly (readonly [(deep: string) => string, string])[] = [
    [(deep) => `{${valid},"no_such_field":${deep}}`, 'accepted'],
    [(deep) => `{${valid},"metadata":${deep},"context_management":${deep},"container":${deep}}`, 'accepted'],
    [(deep) => `{${valid},"thread":${deep}}`, 'unsupported_parameter thread'],
    [(deep) => message(`[{"type":"text","text":"x","cache_control":${deep}}]`), 'accepted'],
    [(deep) => message(`[{"type":"text","text":${deep}}]`), 'schema_validation_failed messages[0].content[0].text'],
    [
      (deep) => message(`[{"type":"image","source":{"type":${deep}}}]`),
      'schema_validation_failed messages[0].content[0].source.type',
    ],
    [
      (deep) => message(`[{"type":"tool_use","id":"i","name":"n","input":{"a":${deep}}}]`, 'assistant'),
      'schema_validation_failed messages[0].content[0].input',
    ],
    [(deep) => `{${valid},"max_tokens":${deep}}`, 'schema_validation_failed max_tokens'],
    [(deep) => `{${valid},"stop_sequences":[${deep}]}`, 'schema_validation_failed stop_sequences[0]'],
    [(deep) => `{${valid},"thinking":{"type":${deep}}}`, 'schema_validation_failed thinking.type'],
    [
      (deep) => `{${valid},"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":${deep}}}}]}`,
      'schema_validation_failed tools[0].input_schema',
    ],
    [(deep) => `{${valid},"tools":[{"type":"bash_20250124","name":"b","x":${deep}}]}`, 'accepted'],
    [
      (deep) => `{${valid},"output_config":{"format":{"type":"json_schema","schema":{"a":${deep}}}}}`,
      'schema_validation_failed output_config.format.schema',
    ],
    [
      (deep) => `{${valid},"output_format":{"type":"json_schema","schema":{"a":${deep}}}}`,
      'schema_validation_failed output_format.schema',
    ],
  ];
  for (const [template, expected] of table) {
    assert.equal(await outcome(template(deepLists)), expected, template('…'));
    assert.equal(await outcome(template(deepObjects)), expected, template('…'));
    assert.equal(await outcome(template(nest(100_000))), 'invalid_json_request -', template('…'));
  }
});

test('property names that objects have from birth are names like any other', async () => {
  const table: readonly (readonly [string, string])[] = [
    [`{"__proto__":{${valid}}}`, 'invalid_json_request model'],
    [`{${valid},"constructor":5,"toString":null,"hasOwnProperty":1}`, 'accepted'],
    [message('[{"__proto__":{"type":"text"},"text":"x"}]'), 'schema_validation_failed messages[0].content[0].type'],
    [message('[{"type":"__proto__"}]'), 'unsupported_value messages[0].content[0].type'],
    [message('[{"type":"constructor"}]', 'assistant'), 'unsupported_value messages[0].content[0].type'],
    [
      message('[{"type":"image","source":{"type":"__proto__"}}]'),
      'unsupported_value messages[0].content[0].source.type',
    ],
    [`{${valid},"output_config":{"effort":"__proto__"}}`, 'unsupported_value output_config.effort'],
    [
      `{${valid},"output_config":{"format":{"type":"__proto__"}}}`,
      'unsupported_response_format output_config.format.type',
    ],
    [`{${valid},"tool_choice":{"type":"tool","name":"__proto__"}}`, 'tool_choice_unknown_tool tool_choice.name'],
    [
      `{${valid},"tools":[{"name":"f","input_schema":{"__proto__":{"type":"object"}}}]}`,
      'tool_schema_invalid tools[0].input_schema',
    ],
  ];
  for (const [text, expected] of table) assert.equal(await outcome(text), expected, text);
});

test('halves of characters do not leave the decoder', async () => {
  const half = '\\ud800';
  const table: readonly string[] = [
    message(`"a${half}b"`),
    message(
      `[{"type":"text","text":"${half}"},{"type":"document","title":"${half}","context":"${half}","source":{"type":"text","data":"${half}"}},{"type":"search_result","title":"${half}","source":"${half}","content":[{"type":"text","text":"${half}"}]}]`,
    ),
    `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"${half}"}],"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"${half}"},{"type":"tool_use","id":"${half}","name":"${half}"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"${half}","content":[{"type":"tool_reference","tool_name":"${half}"}]}]}]}`,
    `{${valid},"stop_sequences":["${half}"],"system":"${half}"}`,
    `{${valid},"tools":[{"name":"${half}","description":"${half}","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"${half}"}}`,
  ];
  for (const text of table) assert.equal(await outcome(text), 'accepted', text);
  // Signatures are compared with what was sent, and go no further.
  assert.equal(
    await outcome(
      message(
        `[{"type":"thinking","thinking":"x","signature":"a"},{"type":"tool_use","id":"i","name":"n"}]`,
        'assistant',
      ),
    ),
    'accepted',
  );
  // Neither a schema nor arguments are ours to change.
  for (const schema of [`{"description":"${half}"}`, `{"${half}":1}`]) {
    assert.equal(
      await outcome(`{${valid},"tools":[{"name":"f","input_schema":${schema}}]}`),
      'schema_validation_failed tools[0].input_schema',
    );
    assert.equal(
      await outcome(message(`[{"type":"tool_use","id":"i","name":"n","input":${schema}}]`, 'assistant')),
      'schema_validation_failed messages[0].content[0].input',
    );
  }
});

test('numbers beyond what doubles hold', async () => {
  const table: readonly (readonly [string, string])[] = [
    ['"max_tokens":1e999', 'schema_validation_failed max_tokens'],
    ['"max_tokens":-1', 'schema_validation_failed max_tokens'],
    // §4.2.1(3): larger than the window, ignored.
    ['"max_tokens":9007199254740993', 'accepted'],
    ['"max_tokens":1e308', 'accepted'],
    ['"max_tokens":1.5', 'schema_validation_failed max_tokens'],
    ['"temperature":1e999', 'schema_validation_failed temperature'],
    ['"top_k":1e999', 'schema_validation_failed top_k'],
    ['"thinking":{"type":"enabled","budget_tokens":1e999}', 'schema_validation_failed thinking.budget_tokens'],
    ['"thinking":{"type":"enabled","budget_tokens":1e300}', 'accepted'],
  ];
  for (const [field, expected] of table) assert.equal(await outcome(`{${valid},${field}}`), expected, field);
});

test('names and values of the client come back short', async () => {
  const long = 'k'.repeat(1_000_000);
  const table: readonly (readonly [string, string])[] = [
    [`{${valid},"output_config":{"effort":"${long}"}}`, 'unsupported_value output_config.effort'],
    [message(`[{"type":"${long}"}]`), 'unsupported_value messages[0].content[0].type'],
    [`{${valid},"tool_choice":{"type":"tool","name":"${long}"}}`, 'tool_choice_unknown_tool tool_choice.name'],
    [`{${valid},"tools":[{"name":"${long}"}]}`, 'schema_validation_failed tools[0].name'],
    [`{${valid},"output_format":{"type":"${long}"}}`, 'unsupported_response_format output_format.type'],
  ];
  for (const [text, expected] of table) assert.equal(await outcome(text), expected);
});

test('a long list with a fault is refused without a look at the rest of it', async () => {
  // The clock is not asked: a walk over the rest would run out of the test's time.
  const many = new Array<number>(3_000_000).fill(1);
  const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }] };
  assert.equal(await outcome({ ...body, messages: many }), 'schema_validation_failed messages[0]');
  assert.equal(await outcome({ ...body, stop_sequences: many }), 'schema_validation_failed stop_sequences');
  assert.equal(
    await outcome({ ...body, messages: [{ role: 'user', content: many }] }),
    'schema_validation_failed messages[0].content[0]',
  );
  // A turn of very many blocks is one message, made in time that grows with it.
  const blocks = Array.from({ length: 200_000 }, () => ({ type: 'text', text: 'x' }));
  const call = { type: 'tool_use', id: 'i', name: 'n' };
  const result = { type: 'tool_result', tool_use_id: 'i', content: blocks };
  assert.equal(await outcome({ ...body, system: blocks, messages: [{ role: 'user', content: blocks }] }), 'accepted');
  assert.equal(
    await outcome({
      ...body,
      messages: [
        { role: 'assistant', content: [...blocks, call] },
        { role: 'user', content: [result] },
      ],
    }),
    'accepted',
  );
});

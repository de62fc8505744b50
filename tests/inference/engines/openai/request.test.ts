import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { tiers } from '../../../../src/generation/tier.ts';
import { flavorNames, type FlavorName } from '../../../../src/generation/flavor-names.ts';
import { CacheSalts } from '../../../../src/inference/engines/openai/cache-salts.ts';
import { flavors } from '../../../../src/inference/engines/openai/flavors/flavors.ts';
import { ImageUrl } from '../../../../src/inference/engines/openai/image-body.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { upstreamRequest } from '../../../../src/inference/engines/openai/request-body.ts';
import type { UpstreamServer } from '../../../../src/inference/engines/openai/request-body.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type {
  Effort,
  EngineConstraint,
  EngineRequest,
  ImagePart,
  Message,
  Tool,
} from '../../../../src/generation/request.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../../support/upstream.ts';
import { all, engineRequest, textOf } from '../contract.ts';
import { recordedJson } from './decoding.ts';
import { pull } from '../pull.ts';

const schema = { type: 'object' };
const jsonObject: EngineConstraint = { source: { type: 'json-object' }, gbnf: 'root ::= "object"' };
const jsonSchema: EngineConstraint = { source: { type: 'json-schema', schema, name: 'x' }, gbnf: 'root ::= "schema"' };
const regex: EngineConstraint = { source: { type: 'regex', pattern: 'a+' }, gbnf: 'root ::= "a"+' };
const grammar: EngineConstraint = { source: { type: 'grammar', text: 'S ::= "a"' }, gbnf: 'root ::= "a"' };

const weather = { type: 'function', name: 'get_weather', description: 'w', parameters: { type: 'object' } };
const image: ImagePart = {
  type: 'image',
  mediaType: 'image/png',
  base64: 'AAAA',
  size: { width: 1, height: 1 },
  at: 'messages[1]',
};
const serverOf = (flavor: FlavorName, more: Partial<UpstreamServer> = {}): UpstreamServer => ({
  flavor: flavors[flavor],
  model: 'm',
  reasons: false,
  forward: [],
  specialTokens: { mode: 'pass', texts: [] },
  systemFirst: false,
  ordersByPriority: false,
  salts: new CacheSalts(Buffer.alloc(32)),
  ...more,
});
const bodyOf = (
  flavor: FlavorName,
  more: Partial<EngineRequest> = {},
  server: Partial<UpstreamServer> = {},
): Record<string, unknown> =>
  upstreamRequest(engineRequest('hi', more), serverOf(flavor, server), true).body as Record<string, unknown>;
/** The fields of these names, where there are any. */
const only = (body: Record<string, unknown>, ...names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(Object.entries(body).filter(([name]) => names.includes(name)));

describe('what is sent upstream', () => {
  it('is the least for a plain request', () => {
    assert.deepEqual(bodyOf('openai', { maxTokens: 9 }), {
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'hi' }],
      stream: true,
      stream_options: { include_usage: true },
    });
    assert.deepEqual(bodyOf('llama-server', { maxTokens: 9 }), {
      model: 'm',
      max_tokens: 9,
      cache_prompt: true,
      messages: [{ role: 'user', content: 'hi' }],
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
    });
    const { cache_salt: salt, ...vllm } = bodyOf('vllm', { maxTokens: 9 });
    assert.match(String(salt), /^[\w-]{43}$/);
    assert.deepEqual(vllm, {
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'hi' }],
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
    });
  });

  it('says the tier in the words of a server that orders by it, and to no other server', () => {
    const said = (flavor: FlavorName, ordersByPriority: boolean) =>
      [...tiers, undefined].map((tier) => bodyOf(flavor, { tier }, { ordersByPriority })['priority']);
    assert.deepEqual(said('vllm', true), [-1, 0, 1, 2, 0]);
    assert.deepEqual(said('sglang', true), [3, 2, 1, 0, 2]);
    for (const flavor of Object.keys(flavors) as FlavorName[])
      assert.deepEqual(said(flavor, false), Array<undefined>(5).fill(undefined), flavor);
  });

  it('has no field that a client could have made up (architecture, traps)', () => {
    const known: readonly (readonly [FlavorName, string])[] = [
      ['llama-server', 'cache_prompt max_tokens messages model return_progress stream stream_options'],
      ['vllm', 'cache_salt max_tokens messages model stream stream_options'],
      ['sglang', 'cache_salt max_tokens messages model stream stream_options'],
      ['lm-studio', 'max_tokens messages model stream stream_options'],
      ['ollama', 'max_tokens messages model stream stream_options'],
      ['tgi', 'max_tokens messages model stream stream_options'],
      ['openai', 'max_tokens messages model stream stream_options'],
    ];
    const invented = { priority: 9, best_of: 5, prompt_logprobs: 3, cache_salt: 'mine', ignore_eos: true };
    for (const [flavor, names] of known) {
      assert.deepEqual(Object.keys(bodyOf(flavor, invented as Partial<EngineRequest>)).toSorted(), names.split(' '));
    }
  });

  it('gives the answer the extra room of reasoning, §4.2.1(5)', () => {
    for (const flavor of flavorNames) {
      assert.equal(bodyOf(flavor, { maxTokens: 9, reasoningRoomTokens: 100 })['max_tokens'], 109, flavor);
    }
    const reasons = bodyOf('openai', { maxTokens: 9, reasoningRoomTokens: 100 }, { reasons: true });
    assert.deepEqual(only(reasons, 'max_tokens', 'max_completion_tokens'), { max_completion_tokens: 109 });
  });

  it('tells a model that reasons how much, in the words of its server, §4.2.5(2); other models nothing', () => {
    const names = ['chat_template_kwargs', 'reasoning_effort', 'reasoning_budget_tokens', 'reasoning'];
    const reported = (flavor: FlavorName, effort: Effort, constraint?: EngineConstraint): unknown =>
      only(bodyOf(flavor, { effort, constraint }, { reasons: true }), ...names);
    const off = { chat_template_kwargs: { enable_thinking: false, thinking: false } };
    const on = { enable_thinking: true, thinking: true };
    assert.deepEqual(reported('vllm', 'none'), off);
    assert.deepEqual(reported('vllm', 'low'), {
      chat_template_kwargs: { ...on, reasoning_effort: 'low' },
      reasoning_effort: 'low',
    });
    assert.deepEqual(reported('vllm', 'max'), {
      chat_template_kwargs: { ...on, reasoning_effort: 'max' },
      reasoning_effort: 'high',
    });
    assert.deepEqual(reported('sglang', 'none'), off);
    assert.deepEqual(reported('sglang', 'xhigh'), { chat_template_kwargs: on, reasoning_effort: 'xhigh' });
    assert.deepEqual(reported('llama-server', 'none'), { ...off, reasoning_budget_tokens: 0 });
    assert.deepEqual(reported('llama-server', 'medium'), {
      chat_template_kwargs: { ...on, reasoning_effort: 'medium' },
      reasoning_budget_tokens: 2_048,
    });
    assert.deepEqual(reported('llama-server', 'max'), { chat_template_kwargs: { ...on, reasoning_effort: 'max' } });
    assert.deepEqual(reported('openai', 'none'), { reasoning_effort: 'none' });
    assert.deepEqual(reported('openai', 'xhigh'), { reasoning_effort: 'xhigh' });
    // A grammar of ours would hold for the reasoning too, and a budget would force its tag against the grammar.
    assert.deepEqual(reported('llama-server', 'high', regex), off);
    for (const flavor of flavorNames) {
      assert.deepEqual(only(bodyOf(flavor, { effort: 'high' }), ...names), {}, flavor);
    }
  });

  it('asks for as many alternatives as the server needs to give any', () => {
    const asked = (flavor: FlavorName, logprobs: number): unknown =>
      only(bodyOf(flavor, { logprobs }), 'logprobs', 'top_logprobs');
    assert.deepEqual(asked('llama-server', 0), { logprobs: true, top_logprobs: 1 });
    assert.deepEqual(asked('llama-server', 5), { logprobs: true, top_logprobs: 5 });
    assert.deepEqual(asked('vllm', 0), { logprobs: true, top_logprobs: 0 });
  });

  it('has the sampling fields under the names of the server, and only those that it knows', () => {
    const sampling = {
      temperature: 0.5,
      topP: 0.9,
      topK: 40,
      minP: 0.1,
      presencePenalty: 0.2,
      frequencyPenalty: 0.3,
      repetitionPenalty: 1.1,
      seed: 2 ** 32 + 6,
    };
    const common = { temperature: 0.5, top_p: 0.9, presence_penalty: 0.2, frequency_penalty: 0.3 };
    const names = [
      'temperature',
      'top_p',
      'top_k',
      'min_p',
      'presence_penalty',
      'frequency_penalty',
      'repeat_penalty',
      'repetition_penalty',
      'seed',
    ];
    const picked = (flavor: FlavorName): unknown =>
      Object.fromEntries(Object.entries(bodyOf(flavor, { sampling })).filter(([name]) => names.includes(name)));
    assert.deepEqual(picked('llama-server'), { ...common, top_k: 40, min_p: 0.1, repeat_penalty: 1.1, seed: 7 });
    for (const flavor of ['vllm', 'sglang'] as const) {
      assert.deepEqual(picked(flavor), {
        ...common,
        top_k: 40,
        min_p: 0.1,
        repetition_penalty: 1.1,
        seed: 2 ** 32 + 6,
      });
    }
    assert.deepEqual(picked('openai'), { ...common, seed: 2 ** 32 + 6 });
    const forwarding = bodyOf('openai', { sampling }, { forward: ['top_k', 'repetition_penalty'] });
    assert.deepEqual(only(forwarding, 'top_k', 'min_p', 'repetition_penalty'), { top_k: 40, repetition_penalty: 1.1 });
  });

  it('carries a conversation with tools whole', () => {
    const { messages, tools, tool_choice } = bodyOf('vllm', {
      tools: [weather],
      prompt: {
        type: 'messages',
        messages: [
          {
            role: 'system',
            content: [
              { type: 'text', text: 'a' },
              { type: 'text', text: 'b' },
            ],
          },
          {
            role: 'user',
            content: [{ type: 'text', text: 'x' }, image],
          },
          {
            role: 'assistant',
            content: [],
            reasoning: [],
            toolCalls: [{ id: 'call_1', name: 'get_weather', arguments: '{"city": "Paris"}' }],
          },
          { role: 'tool', toolCallId: 'call_1', content: [{ type: 'text', text: 'sunny' }] },
        ],
      },
    });
    assert.deepEqual(messages, [
      { role: 'system', content: 'a\nb' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'image_url', image_url: { url: new ImageUrl(image) } },
        ],
      },
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Paris"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
    ]);
    assert.deepEqual(tools, [
      { type: 'function', function: { name: 'get_weather', description: 'w', parameters: { type: 'object' } } },
    ]);
    assert.equal(tool_choice, 'auto');
  });

  it('leaves system messages in their place, as words of the user where a template takes them in front only', () => {
    const text = (role: 'system' | 'user', words: string): Message => ({
      role,
      content: [{ type: 'text', text: words }],
    });
    const said = text('user', 'b');
    const answer: Message = { ...said, role: 'assistant', reasoning: [], toolCalls: [] };
    const messages = [text('system', 'a'), said, text('system', 'c'), answer, text('system', 'd')];
    const prompt = { type: 'messages' as const, messages };
    const rolesOf = (systemFirst: boolean): unknown =>
      (bodyOf('vllm', { prompt }, { systemFirst })['messages'] as { role: string; content: string }[]).map(
        ({ role, content }) => `${role}: ${content}`,
      );
    assert.deepEqual(rolesOf(false), ['system: a', 'user: b', 'system: c', 'assistant: b', 'system: d']);
    assert.deepEqual(rolesOf(true), ['system: a', 'user: b\nc', 'assistant: b', 'user: d']);
  });

  it('forces a function by name, or as the only tool where names are not understood', () => {
    const more: Partial<EngineRequest> = {
      tools: [weather, { ...weather, name: 'other' }],
      toolChoice: { type: 'function', name: 'other' },
      parallelToolCalls: false,
    };
    const byName = bodyOf('vllm', more);
    assert.deepEqual(byName['tool_choice'], { type: 'function', function: { name: 'other' } });
    assert.equal(byName['parallel_tool_calls'], false);
    const only = bodyOf('llama-server', more);
    assert.equal(only['tool_choice'], 'required');
    assert.deepEqual(
      (only['tools'] as { function: { name: string } }[]).map((tool) => tool.function.name),
      ['other'],
    );
  });

  it('has each constraint in the words of the server, §4.2.3', () => {
    const names = [
      'response_format',
      'structured_outputs',
      'guided_regex',
      'guided_grammar',
      'regex',
      'ebnf',
      'grammar',
    ];
    const sent = (flavor: FlavorName, constraint: EngineConstraint, more: Partial<EngineRequest> = {}): unknown =>
      only(bodyOf(flavor, { constraint, ...more }, { reasons: true }), ...names);
    const asFormat = { response_format: { type: 'json_schema', json_schema: { name: 'x', schema, strict: true } } };
    const asObject = { response_format: { type: 'json_object' } };
    for (const flavor of ['sglang', 'openai'] as const) {
      assert.deepEqual(sent(flavor, jsonSchema), asFormat);
      assert.deepEqual(sent(flavor, jsonObject), asObject);
    }
    // Without reasoning the grammar is ours; a schema after reasoning only the server itself can place.
    assert.deepEqual(sent('llama-server', jsonSchema), { grammar: 'root ::= "schema"' });
    assert.deepEqual(sent('llama-server', jsonObject), { grammar: 'root ::= "object"' });
    assert.deepEqual(sent('llama-server', jsonSchema, { effort: 'low' }), asFormat);
    assert.deepEqual(sent('llama-server', jsonObject, { effort: 'low' }), asObject);
    assert.deepEqual(sent('llama-server', regex), { grammar: 'root ::= "a"+' });
    assert.deepEqual(sent('llama-server', grammar, { effort: 'low' }), { grammar: 'root ::= "a"' });
    // vLLM's own converters leave keywords out in silence; our grammar holds behind a thought too.
    for (const constraint of [jsonSchema, jsonObject, regex, grammar]) {
      const { gbnf } = constraint;
      const fields = { structured_outputs: { grammar: gbnf }, guided_grammar: gbnf };
      assert.deepEqual(sent('vllm', constraint), fields);
      assert.deepEqual(sent('vllm', constraint, { effort: 'low' }), fields);
    }
    assert.throws(() => sent('vllm', { ...grammar, gbnf: undefined }), /was not compiled/);
    assert.deepEqual(sent('sglang', regex), { regex: 'a+' });
    assert.deepEqual(sent('sglang', grammar), { ebnf: 'root ::= "a"' });
  });

  it('marks the tools of a forced call as strict for vLLM, which binds no others, and asks for its chunks', () => {
    const forced = { tools: [weather], toolChoice: { type: 'required' } } as const;
    const strictOf = (flavor: FlavorName, more: Partial<EngineRequest>): readonly unknown[] =>
      (bodyOf(flavor, more)['tools'] as { function: { strict?: unknown } }[]).map((tool) => tool.function.strict);
    const named = { ...forced, toolChoice: { type: 'function', name: 'get_weather' } } as const;
    const auto = { ...forced, toolChoice: { type: 'auto' } } as const;
    assert.deepEqual(
      [forced, named, auto].map((more) => strictOf('vllm', more)),
      [[true], [true], [undefined]],
    );
    assert.equal(bodyOf('vllm', forced)['return_token_ids'], true);
    assert.ok(!('return_token_ids' in bodyOf('vllm', auto)));
    for (const flavor of ['llama-server', 'sglang', 'openai'] as const) {
      assert.deepEqual(strictOf(flavor, forced), [undefined]);
      assert.ok(!('return_token_ids' in bodyOf(flavor, forced)));
    }
  });

  it('says the likeliest token as the server takes it', () => {
    const greedy = (flavor: FlavorName, more: Partial<EngineRequest['sampling']>, choices = 1) => {
      const { sampling } = engineRequest('hi');
      return only(
        bodyOf(flavor, { choices, sampling: { ...sampling, ...more } }),
        ...['temperature', 'top_p', 'top_k', 'seed'],
      );
    };
    const twice = { temperature: 0.01, top_k: 1 };
    assert.deepEqual(greedy('vllm', { temperature: 0 }, 2), twice);
    assert.deepEqual(greedy('vllm', { temperature: 0, topK: 40 }, 2), twice);
    assert.deepEqual(greedy('vllm', { temperature: 0 }), { temperature: 0 });
    assert.deepEqual(greedy('vllm', { temperature: 1, topP: 0 }), { temperature: 1, top_k: 1 });
    assert.deepEqual(greedy('sglang', { topP: 0 }), { top_k: 1 });
    assert.deepEqual(greedy('sglang', { temperature: 0 }, 2), { temperature: 0 });
    assert.deepEqual(greedy('openai', { temperature: 0, topP: 0 }, 2), { temperature: 0, top_p: 0 });
    assert.deepEqual(greedy('vllm', { seed: -5 }), { seed: -5 });
    assert.deepEqual(greedy('openai', { seed: -5 }), { seed: 5 });
  });

  it('is refused, not sent without it, where the server cannot keep to a constraint', () => {
    assert.throws(() => bodyOf('openai', { constraint: regex }), { code: 'unsupported_regex', param: 'regex' });
    assert.throws(() => bodyOf('openai', { constraint: grammar }), {
      code: 'unsupported_response_format',
      param: 'response_format.type',
    });
    for (const flavor of flavorNames) {
      for (const constraint of [jsonObject, jsonSchema, regex, grammar]) {
        const { type } = constraint.source;
        if (!flavors[flavor].enforces.includes(type)) {
          assert.throws(() => bodyOf(flavor, { constraint }), ApiError, `${flavor} ${type}`);
          continue;
        }
        const plain = Object.keys(bodyOf(flavor));
        const added = Object.keys(bodyOf(flavor, { constraint })).filter((name) => !plain.includes(name));
        assert.ok(added.length > 0, `${flavor} ${type}`);
      }
    }
  });

  it('is plain for Ollama, which ignores what it does not know: no limit but max_tokens, no forced call, no texts', () => {
    const reasons = bodyOf(
      'ollama',
      {
        maxTokens: 9,
        effort: 'high',
        constraint: jsonSchema,
        sampling: { ...engineRequest('').sampling, topK: 5, minP: 0.1, seed: -7 },
      },
      { reasons: true },
    );
    assert.deepEqual(
      only(reasons, 'max_tokens', 'max_completion_tokens', 'top_k', 'min_p', 'seed', 'reasoning_effort'),
      {
        max_tokens: 9,
        seed: 7,
        // It would not bind what follows no thought.
        reasoning_effort: 'none',
      },
    );
    const tools = [weather];
    const choose = (toolChoice: EngineRequest['toolChoice']) => bodyOf('ollama', { tools, toolChoice });
    assert.equal((choose({ type: 'auto' })['tools'] as readonly unknown[]).length, 1);
    assert.ok(!('tools' in choose({ type: 'none' })));
    for (const toolChoice of [{ type: 'required' }, { type: 'function', name: 'get_weather' }] as const)
      assert.throws(() => choose(toolChoice), { code: 'unsupported_feature', param: 'tool_choice' });
    assert.throws(() => bodyOf('ollama', { prompt: { type: 'texts', prompts: ['a'] } }), {
      code: 'unsupported_feature',
      param: 'prompt',
    });
  });

  it('has the names that LM Studio documents, a forced function as the only one, and a schema for any object', () => {
    const sampling = { ...engineRequest('').sampling, topK: 5, minP: 0.1, repetitionPenalty: 1.1, seed: -7 };
    const body = bodyOf('lm-studio', { maxTokens: 9, effort: 'high', sampling }, { reasons: true });
    assert.deepEqual(
      only(body, 'max_tokens', 'max_completion_tokens', 'top_k', 'min_p', 'repeat_penalty', 'seed', 'reasoning_effort'),
      { max_tokens: 9, top_k: 5, repeat_penalty: 1.1, seed: 7 },
    );
    const forced = bodyOf('lm-studio', {
      tools: [weather, { ...weather, name: 'other' }],
      toolChoice: { type: 'function', name: 'other' },
    });
    assert.equal(forced['tool_choice'], 'required');
    assert.deepEqual(
      (forced['tools'] as { function: { name: string } }[]).map((tool) => tool.function.name),
      ['other'],
    );
    const format = (constraint: EngineConstraint) => bodyOf('lm-studio', { constraint })['response_format'];
    const schemaFormat = (name: string) => ({ type: 'json_schema', json_schema: { name, schema, strict: true } });
    assert.deepEqual([format(jsonObject), format(jsonSchema)], [schemaFormat('answer'), schemaFormat('x')]);
  });

  it("has TGI's forms of formats and tools, and no field that it takes for something else", () => {
    const sampled = (more: Partial<EngineRequest['sampling']>) =>
      only(
        bodyOf('tgi', { sampling: { ...engineRequest('').sampling, ...more } }),
        ...['temperature', 'top_p', 'top_k', 'presence_penalty', 'frequency_penalty', 'seed'],
      );
    assert.deepEqual(
      sampled({ temperature: 0.5, topP: 0.9, topK: 5, presencePenalty: 0, frequencyPenalty: 0.1, seed: -7 }),
      {
        ...{ temperature: 0.5, top_p: 0.9, frequency_penalty: 0.1, seed: 7 },
      },
    );
    // Outside of 0 to 1 it refuses the field: 1 is all tokens, 0 the likeliest.
    assert.deepEqual(sampled({ temperature: 0.5, topP: 1 }), { temperature: 0.5 });
    assert.deepEqual(sampled({ temperature: 0.5, topP: 0 }), { temperature: 0 });
    const format = (constraint: EngineConstraint) => bodyOf('tgi', { constraint })['response_format'];
    assert.deepEqual(format(jsonSchema), { type: 'json', value: schema });
    assert.deepEqual(format(regex), { type: 'regex', value: 'a+' });
    const bare: Tool = { type: 'function', name: 'now', description: undefined, parameters: undefined };
    const [tool] = bodyOf('tgi', { tools: [bare] })['tools'] as { function: object }[];
    assert.deepEqual(tool?.function, { name: 'now', parameters: { type: 'object', properties: {} } });
    assert.throws(() => bodyOf('tgi', { prompt: { type: 'texts', prompts: ['a'] } }), { code: 'unsupported_feature' });
    // It continues the words of an assistant at the end without being told.
    const messages: readonly Message[] = [
      { role: 'assistant', content: [{ type: 'text', text: 'Once' }], reasoning: [], toolCalls: [], isBeginning: true },
    ];
    assert.deepEqual(
      Object.keys(bodyOf('tgi', { prompt: { type: 'messages', messages } })).toSorted(),
      Object.keys(bodyOf('tgi')).toSorted(),
    );
  });

  it('has ready prompts as text completions, or is refused', () => {
    const ids = upstreamRequest(
      engineRequest('', { prompt: { type: 'token-ids', prompts: [[1, 2]] }, logprobs: 2 }),
      serverOf('llama-server'),
      true,
    );
    assert.equal(ids.path, '/completions');
    assert.deepEqual(ids.body['prompt'], [1, 2]);
    assert.equal(ids.body['logprobs'], 2);
    assert.deepEqual(bodyOf('vllm', { prompt: { type: 'texts', prompts: ['a', 'b'] }, choices: 2 })['prompt'], [
      'a',
      'b',
    ]);
    assert.equal(bodyOf('openai', { prompt: { type: 'texts', prompts: ['a'] } })['prompt'], 'a');
  });

  it('keeps cached prompts of accounts apart, and those under zero data retention from everybody', () => {
    const salt = (more: Partial<EngineRequest>): unknown => bodyOf('vllm', more)['cache_salt'];
    assert.equal(salt({ id: 'a' }), salt({ id: 'b' }));
    assert.notEqual(salt({}), salt({ cacheScope: 'account-2' }));
    assert.notEqual(salt({ id: 'a', retain: false }), salt({ id: 'b', retain: false }));
    assert.match(String(salt({})), /^[\w-]{43}$/);
    assert.notEqual(salt({}), bodyOf('vllm', {}, { salts: new CacheSalts(Buffer.alloc(32, 1)) })['cache_salt']);
  });
});

describe('the engine over the wire', { timeout: 30_000 }, () => {
  it('sends the key, our id and asks for no compression', async () => {
    const upstream = await Upstream.start((exchange) => exchange.json(200, recordedJson('chat-stop.json').body));
    const engine = createOpenAiEngine({
      name: 'm',
      url: `${upstream.url}/`,
      flavor: 'llama-server',
      apiKey: 'sk-1',
      model: 'its-name',
    });
    const batches = await all(engine, engineRequest('x'), new AbortController().signal);
    assert.equal(textOf(batches), 'Hello from the');
    const { path, headers, body } = upstream.exchanges.find(({ method }) => method === 'POST')!;
    assert.equal(path, '/v1/chat/completions');
    assert.equal(headers.get('authorization'), 'Bearer sk-1');
    assert.equal(headers.get('accept-encoding'), 'identity');
    assert.equal(headers.get('x-request-id'), engineRequest('x').id);
    assert.equal((JSON.parse(body) as { model: string }).model, 'its-name');
    await engine.close();
    await upstream.close();
  });

  it('adds up the usage that llama-server reports for each of two choices', async () => {
    const choice = (index: number, delta: object, finish: string | null): string =>
      event({ choices: [{ index, delta, finish_reason: finish }] });
    const upstream = await Upstream.start((exchange) => {
      exchange.events();
      exchange.chunk(
        choice(1, { content: 'b' }, null) +
          choice(0, { content: 'a' }, null) +
          choice(1, {}, 'stop') +
          usageChunk({ prompt_tokens: 9, completion_tokens: 3 }) +
          choice(0, {}, 'length') +
          usageChunk({ prompt_tokens: 9, completion_tokens: 5 }) +
          event('[DONE]'),
      );
      exchange.endChunks();
    });
    const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'llama-server' });
    const events = (await all(engine, engineRequest('x', { choices: 2 }), new AbortController().signal)).flat();
    assert.deepEqual(
      events.findLast((one) => one.type === 'usage'),
      {
        type: 'usage',
        usage: { promptTokens: 9, cachedTokens: 0, completionTokens: 8, reasoningTokens: 0 },
      },
    );
    await engine.close();
    await upstream.close();
  });

  it('tells the prompt and the tokens so far of a server that reports them all the time', async () => {
    const upstream = await Upstream.start((exchange) => {
      exchange.events();
      exchange.chunk(
        chatChunk({ role: 'assistant', content: '' }, null, { usage: { prompt_tokens: 9, completion_tokens: 0 } }),
      );
      exchange.chunk(chatChunk({ content: 'a' }, null, { usage: { prompt_tokens: 9, completion_tokens: 2 } }));
    });
    const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm' });
    const abort = new AbortController();
    const first = await pull(engine, engineRequest('x'), abort.signal).next();
    assert.deepEqual(first.value, [
      { type: 'start', promptTokens: 9 },
      { type: 'text', choice: 0, text: 'a' },
      { type: 'usage', usage: { promptTokens: 9, cachedTokens: 0, completionTokens: 2, reasoningTokens: 0 } },
    ]);
    abort.abort(new Error('enough'));
    await engine.close();
    await upstream.close();
  });

  it('counts with the template and the tokenizer of the server, or not at all', async () => {
    const upstream = await Upstream.start((exchange) => {
      const body = JSON.parse(exchange.body) as Record<string, unknown>;
      if (exchange.path === '/apply-template') exchange.json(200, recordedJson('apply-template.json').body);
      else if (exchange.path !== '/tokenize') exchange.json(404, {});
      else if (body['messages'] !== undefined)
        exchange.json(200, { count: 5, max_model_len: 100, tokens: [1, 2, 3, 4, 5] });
      else exchange.json(200, recordedJson('tokenize.json').body);
    });
    const { signal } = new AbortController();
    const { url } = upstream;
    const count = async (flavor: FlavorName, more: Partial<EngineRequest> = {}): Promise<number | undefined> => {
      const engine = createOpenAiEngine({ name: 'm', url, flavor });
      const tokens = await engine.countTokens(engineRequest('hi', more), signal);
      await engine.close();
      return tokens;
    };
    assert.equal(await count('llama-server'), 5);
    const asked = JSON.parse(upstream.exchanges[1]!.body) as Record<string, unknown>;
    assert.equal(asked['content'], (recordedJson('apply-template.json').body as { prompt: string }).prompt);
    assert.equal(await count('llama-server', { prompt: { type: 'texts', prompts: ['a', 'b'] } }), 10);
    assert.equal(await count('vllm'), 5);
    assert.equal(await count('openai'), undefined);
    assert.equal(await count('openai', { prompt: { type: 'token-ids', prompts: [[1, 2], [3]] } }), 3);
    await upstream.close();
    assert.equal(await count('vllm'), undefined);
  });

  it('counts as TGI prints it, with the tools', async () => {
    const tokens = ['a', 'b', 'c'].map((text, id) => ({ id, text, start: id, stop: id + 1 }));
    const upstream = await Upstream.start((exchange) => {
      if (exchange.path === '/chat_tokenize') exchange.json(200, { tokenize_response: tokens, templated_text: 'abc' });
      else if (exchange.path === '/tokenize') exchange.json(200, tokens.slice(1));
      else exchange.json(404, {});
    });
    const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'tgi' });
    const { signal } = new AbortController();
    assert.equal(await engine.countTokens(engineRequest('hi', { tools: [weather as Tool] }), signal), 3);
    const asked = JSON.parse(upstream.exchanges[0]!.body) as {
      tools: readonly unknown[];
      messages: readonly unknown[];
    };
    assert.deepEqual([asked.tools.length, asked.messages.length], [1, 1]);
    const texts = { type: 'texts', prompts: ['a', 'b'] } as const;
    assert.equal(await engine.countTokens(engineRequest('', { prompt: texts }), signal), 4);
    await engine.close();
    await upstream.close();
  });
});

describe('words to go on with', () => {
  const begun = { role: 'assistant', content: [{ type: 'text', text: 'one,' }], reasoning: [], toolCalls: [] } as const;
  const prompt = (isBeginning: boolean): EngineRequest['prompt'] => ({
    type: 'messages',
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'hi' }] },
      isBeginning ? { ...begun, isBeginning } : begun,
    ],
  });

  it('are the last message, and each kind of server is told to go on in its own words', () => {
    const expected = {
      vllm: { add_generation_prompt: false, continue_final_message: true },
      sglang: { add_generation_prompt: false, continue_final_message: true },
      'llama-server': { chat_template_kwargs: { enable_thinking: false, thinking: false } },
    };
    for (const flavor of ['vllm', 'sglang', 'llama-server'] as const) {
      const body = bodyOf(flavor, { prompt: prompt(true) });
      assert.deepEqual((body['messages'] as unknown[]).at(-1), { role: 'assistant', content: 'one,' });
      const names = ['add_generation_prompt', 'continue_final_message', 'chat_template_kwargs'];
      assert.deepEqual(only(body, ...names), expected[flavor]);
      // A message of the assistant that the client has finished is not continued.
      assert.deepEqual(only(bodyOf(flavor, { prompt: prompt(false) }), ...names), {});
    }
  });

  it('are refused where nothing makes the server go on', () => {
    assert.throws(
      () => bodyOf('openai', { prompt: prompt(true) }),
      (error) => error instanceof ApiError && error.code === 'unsupported_feature' && error.param === 'messages',
    );
  });
});

describe('what only some servers would take', () => {
  it('no parameters are none, also where they are null', () => {
    const bare = { type: 'function', name: 'now', description: undefined, parameters: null } as const;
    for (const flavor of flavorNames) {
      const [tool] = bodyOf(flavor, { tools: [bare] })['tools'] as readonly { readonly function: object }[];
      assert.deepEqual(
        tool?.function,
        flavors[flavor].needsParameters
          ? { name: 'now', parameters: { type: 'object', properties: {} } }
          : { name: 'now' },
        flavor,
      );
    }
  });

  it('images of results go behind the results, into the turn of the user if one follows', () => {
    const text = (said: string) => ({ type: 'text' as const, text: said });
    const shown = { type: 'image_url', image_url: { url: new ImageUrl(image) } };
    const called: Message = { role: 'assistant', content: [], reasoning: [], toolCalls: [] };
    const result = (id: string, ...content: Message['content']): Message => ({ role: 'tool', toolCallId: id, content });
    const sent = (...messages: readonly Message[]) =>
      bodyOf('openai', { prompt: { type: 'messages', messages } })['messages'] as readonly object[];
    assert.deepEqual(sent(called, result('1', text('a'), image), result('2', image)).slice(1), [
      { role: 'tool', tool_call_id: '1', content: 'a' },
      { role: 'tool', tool_call_id: '2', content: '' },
      { role: 'user', content: [shown, shown] },
    ]);
    assert.deepEqual(sent(called, result('1', image), { role: 'user', content: [text('b')] }, called).slice(1, 3), [
      { role: 'tool', tool_call_id: '1', content: '' },
      { role: 'user', content: [shown, { type: 'text', text: 'b' }] },
    ]);
    assert.deepEqual(
      sent(called, result('1', image), called).map((message) => (message as { role: string }).role),
      ['assistant', 'tool', 'user', 'assistant'],
    );
  });
});

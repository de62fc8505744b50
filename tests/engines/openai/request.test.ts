import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { flavorNames, flavors, type FlavorName } from '../../../src/engines/openai/flavors.ts';
import { createOpenAiEngine } from '../../../src/engines/openai/openai-engine.ts';
import { upstreamRequest } from '../../../src/engines/openai/request.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../support/upstream.ts';
import { all, engineRequest, textOf } from '../contract.ts';
import { recordedJson } from './decoding.ts';

const weather = { type: 'function', name: 'get_weather', description: 'w', parameters: { type: 'object' } };
const bodyOf = (flavor: FlavorName, more: Partial<EngineRequest> = {}): Record<string, unknown> =>
  upstreamRequest(engineRequest('hi', more), flavors[flavor], 'm', true).body as Record<string, unknown>;

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
      chat_template_kwargs: { enable_thinking: false },
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
    });
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
  });

  it('carries a conversation with tools whole', () => {
    const { messages, tools, tool_choice } = bodyOf('vllm', {
      tools: [weather],
      preserveThinking: true,
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
            content: [
              { type: 'text', text: 'x' },
              { type: 'image-url', url: 'data:image/png;base64,AA', at: 'messages[1]' },
            ],
          },
          {
            role: 'assistant',
            content: [],
            reasoning: [{ text: 'thought', seal: undefined }],
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
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
        ],
      },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'thought',
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

  it('has each constraint in the words of the server, or is refused', () => {
    const schema = { type: 'object' };
    for (const flavor of flavorNames) {
      assert.deepEqual(bodyOf(flavor, { constraint: { type: 'json-schema', schema, name: 'x' } })['response_format'], {
        type: 'json_schema',
        json_schema: { name: 'x', schema, strict: true },
      });
    }
    const grammar = { constraint: { type: 'grammar', text: 'root ::= "a"' } } as const;
    const regex = { constraint: { type: 'regex', pattern: 'a+' } } as const;
    assert.equal(bodyOf('llama-server', grammar)['grammar'], 'root ::= "a"');
    assert.deepEqual(bodyOf('vllm', grammar)['structured_outputs'], { grammar: 'root ::= "a"' });
    assert.deepEqual(bodyOf('vllm', regex)['structured_outputs'], { regex: 'a+' });
    assert.equal(bodyOf('sglang', grammar)['ebnf'], 'root ::= "a"');
    assert.equal(bodyOf('sglang', regex)['regex'], 'a+');
    assert.throws(() => bodyOf('llama-server', regex), { code: 'unsupported_regex' });
    assert.throws(() => bodyOf('openai', grammar), { code: 'unsupported_response_format' });
  });

  it('has ready prompts as text completions, or is refused', () => {
    const ids = upstreamRequest(
      engineRequest('', { prompt: { type: 'token-ids', prompts: [[1, 2]] }, logprobs: 2 }),
      flavors['llama-server'],
      'm',
      true,
    );
    assert.equal(ids.path, '/completions');
    assert.deepEqual(ids.body['prompt'], [1, 2]);
    assert.equal(ids.body['logprobs'], 2);
    assert.deepEqual(bodyOf('vllm', { prompt: { type: 'texts', prompts: ['a', 'b'] }, choices: 2 })['prompt'], [
      'a',
      'b',
    ]);
    assert.throws(() => bodyOf('openai', { prompt: { type: 'texts', prompts: ['a'] } }), {
      code: 'unsupported_feature',
      param: 'prompt',
    });
  });

  it('keeps cached prompts of accounts apart, and those under zero data retention from everybody', () => {
    const salt = (more: Partial<EngineRequest>): unknown => bodyOf('vllm', more)['cache_salt'];
    assert.equal(salt({ id: 'a' }), salt({ id: 'b' }));
    assert.notEqual(salt({}), salt({ cacheScope: 'account-2' }));
    assert.notEqual(salt({ id: 'a', retain: false }), salt({ id: 'b', retain: false }));
    assert.match(String(salt({})), /^[\w-]{43}$/);
  });
});

describe('the engine over the wire', { timeout: 30_000 }, () => {
  it('lets llama-server cache prompts only while it serves one scope', async () => {
    const cached: unknown[] = [];
    const upstream = await Upstream.start((exchange) => {
      cached.push((JSON.parse(exchange.body) as Record<string, unknown>)['cache_prompt']);
      exchange.events();
      exchange.chunk(
        chatChunk({ content: 'x' }, 'stop') + usageChunk({ prompt_tokens: 1, completion_tokens: 1 }) + event('[DONE]'),
      );
      exchange.endChunks();
    });
    const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'llama-server' });
    for (const cacheScope of ['a', 'a', 'b', 'a']) {
      await all(engine.generate(engineRequest('x', { cacheScope }), new AbortController().signal));
    }
    assert.deepEqual(cached, [true, true, false, false]);
    await engine.close();
    await upstream.close();
  });

  it('sends the key, our id and no wish for compression', async () => {
    const upstream = await Upstream.start((exchange) => exchange.json(200, recordedJson('chat-stop.json').body));
    const engine = createOpenAiEngine({
      name: 'm',
      url: `${upstream.url}/`,
      flavor: 'llama-server',
      apiKey: 'sk-1',
      model: 'its-name',
    });
    const batches = await all(engine.generate(engineRequest('x'), new AbortController().signal));
    assert.equal(textOf(batches), 'Hello from the');
    const { path, headers, body } = upstream.exchanges[0]!;
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
    const events = (
      await all(engine.generate(engineRequest('x', { choices: 2 }), new AbortController().signal))
    ).flat();
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
    const first = await engine.generate(engineRequest('x'), abort.signal)[Symbol.asyncIterator]().next();
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
});

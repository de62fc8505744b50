import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { ApiError } from '../../../../src/platform/errors.ts';
import { flavors } from '../../../../src/inference/engines/openai/flavors/flavors.ts';
import type { FlavorName } from '../../../../src/generation/flavor-names.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { splitEcho } from '../../../../src/inference/engines/openai/echoed-prompt.ts';
import { Fold } from '../../../../src/generation/fold.ts';
import type { Generation } from '../../../../src/generation/fold.ts';
import type { EngineRequest, TokenControls } from '../../../../src/generation/request.ts';
import { plainTokens } from '../../../support/token-controls.ts';
import { event, Upstream } from '../../../support/upstream.ts';
import type { UpstreamExchange } from '../../../support/upstream.ts';
import { engineRequest } from '../contract.ts';
import { pull } from '../pull.ts';

/**
 * Text completions over HTTP, chunk by chunk as the servers' own code prints them (vllm/entrypoints/openai/completion/serving.py,
 * sglang/srt/entrypoints/openai/serving_completions.py, llama.cpp's tools/server/server-task.cpp).
 */
const texts = (prompts: readonly string[], tokens: Partial<TokenControls> = {}, more: Partial<EngineRequest> = {}) =>
  engineRequest('', { prompt: { type: 'texts', prompts }, tokens: { ...plainTokens, ...tokens }, ...more });
const ids = (
  prompts: readonly (readonly number[])[],
  tokens: Partial<TokenControls> = {},
  more: Partial<EngineRequest> = {},
) => engineRequest('', { prompt: { type: 'token-ids', prompts }, tokens: { ...plainTokens, ...tokens }, ...more });

interface Asked {
  readonly body: Readonly<Record<string, unknown>>;
  readonly path: string;
  readonly generation: Generation | undefined;
  readonly error: ApiError | undefined;
}

/** What the server is asked, and what becomes of these chunks, or of this error. */
async function ask(
  flavor: FlavorName,
  request: EngineRequest,
  chunks: readonly unknown[] | ((exchange: UpstreamExchange) => void),
): Promise<Asked> {
  const upstream = await Upstream.start((exchange) => {
    if (exchange.method !== 'POST') return exchange.json(404, {});
    if (typeof chunks === 'function') return chunks(exchange);
    exchange.events();
    exchange.chunk([...chunks.map((chunk) => event(chunk)), 'data: [DONE]\n\n'].join(''));
    exchange.endChunks();
  });
  const engine = createOpenAiEngine({ name: 'm', url: `${upstream.url}`, flavor });
  const fold = new Fold();
  let error: unknown;
  try {
    for await (const batch of pull(engine, request, new AbortController().signal)) fold.read(batch);
  } catch (thrown) {
    error = thrown;
  }
  await engine.close();
  await upstream.close();
  if (error !== undefined && !(error instanceof ApiError)) throw error as Error;
  const sent = upstream.exchanges.find(({ method }) => method === 'POST');
  return {
    body: JSON.parse(sent?.body ?? '{}') as Record<string, unknown>,
    path: sent?.path ?? '',
    generation: error === undefined ? fold.generation() : undefined,
    error: error as ApiError | undefined,
  };
}

const choice = (text: string, more: object = {}, index = 0) => ({
  object: 'text_completion',
  choices: [{ index, text, logprobs: null, finish_reason: null, ...more }],
});
const finished = (more: object = {}, index = 0) => choice('', { finish_reason: 'stop', ...more }, index);
const usage = (prompt: number, completion: number) => ({
  choices: [],
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
});
const logprobs = (...tokens: readonly (readonly [string, number | null])[]) => ({
  tokens: tokens.map(([token]) => token),
  token_logprobs: tokens.map(([, logprob]) => logprob),
  top_logprobs: tokens.map(([token, logprob]) => (logprob === null ? null : { [token]: logprob })),
  text_offset: tokens.map(() => 0),
});
const text = (generation: Generation | undefined, index = 0): string | undefined =>
  generation?.choices[index]?.blocks.map((block) => (block.type === 'text' ? block.text : '')).join('');

describe('what is asked', { timeout: 60_000 }, () => {
  const all: Partial<TokenControls> = {
    returnsIds: false,
    stopIds: [7],
    ignoresEnd: true,
    tokensMin: 2,
    skipsSpecial: false,
    includesStop: true,
    addsSpecial: false,
  };

  it('of vLLM and SGLang, each under its own names', async () => {
    const vllm = await ask('vllm', texts(['a'], { ...all, namesIds: true }, { logprobs: 0 }), [
      finished(),
      usage(1, 0),
    ]);
    assert.equal(vllm.path, '/v1/completions');
    const { stop_token_ids, ignore_eos, min_tokens, skip_special_tokens, prompt } = vllm.body;
    assert.deepEqual([prompt, stop_token_ids, ignore_eos, min_tokens, skip_special_tokens], ['a', [7], true, 2, false]);
    assert.equal(vllm.body['include_stop_str_in_output'], true);
    assert.equal(vllm.body['add_special_tokens'], false);
    assert.equal(vllm.body['return_tokens_as_token_ids'], true);
    assert.equal(vllm.body['logprobs'], 0);
    assert.ok(!('echo' in vllm.body) && !('messages' in vllm.body) && !('reasoning_effort' in vllm.body));
    const sglang = await ask('sglang', texts(['a'], { ...all, addsSpecial: true }), [finished(), usage(1, 0)]);
    assert.equal(sglang.body['no_stop_trim'], true);
    assert.ok(!('include_stop_str_in_output' in sglang.body));
  });

  it('nothing beyond OpenAI where nothing is asked for', async () => {
    for (const flavor of ['vllm', 'sglang', 'llama-server', 'openai'] as const) {
      const { body } = await ask(flavor, texts(['a', 'b'], {}, { choices: 2 }), [usage(2, 0)]);
      assert.deepEqual(body['prompt'], ['a', 'b']);
      assert.equal(body['n'], 2);
      for (const name of ['echo', 'logprobs', 'stop_token_ids', 'return_token_ids', 'min_tokens', 'add_special_tokens'])
        assert.ok(!(name in body), `${flavor} ${name}`);
    }
  });

  it('what a server has no field for is refused, and never sent', () => {
    const table: readonly (readonly [FlavorName, EngineRequest, string | undefined])[] = [
      ['llama-server', texts(['a'], { echo: true }), undefined],
      ['llama-server', texts(['a'], { echo: true }, { logprobs: 1 }), 'echo'],
      ['llama-server', ids([[1]], { echo: true }), 'echo'],
      ['llama-server', texts(['a'], { echo: true }, { maxTokens: 0 }), 'max_tokens'],
      ['llama-server', texts(['a'], { returnsIds: true }), 'return_token_ids'],
      ['llama-server', texts(['a'], { stopIds: [1] }), 'stop_token_ids'],
      ['llama-server', texts(['a'], { ignoresEnd: true }), undefined],
      ['llama-server', texts(['a'], { tokensMin: 1 }), 'min_tokens'],
      ['llama-server', texts(['a'], { skipsSpecial: false }), 'skip_special_tokens'],
      ['llama-server', texts(['a'], { includesStop: true }), 'include_stop_str_in_output'],
      ['llama-server', texts(['a'], { addsSpecial: false }), 'add_special_tokens'],
      ['llama-server', ids([[1]], { addsSpecial: false }), undefined],
      ['llama-server', texts(['a'], { namesIds: true }, { logprobs: 1 }), undefined],
      ['sglang', texts(['a'], { addsSpecial: false }), 'add_special_tokens'],
      ['sglang', texts(['a'], { namesIds: true }, { logprobs: 1 }), 'return_tokens_as_token_ids'],
      ['sglang', texts(['a'], { namesIds: true }), undefined],
      ['vllm', texts(['a'], { namesIds: true, echo: true }, { logprobs: 1 }), 'return_tokens_as_token_ids'],
      ['vllm', ids([[1]], { echo: true, returnsIds: true }, { maxTokens: 0, logprobs: 1 }), undefined],
      ['openai', texts(['a'], { echo: true }), undefined],
      ['openai', texts(['a'], { ignoresEnd: true }), 'ignore_eos'],
      ['openai', texts(['a'], { returnsIds: true }), 'return_token_ids'],
    ];
    for (const [flavor, request, param] of table) {
      const engine = createOpenAiEngine({ name: 'm', url: 'http://127.0.0.1:1/v1', flavor });
      const refusal = engine.refusal?.(request);
      assert.equal(refusal?.param, param, `${flavor} ${param}`);
      if (param !== undefined) assert.equal(refusal?.code, 'unsupported_parameter');
      void engine.close();
    }
    const source = { type: 'regex', pattern: 'a' } as const;
    const openai = createOpenAiEngine({ name: 'm', url: 'http://127.0.0.1:1/v1', flavor: 'openai' });
    const refusal = openai.refusal?.(texts(['a'], {}, { constraint: { source, gbnf: 'root ::= "a"' } }));
    assert.equal(refusal?.code, 'unsupported_regex');
    void openai.close();
  });

  it('constraints in the fields that each has', async () => {
    const gbnf = 'root ::= "a"';
    const constraint = { source: { type: 'grammar', text: gbnf }, gbnf } as const;
    for (const [flavor, name] of [
      ['vllm', 'structured_outputs'],
      ['sglang', 'ebnf'],
      ['llama-server', 'grammar'],
    ] as const) {
      const { body } = await ask(flavor, texts(['x'], {}, { constraint }), [choice('a'), finished(), usage(1, 1)]);
      assert.ok(name in body, `${flavor}: ${Object.keys(body).join()}`);
    }
  });
});

describe('what is answered', { timeout: 60_000 }, () => {
  it('by vLLM: prompt and first text in one piece, with ids and logprobs of both', async () => {
    const { body, generation } = await ask('vllm', ids([[1, 5]], { echo: true }, { logprobs: 1 }), [
      choice('Hello wor', { logprobs: logprobs(['<s>', null], ['Hello', -2], [' wor', -1]) }),
      choice('ld', { logprobs: logprobs(['ld', -0.5]) }),
      finished({ stop_reason: null }),
      usage(2, 2),
    ]);
    assert.equal(body['echo'], true);
    const [only] = generation?.choices ?? [];
    // `<s>` is a token of the prompt and no text of it.
    assert.equal(only?.prompt?.text, 'Hello');
    assert.deepEqual(
      only.prompt.tokens?.map(({ token, logprob, start }) => [token, logprob, start]),
      [
        ['<s>', undefined, 0],
        ['Hello', -2, 0],
      ],
    );
    assert.equal(text(generation), ' world');
    assert.deepEqual(
      only.logprobs.map(({ token, logprob, start }) => [token, logprob, start]),
      [
        [' wor', -1, 0],
        ['ld', -0.5, 4],
      ],
    );
    assert.deepEqual([generation?.usage.promptTokens, generation?.usage.completionTokens], [2, 2]);
  });

  it('by vLLM with ids: it leaves the text of the prompt out, and tells its ids once', async () => {
    const { body, generation } = await ask(
      'vllm',
      texts(['Hello'], { echo: true, returnsIds: true }, { logprobs: 0 }),
      [
        choice(' wor', {
          logprobs: logprobs(['<s>', null], ['Hello', -2], [' wor', -1]),
          prompt_token_ids: [1, 5],
          token_ids: [6],
        }),
        choice('ld', { logprobs: logprobs(['ld', -0.5]), token_ids: [7] }),
        finished({ token_ids: [2], stop_reason: 2 }),
        usage(2, 3),
      ],
    );
    assert.equal(body['return_token_ids'], true);
    const [only] = generation?.choices ?? [];
    assert.equal(only?.prompt?.text, 'Hello');
    assert.deepEqual(only.prompt.tokenIds, [1, 5]);
    assert.equal(text(generation), ' world');
    assert.deepEqual(only.tokenIds, [6, 7, 2]);
    assert.equal(only.finish.stopTokenId, 2);
  });

  it('a prompt that is only scored: nothing was written, whatever token the server made', async () => {
    const { body, generation } = await ask('vllm', ids([[1, 5]], { echo: true }, { logprobs: 0, maxTokens: 0 }), [
      choice('Hello', { logprobs: logprobs(['<s>', null], ['Hello', -2]), finish_reason: 'length' }),
      usage(2, 1),
    ]);
    assert.deepEqual([body['max_tokens'], body['echo'], body['logprobs']], [0, true, 1]);
    assert.equal(text(generation), '');
    assert.equal(generation?.choices[0]?.prompt?.text, 'Hello');
    assert.equal(generation.usage.completionTokens, 0);
    assert.equal(generation.choices[0].finish.reason, 'length');
  });

  it('by SGLang: the echo leaves out what special tokens look like', async () => {
    const { generation } = await ask('sglang', ids([[1, 5, 6], [8]], { echo: true }, { choices: 1 }), [
      choice('Hello there!', { logprobs: logprobs(['<s>', null], ['Hello', -2], [' there', -3], ['!', -1]) }, 0),
      choice('Bye.', { logprobs: logprobs(['Bye', null], ['.', -1]) }, 1),
      finished({ matched_stop: 2 }, 1),
      finished({ matched_stop: 2 }, 0),
      usage(4, 2),
    ]);
    assert.deepEqual(
      generation?.choices.map(({ prompt }) => prompt?.text),
      ['Hello there', 'Bye'],
    );
    assert.deepEqual([text(generation, 0), text(generation, 1)], ['!', '.']);
    // They were asked for to tell prompt and answer apart, not by the client.
    assert.equal(generation?.choices[0]?.prompt?.tokens, undefined);
    assert.deepEqual(generation?.choices[0]?.logprobs, []);
  });

  it('a text alone is put before the answer without the server', async () => {
    const { body, generation } = await ask('llama-server', texts(['One', 'Two'], { echo: true }), [
      choice('', { logprobs: null }, 0),
      choice(' a', {}, 0),
      choice(' b', {}, 1),
      {
        ...finished({ finish_reason: 'length' }, 1),
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      },
      { ...finished({}, 0), usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } },
    ]);
    assert.ok(!('echo' in body));
    assert.deepEqual(
      generation?.choices.map(({ prompt }, index) => [prompt?.text, text(generation, index)]),
      [
        ['One', ' a'],
        ['Two', ' b'],
      ],
    );
    assert.deepEqual([generation?.usage.promptTokens, generation?.usage.completionTokens], [2, 2]);
  });

  it('by llama-server: tokens with their ids', async () => {
    const content = [
      {
        id: 11,
        token: ' a',
        bytes: [32, 97],
        logprob: -0.25,
        top_logprobs: [{ id: 11, token: ' a', bytes: [32, 97], logprob: -0.25 }],
      },
    ];
    const { body, generation } = await ask('llama-server', texts(['x'], { namesIds: true }, { logprobs: 0 }), [
      choice(' a', { logprobs: { content } }),
      { ...finished({ logprobs: null }), usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } },
    ]);
    // 0 means none to it.
    assert.equal(body['logprobs'], 1);
    assert.deepEqual(
      generation?.choices[0]?.logprobs.map(({ tokenId, start }) => [tokenId, start]),
      [[11, 0]],
    );
  });

  it('vLLM names tokens by their ids when it is asked to', async () => {
    const { generation } = await ask('vllm', texts(['x'], { namesIds: true }, { logprobs: 1 }), [
      choice(' a', { logprobs: logprobs(['token_id:11', -0.25]) }),
      finished(),
      usage(1, 1),
    ]);
    const [token] = generation?.choices[0]?.logprobs ?? [];
    assert.deepEqual([token?.tokenId, token?.top[0]?.tokenId], [11, 11]);
  });

  it('a server that ignores the request for ids is found out before anything is shown', async () => {
    const { error } = await ask('vllm', texts(['x'], { returnsIds: true }), [choice(' a'), finished(), usage(1, 1)]);
    assert.deepEqual([error?.code, error?.param], ['unsupported_parameter', 'return_token_ids']);
  });

  it('an echo that cannot be separated from the answer is a broken answer', async () => {
    const { error } = await ask('vllm', texts(['Hello'], { echo: true }, { logprobs: 1 }), [
      choice('Something else', { logprobs: logprobs(['What', null]) }),
      finished(),
      usage(1, 1),
    ]);
    assert.equal(error?.code, 'backend_http_error');
    assert.throws(() => splitEcho({ text: 'ab', tokens: [], promptIds: [1] }, [1]));
  });

  it('think tags are text, whatever the model can do', async () => {
    const { generation } = await ask('vllm', texts(['x']), [
      choice('<think>hm'),
      choice('</think>'),
      finished(),
      usage(1, 2),
    ]);
    assert.equal(text(generation), '<think>hm</think>');
  });
});

describe('what is refused by the server', { timeout: 60_000 }, () => {
  for (const [flavor, status, message] of [
    ['vllm', 400, 'Token id 99999 is out of vocabulary'],
    ['llama-server', 400, 'Prompt contains invalid tokens'],
  ] as const) {
    it(`a token that the model does not have, by ${flavor}: 400, naming the largest`, async () => {
      const refuse = (exchange: UpstreamExchange): void =>
        exchange.json(status, { error: { message, type: 'BadRequestError', code: status } });
      const one = await ask(flavor, ids([[1, 99_999, 2]]), refuse);
      assert.deepEqual([one.error?.code, one.error?.param], ['unsupported_value', 'prompt[1]']);
      const two = await ask(flavor, ids([[1], [2, 99_999]]), refuse);
      assert.equal(two.error?.param, 'prompt[1][1]');
      assert.ok(!one.error?.message.includes('99999'));
    });
  }

  it('a model of OpenAI that takes messages only: unsupported_feature', async () => {
    const { error } = await ask('openai', texts(['x']), (exchange) =>
      exchange.json(404, {
        error: {
          message: 'This is a chat model and not supported in the v1/completions endpoint.',
          type: 'invalid_request_error',
          param: 'model',
          code: null,
        },
      }),
    );
    assert.deepEqual([error?.code, error?.param], ['unsupported_feature', 'prompt']);
  });

  it('every flavor says what of text completions it can do', () => {
    for (const { completions } of Object.values(flavors)) assert.equal(Object.keys(completions).length, 10);
  });
});

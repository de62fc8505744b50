import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import OpenAI, {
  APIError,
  APIUserAbortError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
  UnprocessableEntityError,
} from 'openai';
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions';

import type { TestService } from '../support/service.ts';
import { InnerService, scriptedModel, until } from '../support/service.ts';
import { ServiceOnUpstream } from './service-on-upstream.ts';

/**
 * The official client against the running service: what it returns and what it throws is what an application sees. The
 * endings of requests that it aborts are looked up in the ledger.
 */
const service = new InnerService({
  limits: '  concurrency_per_account_max: 4',
  config: scriptedModel(`
- when: { last_text: "backend_http_error" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_http_error }
- when: { last_text: "backend_connect_error" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_connect_error }
- when: { last_text: "no_healthy_backends" }
  say: []
  fault: { after_tokens: 0, type: error, code: no_healthy_backends }
- when: { last_text: "backend_timeout" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_timeout }
- when: { last_text: "backend_overloaded" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_overloaded }
- when: { last_text: "fail in the middle" }
  say: [ { text: "one two three four five" } ]
  pace_ms: 5
  fault: { after_tokens: 2, type: error, code: backend_timeout }
- when: { last_text: "hang" }
  say: [ { text: "one two" } ]
  pace_ms: 5
  fault: { after_tokens: 1, type: hang }
- when: { last_text: "paced" }
  say: [ { text: "slow but sure" } ]
  pace_ms: 10
- when: { last_text: "more" }
  say: [ { text: "and so on" } ]
  repeat: 10
- when: { last_role: tool }
  say: [ { text: "It is sunny." } ]
- when: { last_role: system }
  say: [ { text: "As you wish." } ]
- say: [ { text: "hello world" } ]
`),
});
const poor = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]'), firstCreditCents: '0.001' });
let client: OpenAI;

const clientOf = (of: TestService, apiKey = of.key): OpenAI =>
  new OpenAI({ apiKey, baseURL: `${of.url}/v1`, maxRetries: 0, timeout: 20_000 });
const user = (content: string): ChatCompletionMessageParam[] => [{ role: 'user', content }];

before(async () => {
  await Promise.all([service.start(), poor.start()]);
  client = clientOf(service);
});
after(async () => {
  await service.verify();
  await Promise.all([service.dispose(), poor.dispose()]);
});

/** What the promise rejects with, which must be of this class. */
async function thrown<Kind extends APIError>(
  kind: new (...args: never[]) => Kind,
  promise: PromiseLike<unknown>,
): Promise<Kind> {
  const error = await Promise.resolve(promise).then(
    () => assert.fail('it was not refused'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof kind, String(error));
  return error;
}

describe('models', () => {
  test('the list is read by auto-pagination, with the fields of the card', async () => {
    const seen: OpenAI.Model[] = [];
    for await (const model of client.models.list()) seen.push(model);
    assert.equal(seen.length, 1);
    const card = seen[0] as OpenAI.Model & {
      max_model_len: number;
      service: { capabilities: Record<string, unknown>; pricing: Record<string, unknown> };
    };
    assert.equal(card.id, 'demo');
    assert.equal(card.object, 'model');
    assert.equal(card.owned_by, 'tokenhouse');
    assert.ok(Math.abs(card.created - Date.now() / 1000) < 60);
    assert.equal(card.max_model_len, 8192);
    assert.equal(card.service.pricing['input_cents_per_million'], 5);
    assert.equal(card.service.pricing['output_cents_per_million'], 20);
    assert.deepEqual(card.service.capabilities['reasoning_effort'], { efforts: ['none'], default: 'none' });
  });

  test('there is no route for a single model', async () => {
    const error = await thrown(NotFoundError, client.models.retrieve('demo'));
    assert.equal(error.code, 'http_404');
  });
});

describe('a whole answer', () => {
  test('has text, finish reason, usage and a request id', async () => {
    const answer = await client.chat.completions.create({ model: 'demo', messages: user('hi') });
    assert.equal(answer.object, 'chat.completion');
    assert.match(answer.id, /^chatcmpl-/);
    assert.equal(answer.model, 'demo');
    const [choice] = answer.choices;
    assert.equal(choice?.message.content, 'hello world');
    assert.equal(choice?.message.role, 'assistant');
    assert.equal(choice?.message.refusal, null);
    assert.equal(choice?.finish_reason, 'stop');
    assert.equal(answer.usage?.completion_tokens, 2);
    assert.equal(answer.usage?.total_tokens, (answer.usage?.prompt_tokens ?? 0) + 2);
    assert.equal(answer.usage?.prompt_tokens_details?.cached_tokens, 0);
    assert.equal(answer.usage?.completion_tokens_details?.reasoning_tokens, 0);
    assert.match(answer._request_id ?? '', /^req_[0-9a-f]{12}$/);
    const { requests } = await service.usage();
    const receipt = requests.find((line) => line.request_id === answer._request_id);
    assert.equal(receipt?.ending, 'finished');
    assert.equal(receipt?.cost_microcents, (answer.usage?.prompt_tokens ?? 0) * 5 + 2 * 20);
  });

  test("the model's id is matched in any case and printed as on the card", async () => {
    const answer = await client.chat.completions.create({ model: 'DeMo', messages: user('hi') });
    assert.equal(answer.model, 'demo');
  });

  test("the client's own request id comes back prefixed", async () => {
    const headers = { 'x-request-id': 'my-trace-7' };
    const answer = await client.chat.completions.create({ model: 'demo', messages: user('hi') }, { headers });
    assert.equal(answer._request_id, 'client_my-trace-7');
  });

  test('max_completion_tokens bounds it, max_tokens wins', async () => {
    const bounded = await client.chat.completions.create({
      model: 'demo',
      messages: user('more'),
      max_completion_tokens: 4,
    });
    assert.equal(bounded.choices[0]?.finish_reason, 'length');
    assert.equal(bounded.usage?.completion_tokens, 4);
    const both = await client.chat.completions.create({
      model: 'demo',
      messages: user('more'),
      max_completion_tokens: 4,
      max_tokens: 7,
    });
    assert.equal(both.usage?.completion_tokens, 7);
  });

  test('stop strings end it', async () => {
    const answer = await client.chat.completions.create({ model: 'demo', messages: user('more'), stop: ['so on'] });
    assert.equal(answer.choices[0]?.message.content, 'and ');
    assert.equal(answer.choices[0]?.finish_reason, 'stop');
  });

  test('the role developer is a system message', async () => {
    const messages: ChatCompletionMessageParam[] = [
      { role: 'user', content: 'hi' },
      { role: 'developer', content: 'be brief' },
    ];
    const answer = await client.chat.completions.create({ model: 'demo', messages });
    assert.equal(answer.choices[0]?.message.content, 'As you wish.');
  });

  test('tool calls and their results may stand in the history', async () => {
    const messages: ChatCompletionMessageParam[] = [
      { role: 'user', content: [{ type: 'text', text: 'Weather?' }] },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Bern"}' } }],
      },
      { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: 'sunny' }] },
    ];
    const answer = await client.chat.completions.create({ model: 'demo', messages });
    assert.equal(answer.choices[0]?.message.content, 'It is sunny.');
  });

  test('fields that the service does not know change nothing', async () => {
    const extra = {
      store: true,
      metadata: { a: 'b' },
      user: 'u',
      service_tier: 'auto' as const,
      verbosity: 'low' as const,
    };
    const answer = await client.chat.completions.create({ model: 'demo', messages: user('hi'), ...extra });
    assert.equal(answer.choices[0]?.message.content, 'hello world');
  });
});

describe('a stream', () => {
  test('read with for await', async () => {
    const stream = await client.chat.completions.create({ model: 'demo', messages: user('paced'), stream: true });
    let text = '';
    const finishes: string[] = [];
    let usage: OpenAI.CompletionUsage | null | undefined;
    let first: OpenAI.ChatCompletionChunk | undefined;
    for await (const chunk of stream) {
      first ??= chunk;
      assert.equal(usage, undefined, 'a chunk follows the usage');
      const [choice] = chunk.choices;
      text += choice?.delta.content ?? '';
      if (choice?.finish_reason) finishes.push(choice.finish_reason);
      if (chunk.usage) usage = chunk.usage;
    }
    assert.equal(first?.choices[0]?.delta.role, 'assistant');
    assert.equal(text, 'slow but sure');
    assert.deepEqual(finishes, ['stop']);
    assert.equal(usage?.completion_tokens, 3);
  });

  test('read with the stream helper', async () => {
    const stream = client.chat.completions.stream({ model: 'demo', messages: user('paced') });
    const deltas: string[] = [];
    stream.on('content', (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    assert.equal(deltas.join(''), 'slow but sure');
    assert.equal(final.choices[0]?.message.content, 'slow but sure');
    assert.equal(final.choices[0]?.finish_reason, 'stop');
    assert.equal((await stream.totalUsage()).completion_tokens, 3);
  });

  test('has its request id in the headers', async () => {
    const { response, request_id: id } = await client.chat.completions
      .create({ model: 'demo', messages: user('hi'), stream: true })
      .withResponse();
    assert.match(id ?? '', /^req_[0-9a-f]{12}$/);
    assert.equal(response.headers.get('request-id'), id);
    await response.body?.cancel();
  });

  test('that fails in the middle throws with the code, after the text that came', async () => {
    const stream = await client.chat.completions.create({
      model: 'demo',
      messages: user('fail in the middle'),
      stream: true,
    });
    let text = '';
    const error = await thrown(
      APIError,
      (async () => {
        for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      })(),
    );
    assert.equal(text, 'one two');
    assert.equal(error.code, 'backend_timeout');
    assert.equal(error.type, 'server_error');
    assert.match(error.requestID ?? '', /^req_[0-9a-f]{12}$/);
    const receipt = (await service.usage()).requests.find((line) => line.request_id === error.requestID);
    assert.equal(receipt?.ending, 'failed');
    assert.equal(receipt?.cost_microcents, 0);
  });
});

describe('an abort', () => {
  const abortable = new ServiceOnUpstream();
  before(() => abortable.start());
  after(() => abortable.dispose());

  test('in the middle of a stream stops the work and is charged as client_left', async () => {
    const stream = await clientOf(abortable.service).chat.completions.create({
      model: 'far',
      messages: user('hi'),
      stream: true,
    });
    let text = '';
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (text === 'one two') stream.controller.abort();
    }
    assert.equal(text, 'one two');
    const receipt = await abortable.endingOfLast();
    assert.equal(receipt.ending, 'client_left');
    assert.equal(receipt.completion_tokens, 2);
    assert.equal(receipt.cost_microcents, receipt.prompt_tokens * 5 + 2 * 20);
  });

  test('while a whole answer is under way stops the work too', async () => {
    const controller = new AbortController();
    const asked = abortable.upstream.exchanges.length;
    const answer = clientOf(abortable.service).chat.completions.create(
      { model: 'far', messages: user('hi') },
      { signal: controller.signal },
    );
    const refused = thrown(APIUserAbortError, answer);
    await until(() => abortable.upstream.exchanges.length > asked);
    controller.abort();
    await refused;
    const receipt = await abortable.endingOfLast();
    assert.equal(receipt.ending, 'client_left');
  });
});

describe('errors', () => {
  const create = (content: string): PromiseLike<unknown> =>
    client.chat.completions.create({ model: 'demo', messages: user(content) });

  test('a wrong key is an AuthenticationError', async () => {
    const error = await thrown(AuthenticationError, clientOf(service, 'sk-wrong').models.list());
    assert.equal(error.code, 'invalid_api_key');
    assert.equal(error.type, 'authentication_error');
  });

  test('a request that is not allowed is a BadRequestError with its param', async () => {
    const error = await thrown(
      BadRequestError,
      client.chat.completions.create({ model: 'demo', messages: user('hi'), logprobs: true }),
    );
    assert.equal(error.code, 'unsupported_parameter');
    assert.equal(error.param, 'logprobs');
    assert.match(error.requestID ?? '', /^req_[0-9a-f]{12}$/);
  });

  test('an unknown model is a NotFoundError that lists the models', async () => {
    const error = await thrown(
      NotFoundError,
      client.chat.completions.create({ model: 'nothing', messages: user('hi') }),
    );
    assert.equal(error.code, 'model_not_found');
    assert.match(error.message, /demo/);
  });

  test('a field of the wrong range is an UnprocessableEntityError', async () => {
    const error = await thrown(
      UnprocessableEntityError,
      client.chat.completions.create({ model: 'demo', messages: user('hi'), temperature: 3 }),
    );
    assert.equal(error.code, 'schema_validation_failed');
    assert.equal(error.param, 'temperature');
  });

  test('too many requests at once are a RateLimitError with Retry-After', async () => {
    const controllers = Array.from({ length: 4 }, () => new AbortController());
    const first = controllers.map(async ({ signal }) => {
      const stream = await client.chat.completions.create(
        { model: 'demo', messages: user('hang'), stream: true },
        { signal },
      );
      return stream[Symbol.asyncIterator]().next();
    });
    await Promise.all(first);
    const error = await thrown(RateLimitError, create('hi'));
    assert.equal(error.code, 'concurrency_limit_exceeded');
    assert.equal(error.headers?.get('retry-after'), '1');
    assert.equal(error.headers?.get('ratelimit-limit'), '4');
    assert.equal(error.headers?.get('ratelimit-remaining'), '0');
    assert.equal(error.headers?.get('ratelimit-reset'), '1');
    for (const controller of controllers) controller.abort();
    await until(
      async () => (await service.usage()).requests.filter((line) => line.ending === 'client_left').length >= 4,
    );
    await create('hi');
  });

  test('a backend that refuses is a RateLimitError', async () => {
    const error = await thrown(RateLimitError, create('backend_overloaded'));
    assert.equal(error.code, 'backend_overloaded');
  });

  test('a balance that is too low is an APIError 402 with its three fields', async () => {
    const error = await thrown(
      APIError,
      clientOf(poor).chat.completions.create({ model: 'demo', messages: user('hi'), max_tokens: 1000 }),
    );
    assert.equal(error.status, 402);
    assert.equal(error.code, 'insufficient_credits');
    const fields = error.error as Record<string, unknown>;
    assert.equal(fields['credits_available_cents'], 0);
    assert.equal(fields['credits_required_cents_estimate'], 1);
    assert.equal(fields['topup_url'], `${poor.accountUrl}/topup`);
    const page = await fetch(String(fields['topup_url']));
    assert.equal(page.status, 200);
    assert.match(await page.text(), /tokenhouse credits grant/);
  });

  for (const [code, status] of [
    ['backend_http_error', 502],
    ['backend_connect_error', 502],
    ['no_healthy_backends', 503],
    ['backend_timeout', 504],
  ] as const) {
    test(`${code} is an InternalServerError with status ${status} and the model`, async () => {
      const error = await thrown(InternalServerError, create(code));
      assert.equal(error.status, status);
      assert.equal(error.code, code);
      assert.equal((error.error as Record<string, unknown>)['model'], 'demo');
    });
  }

  test('what fails before the first token of a stream has its status too', async () => {
    const error = await thrown(
      InternalServerError,
      client.chat.completions.create({ model: 'demo', messages: user('backend_timeout'), stream: true }),
    );
    assert.equal(error.status, 504);
  });
});

/** A real vLLM with a reasoning parser: it binds only what stands behind the end of a thought, and forgets the rest. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { inRepository } from '../../support/repository.ts';
import { TestService, until } from '../../support/service.ts';
import { clientOf, type Client } from '../../support/service-client.ts';
import { contextLength, VllmServer } from './vllm-server.ts';

let server: VllmServer;
let service: TestService;
let client: Client;
before(async () => {
  const template = inRepository('tests/suites/vllm/think.jinja');
  server = await VllmServer.start('model-think', ['--reasoning-parser', 'qwen3', '--chat-template', template]);
  const model = (id: string, more: string): string => `  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
${more}    backends: [ ${server.backend} ]`;
  service = new TestService({
    config: `models:\n${model('thinks', '    capabilities: { reasoning: true }\n')}\n${model('unsaid', '')}`,
  });
  await service.start();
  client = clientOf(service);
});
after(async () => {
  await service.dispose();
  await server.stop();
});

const hello = { messages: [{ role: 'user', content: 'Name three colours.' }], temperature: 0 };
/** What ends the thought soon: the token of its mark. */
const shortly = { logit_bias: { '9': 16 } };
const lines = () =>
  service.log
    .filter(({ event }) => event === 'backend_incident')
    .map((line) => ({ ...line, ...(line['detail'] as object | undefined) }) as Record<string, unknown>);

describe('a model that says that it reasons', () => {
  test('is bound behind its thought', async () => {
    for (const bound of [
      { regex: '(?:red|blue)[-_/]' },
      { response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { enum: ['red/', '-blue'] } } } },
    ]) {
      const { text, finish } = await client.answer('/chat/completions', {
        model: 'thinks',
        ...hello,
        ...shortly,
        ...bound,
        max_tokens: 200,
      });
      assert.ok(finish === 'length' || /^((red|blue)[-_/]|"(red\/|-blue)")$/.test(text), text);
    }
  });
  test('is bound without a thought', async () => {
    const { text } = await client.answer('/chat/completions', {
      model: 'thinks',
      ...hello,
      reasoning_effort: 'none',
      regex: 'yes|no',
      max_tokens: 8,
    });
    assert.match(text, /^(yes|no)$/);
  });
  test('takes no constraint on a continued text, where there is no thought to end', async () => {
    const free = await server.post('/completions', {
      prompt: 'x',
      max_tokens: 8,
      temperature: 0,
      structured_outputs: { grammar: 'root ::= "yes" | "no"' },
    });
    const { choices } = free.body as { choices: { text: string }[] };
    assert.doesNotMatch(choices[0]!.text, /^(yes|no)$/, 'vLLM forgets it in silence');
    const refused = await client.refused('/completions', {
      model: 'thinks',
      prompt: 'x',
      max_tokens: 8,
      regex: 'yes|no',
    });
    assert.deepEqual([refused.status, refused.code], [400, 'unsupported_regex']);
  });
});

describe('a model of which the file does not say it', () => {
  test('never answers without the constraint: the first request fails, the next are refused, the log says so', async () => {
    const asked = { model: 'unsaid', prompt: 'x', max_tokens: 8, temperature: 0, ebnf: 'root ::= "yes" | "no"' };
    const first = await client.refused('/completions', asked);
    assert.deepEqual([first.status, first.code], [502, 'backend_http_error']);
    const second = await client.refused('/completions', asked);
    assert.deepEqual([second.status, second.code], [400, 'unsupported_response_format']);
    await until(() => Promise.resolve(lines().some(({ incident }) => incident === 'constraint_ignored')));
    const [line] = lines().filter(({ incident }) => incident === 'constraint_ignored');
    assert.deepEqual([line?.['model'], line?.['cause']], ['unsaid', 'grammar on text completions']);
    const { requests } = await service.usage();
    assert.ok(requests.length > 0);
  });
  test('fails where all of the answer was a thought', async () => {
    const { status, code } = await client.refused('/chat/completions', {
      ...{ model: 'unsaid', ...hello, regex: 'yes|no', max_tokens: 300 },
      // Ends at once, inside the thought.
      logit_bias: { '2': 100 },
    });
    assert.deepEqual([status, code], [502, 'backend_http_error']);
  });
});

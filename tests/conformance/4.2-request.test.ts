import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { assertEnvelope, assertRequestId } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { Relay } from './relay.ts';

/** Specification §4.2: the model, the messages and the headers of a request. Other fields have tests of their own. */
let relay: Relay;
before(async () => {
  relay = await Relay.start(
    (url) => `
  - id: Able
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
  );
});
after(() => relay.end());

const hello = [{ role: 'user', content: 'Say hello.' }];

test('§4.2 model is required and case-insensitive', async () => {
  for (const model of ['Able', 'able', 'ABLE']) assert.equal((await relay.sent({ model }))['model'], 'Able');
  assertEnvelope(await relay.send({}), 'invalid_json_request', { param: 'model' });
  assertEnvelope(await relay.send({ model: 5 }), 'schema_validation_failed', { param: 'model' });
});

test('§4.2 messages is required', async () => {
  const answer = await relay.send({ model: 'able', messages: undefined });
  assertEnvelope(answer, 'invalid_json_request', { param: 'messages' });
});

test('§4.2 messages have the roles system, user, assistant and tool, and no other', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'What is there?' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: 'A tree.' },
    { role: 'assistant', content: 'A tree.' },
    ...hello,
  ];
  const sent = (await relay.sent({ model: 'able', messages }))['messages'] as { role: string }[];
  assert.deepEqual(
    sent.map(({ role }) => role),
    messages.map(({ role }) => role),
  );
  const narrator = [{ role: 'narrator', content: 'x' }];
  assertEnvelope(await relay.send({ model: 'able', messages: narrator }), 'schema_validation_failed', {
    param: 'messages[0].role',
  });
});

test('§4.2 content is a string or an array of parts', async () => {
  const parts = [
    { type: 'text', text: 'Say ' },
    { type: 'text', text: 'hello.' },
  ];
  for (const content of ['Say hello.', parts]) {
    const sent = await relay.sent({ model: 'able', messages: [{ role: 'user', content }] });
    const [message] = sent['messages'] as { content: string | { text: string }[] }[];
    const reported = message?.content ?? '';
    // Parts become one text, a line each, for templates that know no parts.
    assert.match(
      typeof reported === 'string' ? reported : reported.map(({ text }) => text).join(''),
      /^Say\s+hello\.$/,
    );
  }
  for (const content of [5, { type: 'text', text: 'x' }, [{ type: 'text' }]]) {
    const answer = await relay.send({ model: 'able', messages: [{ role: 'user', content }] });
    assert.equal(answer.status, 422, answer.body);
  }
});

test('§4.2 stream: SSE when true, one JSON object when false, null or left out', async () => {
  for (const stream of [true, false, null, undefined]) {
    const answer = await relay.send({ model: 'able', stream });
    assert.equal(answer.status, 200, answer.body);
    const type = stream === true ? /^text\/event-stream/ : /^application\/json/;
    assert.match(answer.headers['content-type'] ?? '', type);
  }
});

test('§5.7 every response carries x-request-id: req_ and 12 hexadecimal digits, another for each', async () => {
  const ids = new Set<string>();
  for (const fields of [{ model: 'able' }, { model: 'able', stream: true }, { model: 'nothing' }, { model: 5 }]) {
    const id = assertRequestId(await relay.send(fields));
    assert.match(id, /^req_[0-9a-f]{12}$/);
    ids.add(id);
  }
  assert.equal(ids.size, 4);
});

test('§5.7 the id of the client is echoed with client_ in front, unless it has the form of ours', async () => {
  for (const [sent, echoed] of [
    ['trace-7', 'client_trace-7'],
    ['req_XYZ', 'client_req_XYZ'],
    ['req_0123456789ab', 'req_0123456789ab'],
  ] as const) {
    assertRequestId(await relay.send({ model: 'able' }, [['x-request-id', sent]]), echoed);
    assertRequestId(await relay.send({ model: 'nothing' }, [['x-request-id', sent]]), echoed);
  }
});

test('§7.1 both hosts answer with the same envelope', async () => {
  const { service } = relay;
  const error = assertEnvelope(await relay.send({ model: 'nothing' }), 'model_not_found', {
    param: 'model',
    accountUrl: service.accountUrl,
  });
  const page = await fetch(String(error['docs_url']));
  assert.equal(page.status, 200, 'docs_url leads somewhere');
  const other = await exchange(service.accountUrl, { method: 'POST', path: '/topup' });
  assertEnvelope(other, 'http_405', { accountUrl: service.accountUrl });
});

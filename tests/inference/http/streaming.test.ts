import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel, until } from '../../support/service.ts';
import { askChat, chatRequest, eventsOf, plainBody } from './chat.ts';
import { assertEnvelope, assertRequestId } from './envelope.ts';
import { RawConnection, requestBytes } from './raw.ts';

/** Specification part 6 and contracts §1.0: what a stream says, in which order, and how it ends when it fails. */
const service = new InnerService({
  limits: '  prime_timeout_seconds: 1',
  config: scriptedModel(`
- when: { last_text: "slow start" }
  say: [ { text: "at last" } ]
  first_token_ms: 4000
- when: { last_text: "slow failure" }
  say: []
  first_token_ms: 1500
  fault: { after_tokens: 0, type: error, code: backend_timeout }
- when: { last_text: "quick failure" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_at_capacity }
- when: { last_text: "fail after two" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: cut }
- when: { last_text: "silence" }
  say: [ { text: "one two" } ]
  pace_ms: 2500
- when: { last_text: "nothing" }
  say: []
- when: { last_text: "thoughts" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- say: [ { text: ["hé", "llo 🌍", "\\n\\"quoted\\" ", "data: x\\n\\n"] } ]
`),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface Chunk {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly {
    readonly index: number;
    readonly delta: Readonly<Record<string, unknown>>;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
  };
}

const streamed = (content: string) => ({ ...plainBody, messages: [{ role: 'user', content }], stream: true });

async function chunksOf(content: string): Promise<readonly Chunk[]> {
  const answer = await askChat(service, streamed(content));
  assert.equal(answer.status, 200, answer.body);
  const events = eventsOf(answer.body);
  assert.equal(events.at(-1), '[DONE]');
  return events.slice(0, -1).map((event) => JSON.parse(event) as Chunk);
}

const textOf = (chunks: readonly Chunk[], field = 'content'): string =>
  chunks.map((chunk) => (chunk.choices[0]?.delta[field] as string | undefined) ?? '').join('');

test('the order of part 6: role, deltas, finish with an empty delta, usage without choices, [DONE]', async () => {
  const chunks = await chunksOf('hi');
  const [first] = chunks;
  assert.ok(first);
  assert.match(first.id, /^chatcmpl-/);
  for (const chunk of chunks) {
    assert.equal(chunk.id, first.id);
    assert.equal(chunk.object, 'chat.completion.chunk');
    assert.equal(chunk.created, first.created);
    assert.equal(chunk.model, 'demo');
  }
  assert.equal(first.choices[0]?.delta['role'], 'assistant');
  for (const chunk of chunks.slice(1)) assert.equal(chunk.choices[0]?.delta['role'], undefined);
  const [finish, usage] = chunks.slice(-2);
  assert.deepEqual(finish?.choices[0]?.delta, {});
  assert.equal(finish?.choices[0]?.finish_reason, 'stop');
  for (const chunk of chunks.slice(0, -2)) assert.equal(chunk.choices[0]?.finish_reason, null);
  assert.deepEqual(usage?.choices, []);
  assert.equal(usage?.usage?.completion_tokens, 4);
  for (const chunk of chunks.slice(0, -1)) assert.equal(chunk.usage, undefined);
  assert.equal(textOf(chunks), 'héllo 🌍\n"quoted" data: x\n\n');
});

test('the framing: one data line an event, line feeds only, a blank line after each', async () => {
  const { body } = await askChat(service, streamed('hi'));
  assert.ok(!body.includes('\r'));
  assert.match(body, /^(data: [^\n]+\n\n)+$/);
});

test('a stream says what a whole answer says', async () => {
  const whole = (await askChat(service, { ...streamed('thoughts'), stream: false })).json() as {
    choices?: { message: Record<string, unknown> }[];
    usage?: unknown;
  };
  const chunks = await chunksOf('thoughts');
  const { message } = whole.choices?.[0] ?? { message: {} };
  assert.equal(textOf(chunks), message['content']);
  assert.equal(textOf(chunks, 'reasoning_content'), message['reasoning_content']);
  assert.equal(message['reasoning_content'], 'hm well');
  assert.deepEqual(chunks.at(-1)?.usage, whole.usage);
});

test('an empty answer is a stream too', async () => {
  const chunks = await chunksOf('nothing');
  assert.equal(textOf(chunks), '');
  assert.equal(chunks[0]?.choices[0]?.delta['role'], 'assistant');
  assert.equal(chunks.at(-1)?.usage?.completion_tokens, 0);
});

describe('a failure', () => {
  test('before the first token has its own status', async () => {
    assertEnvelope(await askChat(service, streamed('quick failure')), 'backend_at_capacity', { extra: ['model'] });
    const unknown = await askChat(service, { ...streamed('hi'), model: 'nothing' });
    assertEnvelope(unknown, 'model_not_found', { param: 'model' });
  });

  test('after it is the last event but [DONE], and nothing is charged', async () => {
    const answer = await askChat(service, streamed('fail after two'), [['X-Request-Id', 'cut-short']]);
    assert.equal(answer.status, 200);
    assertRequestId(answer, 'client_cut-short');
    const events = eventsOf(answer.body);
    assert.equal(events.at(-1), '[DONE]');
    const { error } = JSON.parse(events.at(-2) ?? '{}') as { error?: Record<string, unknown> };
    assert.equal(error?.['code'], 'backend_http_error');
    assert.equal(error?.['type'], 'server_error');
    assert.equal(error?.['request_id'], 'client_cut-short');
    assert.equal(error?.['docs_url'], `${service.accountUrl}/docs/errors/backend_http_error`);
    assert.equal(error?.['model'], 'demo');
    const before = events.slice(0, -2).map((event) => JSON.parse(event) as Chunk);
    assert.equal(textOf(before), 'one two');
    assert.ok(before.every((chunk) => chunk.usage === undefined && chunk.choices[0]?.finish_reason === null));
    const receipt = (await service.usage()).requests.find((line) => line.request_id === 'client_cut-short');
    assert.equal(receipt?.ending, 'failed');
    assert.equal(receipt?.cost_microcents, 0);
  });

  test('of a whole answer has its own status at whatever moment', async () => {
    const answer = await askChat(service, { ...streamed('fail after two'), stream: false });
    assertEnvelope(answer, 'backend_http_error', { extra: ['model'] });
  });
});

describe('when the first token takes longer than prime_timeout_seconds', () => {
  test('the head goes out with a comment, comments follow, then the answer', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, streamed('slow start'))));
    await connection.waitFor(() => connection.received.includes('\r\n\r\n'));
    assert.match(connection.received, /^HTTP\/1\.1 200 /);
    await connection.waitFor(() => connection.received.includes(': keep-alive\n\n'));
    assert.ok(!connection.received.includes('data:'));
    const { body } = await connection.answer();
    connection.close();
    assert.match(body, /^(: keep-alive\n\n){2,4}data: /);
    const chunks = eventsOf(body).slice(0, -1);
    assert.equal(textOf(chunks.map((event) => JSON.parse(event) as Chunk)), 'at last');
  });

  test('a failure after the head is an event of the stream', async () => {
    const answer = await askChat(service, streamed('slow failure'));
    assert.equal(answer.status, 200);
    assert.match(
      answer.body,
      /^: keep-alive\n\ndata: \{"error":\{.*"code":"backend_timeout".*\}\}\n\ndata: \[DONE\]\n\n$/,
    );
  });

  test('a whole answer never sends its head early', async () => {
    const answer = await askChat(service, { ...streamed('slow failure'), stream: false });
    assertEnvelope(answer, 'backend_timeout', { extra: ['model'] });
  });

  test('silence in the middle is filled with comments too', async () => {
    const { body } = await askChat(service, streamed('silence'));
    assert.match(body, /one.*\n\n(: keep-alive\n\n){1,2}data: .*two/);
  });

  test('a client that leaves after the head and before the first token pays for its input', async () => {
    const connection = await RawConnection.open(service.url);
    const request = chatRequest(service, streamed('slow start'), [['X-Request-Id', 'left-early']]);
    connection.write(requestBytes(service.url, request));
    await connection.waitFor(() => connection.received.includes(': keep-alive\n\n'));
    connection.close();
    const find = async () => (await service.usage()).requests.find((line) => line.request_id === 'client_left-early');
    await until(async () => (await find()) !== undefined);
    const receipt = await find();
    assert.equal(receipt?.ending, 'client_left');
    assert.equal(receipt?.completion_tokens, 0);
    assert.ok(receipt.prompt_tokens > 0);
    assert.equal(receipt.cost_microcents, receipt.prompt_tokens * 5);
  });
});

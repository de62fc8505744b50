import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../../../src/app/control/socket-path.ts';
import { assertEnvelope } from '../../http/envelope.ts';
import { Canaries, sightings } from '../../http/canary.ts';
import { Relay } from '../../../conformance/relay.ts';
import {
  sendResponses,
  sentForResponses,
  streamedResponse,
  wholeResponse,
} from '../../../conformance/responses-relay.ts';

/** `item_reference` (contracts §0.5, decision 2): what may be named instead of being sent again, by whom, and what may not. */
let relay: Relay;
let otherKey = '';
before(async () => {
  relay = await Relay.start(
    (url) => `
  - id: able
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [none, low, high], default: low, preserves: true }
    backends: [ { engine: openai, flavor: vllm, url: "${url}", zdr: true } ]`,
  );
  const { service } = relay;
  const control = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(control, { kind: 'create_account', name: 'other' });
  assert.ok(account !== undefined);
  const { accountId } = account;
  const key = await askRunningService(control, { kind: 'create_key', accountId, name: 'other', expiresAt: undefined });
  assert.ok(key !== undefined);
  otherKey = key.key;
  const { code, stderr } = await service.command('credits', 'grant', '--cents', '100', '--account', accountId);
  assert.equal(code, 0, stderr);
});
after(() => relay.end());

const reference = (id: string) => ({ type: 'item_reference', id });
const look = { type: 'function', name: 'look', parameters: { type: 'object', properties: {} } };

/** An answer with a thought, words and a call. */
async function answered(
  more: Readonly<Record<string, unknown>> = {},
  stream = false,
  options = {},
): Promise<readonly string[]> {
  const call = { index: 0, id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };
  relay.reply = [{ reasoning_content: 'Seven.' }, { content: 'I look.' }, { tool_calls: [call] }];
  const asked = { model: 'able', tools: [look], ...more };
  const { output } = stream
    ? (await streamedResponse(relay.service, asked, options)).response
    : await wholeResponse(relay.service, asked, options);
  relay.reply = [{ content: 'Hello.' }];
  assert.deepEqual(
    output.map(({ type }) => type),
    ['reasoning', 'message', 'function_call'],
  );
  return output.map(({ id }) => id);
}

const nextTurn = (ids: readonly string[]) => [
  { role: 'user', content: 'Look.' },
  ...ids.map(reference),
  { type: 'function_call_output', call_id: 'call_1', output: 'A tree.' },
];

for (const stream of [false, true]) {
  test(`a ${stream ? 'streamed' : 'whole'} answer is named by its items as if they were sent`, async () => {
    const ids = await answered({}, stream);
    const body = await sentForResponses(relay, { model: 'able', input: nextTurn(ids), preserve_thinking: true });
    const [, assistant, tool] = body['messages'] as { content: string; tool_calls: { id: string }[] }[];
    assert.match(assistant?.content ?? '', /Seven\.[^]*I look\./);
    assert.equal(assistant?.tool_calls[0]?.id, 'call_1');
    assert.equal(tool?.content, 'A tree.');
    const [, , call = ''] = ids;
    const bare = [{ role: 'user', content: 'Look.' }, { id: call }, ...nextTurn([]).slice(1)];
    await sentForResponses(relay, { model: 'able', input: bare });
  });
}

test('the length of what is named is counted', async () => {
  const ids = await answered();
  const path = '/v1/responses/input_tokens';
  relay.promptTokens = undefined;
  const count = async (input: unknown) =>
    (await sendResponses(relay.service, { model: 'able', input }, { path })).json()['input_tokens'] as number;
  const [named, without] = [await count(nextTurn(ids)), await count([{ role: 'user', content: 'Look.' }])];
  relay.promptTokens = 10;
  assert.ok(named > without);
});

describe('what is not kept', () => {
  const unresolved = async (ids: readonly string[], options = {}): Promise<void> => {
    const [, message = '', call = ''] = ids;
    for (const id of [message, call]) {
      const input = [{ role: 'user', content: 'a' }, reference(id), { role: 'user', content: 'b' }];
      const answer = await sendResponses(relay.service, { model: 'able', input }, options);
      assertEnvelope(answer, 'unsupported_parameter', { param: 'input[1]' });
    }
  };

  test('a thought that is not found is left out', async () => {
    const input = [{ role: 'user', content: 'a' }, reference('rs_nobody_0'), { role: 'user', content: 'b' }];
    const body = await sentForResponses(relay, { model: 'able', input });
    assert.equal((body['messages'] as unknown[]).length, 2);
  });

  test('items of another account', async () => {
    const ids = await answered();
    await unresolved(ids, { key: otherKey });
    await sentForResponses(relay, { model: 'able', input: nextTurn(ids) });
  });

  test('items of a request with store: false', async () => unresolved(await answered({ store: false })));

  test('items under zero data retention', async () => {
    const headers = [['Service-ZDR', 'required']] as const;
    await unresolved(await answered({}, false, { headers }));
    await unresolved(await answered({ store: false }, true, { headers }));
  });

  test('ids that nobody made, twice the same, and nothing else', async () => {
    await unresolved(['', 'msg_nobody', 'fc_nobody']);
    const ids = await answered();
    const twice = [...nextTurn(ids), reference(ids[1] ?? '')];
    assertEnvelope(await sendResponses(relay.service, { model: 'able', input: twice }), 'unsupported_value', {
      param: `input[${twice.length - 1}]`,
    });
    const alone = await sendResponses(relay.service, { model: 'able', input: [reference('rs_nobody')] });
    assertEnvelope(alone, 'schema_validation_failed', { param: 'input' });
  });
});

test('items outlive a restart and a crash', async () => {
  const ids = await answered();
  await relay.service.stop('SIGKILL');
  await relay.service.start();
  await sentForResponses(relay, { model: 'able', input: nextTurn(ids) });
  await relay.service.stop();
  await relay.service.start();
  await sentForResponses(relay, { model: 'able', input: nextTurn(ids) });
});

test('I10: of a request with store: false or under zero data retention nothing is in any file that can be read', async () => {
  const canaries = new Canaries();
  const send = async (of: string, more: object, own: readonly (readonly [string, string])[], isKeyed = false) => {
    for (const stream of [false, true]) {
      const at = (place: string) => canaries.at(`${place}, ${of}, ${stream}`);
      const call = {
        index: 0,
        id: at('call id'),
        type: 'function',
        function: { name: 'look', arguments: `{"a":"${at('arguments')}"}` },
      };
      relay.reply = [{ reasoning_content: at('thought') }, { content: at('answer') }, { tool_calls: [call] }];
      const body = {
        model: 'able',
        stream,
        tools: [{ ...look, description: at('description') }],
        instructions: at('instructions'),
        metadata: { [at('key')]: at('value') },
        user: at('user'),
        prompt_cache_key: at('cache key'),
        include: ['reasoning.encrypted_content'],
        input: [
          { role: 'user', content: at('question') },
          { type: 'reasoning', id: at('item id'), summary: [{ type: 'summary_text', text: at('earlier thought') }] },
          { type: 'function_call', call_id: at('same'), name: 'look', arguments: at('earlier arguments') },
        ],
        ...more,
      };
      const headers = isKeyed ? [...own, ['Idempotency-Key', at('idempotency key')] as const] : own;
      const answer = await sendResponses(relay.service, body, { headers });
      assert.equal(answer.status, 200, answer.body);
      if (!isKeyed) continue;
      // What is kept of it gives the same bytes again to an equal request, and to nobody else.
      relay.reply = [{ content: 'another answer' }];
      const again = await sendResponses(relay.service, body, { headers });
      assert.equal(again.headers['idempotent-replayed'], 'true', again.body);
      assert.equal(again.body, answer.body);
    }
  };
  await send('not stored', { store: false }, []);
  await send('not stored, with a key', { store: false }, [], true);
  await send('zero retention', {}, [['Service-ZDR', 'required']]);
  const forbidden = canaries.all.length;
  assert.ok(forbidden > 40);
  await send('stored', {}, [], true);
  relay.reply = [{ content: 'Hello.' }];

  const { service } = relay;
  await service.stop();
  const files = new Map(
    readdirSync(service.folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name !== 'tokenhouse.yaml')
      .map((entry) => [join(entry.parentPath, entry.name), readFileSync(join(entry.parentPath, entry.name))]),
  );
  const hay = new Map([...files, ['output', Buffer.from(service.output)]]);
  assert.deepEqual(sightings(canaries.all.slice(0, forbidden), hay), []);
  // The detector sees what is kept: the answer, and nothing of the question.
  const kept = sightings(canaries.all.slice(forbidden), hay).map(({ place }) => place.split(',')[0]);
  assert.deepEqual([...new Set(kept)].toSorted(), ['answer', 'arguments', 'call id', 'thought']);
  await service.start();
});

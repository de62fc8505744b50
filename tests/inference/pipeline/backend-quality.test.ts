import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { qualityObject, worseObject } from '../../../src/account-api/backend-quality.ts';
import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import { askForStatus } from '../../../src/app/control/control-client.ts';
import { lookAtAnswers } from '../../../src/cli/doctor/backends.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';
import { answerCheckOf, noFindings } from '../../../src/inference/pipeline/answer-check.ts';
import type { Findings } from '../../../src/inference/routing/backend-quality.ts';
import { InnerService, type TestService } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../support/upstream.ts';
import { engineRequest } from '../engines/contract.ts';

/** What is seen of answers, and one of four servers that breaks its calls. */
const weather = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer', minimum: 1 } },
  required: ['city'],
};
const tools = [
  { type: 'function', name: 'weather', description: undefined, parameters: weather },
  { type: 'function', name: 'anything', description: undefined, parameters: undefined },
];
const always = { mayCheck: () => true, checked: () => {} };
const sound = { calls: 1, callsChecked: 1 };

const call = (name: string, written: string): readonly GenerationEvent[] => [
  { type: 'tool-call', choice: 0, call: 0, id: 'c', name },
  ...[...written].map((text): GenerationEvent => ({ type: 'tool-arguments', choice: 0, call: 0, text })),
];
const says = (text: string): readonly GenerationEvent[] => [{ type: 'text', choice: 0, text }];
const ends = (reason: 'stop' | 'length' | 'tool-calls' = 'stop'): GenerationEvent => ({
  type: 'finish',
  choice: 0,
  reason,
});
const form = (schema: unknown) =>
  ({ constraint: { source: { type: 'json-schema', schema, name: 'x' }, gbnf: undefined } }) as const;

for (const [what, more, events, found] of [
  ['a sound call', { tools }, [...call('weather', '{"city":"Bonn","days":2}'), ends()], sound],
  ['a member that the schema does not name', { tools }, [...call('weather', '{"city":"B","x":[{}]}'), ends()], sound],
  ['nothing, where all is optional', { tools }, [...call('anything', ''), ends()], { calls: 1 }],
  ['a function without a schema', { tools }, [...call('anything', '{"x":1}'), ends()], { calls: 1 }],
  ['cut JSON', { tools }, [...call('weather', '{"city":"Bo'), ends('tool-calls')], { calls: 1, callsUnreadable: 1 }],
  ['cut by a limit', { tools }, [...call('weather', '{"city":"Bo'), ends('length')], {}],
  ['no object', { tools }, [...call('weather', '["Bonn"]'), ends()], { calls: 1, callsUnreadable: 1 }],
  ['quoted JSON', { tools }, [...call('weather', '"{}"'), ends()], { calls: 1, callsUnreadable: 1 }],
  ['another function', { tools }, [...call('whether', '{}'), ends()], { calls: 1, callsUnknown: 1 }],
  ['a missing member', { tools }, [...call('weather', '{"days":1}'), ends()], { ...sound, callsMisfit: 1 }],
  ['a wrong type', { tools }, [...call('weather', '{"city":3}'), ends()], { ...sound, callsMisfit: 1 }],
  ['a call in the text', { tools }, [...says('<tool_call>{"name":'), ends()], { calls: 1, callsInText: 1 }],
  ['an answer without a call', { tools }, [...says('Sunny.'), ends()], {}],
  ['an answer that was not finished', { tools }, call('weather', '{'), {}],
  ['a form', form(weather), [...says('{"city":"Bonn"}'), ends()], { forms: 1 }],
  ['another form', form(weather), [...says('{"town":"Bonn"}'), ends()], { forms: 1, formsMisfit: 1 }],
  ['a form in words', form(weather), [...says('Here: {"city":"Bonn"}'), ends()], { forms: 1, formsMisfit: 1 }],
  ['a form cut by a limit', form(weather), [...says('{"ci'), ends('length')], {}],
  ['a schema that nothing enforces', form({ not: {} }), [...says('{}'), ends()], { forms: 1 }],
] as const satisfies readonly (readonly [
  string,
  Partial<ReturnType<typeof engineRequest>>,
  readonly GenerationEvent[],
  Partial<Findings>,
])[])
  test(`an answer is looked at: ${what}`, () => {
    const check = answerCheckOf(engineRequest('hi', more))!;
    for (const each of events) check.read([each]);
    assert.deepEqual(check.findings(always, 0), { ...noFindings, ...found });
  });

test('nothing is looked at where neither calls nor JSON are asked for, and no schema where there is no time', () => {
  assert.equal(answerCheckOf(engineRequest('hi')), undefined);
  const check = answerCheckOf(engineRequest('hi', { tools }))!;
  check.read([...call('weather', '{"days":1}'), ends()]);
  assert.deepEqual(check.findings({ ...always, mayCheck: () => false }, 0), { ...noFindings, calls: 1 });
});

let service: TestService;
const names = ['gpu-1', 'gpu-2', 'gpu-3', 'gpu-4'] as const;
let servers: readonly Upstream[] = [];
let isBroken = true;
let asked = 0;

before(async () => {
  servers = await Promise.all(
    names.map((name) =>
      Upstream.start((exchange) => {
        const isBad = isBroken && name === 'gpu-3';
        exchange.events();
        const written = { name: 'weather', arguments: isBad ? '{"city":' : '{"city":"Bonn"}' };
        exchange.chunk(
          chatChunk({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: written }] }) +
            chatChunk({}, 'tool_calls') +
            usageChunk({ prompt_tokens: 40, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 10 } }) +
            event('[DONE]'),
        );
        exchange.endChunks();
      }),
    ),
  );
  service = await new InnerService({
    config: `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${names.map((name, index) => `      - { engine: openai, name: ${name}, flavor: vllm, url: "${servers[index]!.url}" }`).join('\n')}`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  for (const server of servers) await server.close();
});

/** Each is a conversation of its own, so that none is at home anywhere. */
async function ask(): Promise<void> {
  const answer = await service.chat({
    model: 'm',
    messages: [{ role: 'user', content: `Number ${asked++}: ${'what is the weather? '.repeat(30)}` }],
    tools: [{ type: 'function', function: { name: 'weather', parameters: weather } }],
  });
  assert.equal(answer.status, 200, await answer.text());
}
const logged = (event: string) => service.log.filter((line) => line['event'] === event);
async function askUntil(event: string): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (logged(event).length === 0) {
    assert.ok(performance.now() < endMs, `no ${event} after ${asked} requests`);
    await ask();
  }
}
const counts = (): readonly number[] => servers.map(({ exchanges }) => exchanges.length);

test('one of four servers breaks its calls: it is named, shown and used less, no request is refused, and it comes back', async () => {
  await askUntil('backend_worse');
  const [{ model, backend, by, peers_share } = {}] = logged('backend_worse');
  assert.deepEqual({ model, backend, by, peers_share }, { model: 'm', backend: 'gpu-3', by: 'calls', peers_share: 0 });
  const first = counts();
  for (let count = 0; count < 64; count++) await ask();
  const got = counts().map((count, index) => count - first[index]!);
  assert.ok(got[2]! >= 1 && got[2]! <= 6, `of 64 it got ${got}`);
  const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
  assert.match(page, /^tokenhouse_backend_worse\{model="m",backend="gpu-3"\} 1$/m);
  assert.match(page, /^tokenhouse_backend_worse\{model="m",backend="gpu-1"\} 0$/m);
  assert.match(page, /^tokenhouse_backend_tool_calls_total\{model="m",backend="gpu-3",outcome="sound"\} 0$/m);
  assert.match(page, /^tokenhouse_backend_tool_calls_total\{model="m",backend="gpu-1",outcome="unreadable"\} 0$/m);
  const status = await askForStatus(controlSocketPath(path.join(service.folder, 'data')));
  assert.ok(typeof status === 'object');
  const found = lookAtAnswers({ status }).filter(({ state }) => state === 'warning');
  assert.deepEqual(
    found.map(({ found: what, why }) => [what.split(' · ')[1], why?.split(',')[0]]),
    [['gpu-3', 'it failed 100 % of its answers with tool calls']],
  );
  const [gpu1, , third] = status.backends.map(({ quality }) => qualityObject(quality?.hour));
  assert.deepEqual([gpu1?.tool_calls_json, gpu1?.cached, third?.tool_calls_json], [1, 0.25, 0]);
  assert.equal(worseObject(status.backends[2]?.worse ?? undefined)?.peers_failure_share, 0);
  isBroken = false;
  await askUntil('backend_recovered');
  assert.equal(logged('backend_worse').length, 1);
});

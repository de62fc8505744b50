import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';

import fc from 'fast-check';

import { chatFormat } from '../../src/inference/dialects/chat/chat.ts';
import { Fold } from '../../src/generation/fold.ts';
import { Meter } from '../../src/inference/pipeline/meter.ts';
import { legalStream } from '../generation/legal-streams.ts';
import { OpenAiSchema } from '../support/openai-schema.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import { inRepository } from '../support/repository.ts';
import { wires } from './dialects.ts';
import { print, readStreamCase, streamCaseNames } from './stream-case.ts';
import { plainSigner } from '../support/plain-signer.ts';
import { eventsOf } from './responses-reader.ts';
import type { WireEvent } from './responses-reader.ts';
import { sendResponses } from './responses-relay.ts';

/**
 * Everything that we send validates against OpenAI's published schemas, but for the differences that
 * docs/api-differences.md lists: nothing departs that is not listed, and nothing is listed that does not depart.
 */
const schema = OpenAiSchema.load();
const skip = schema === undefined && 'OPENAI_SCHEMA does not name the document';

const whole = 'CreateChatCompletionResponse';
const chunk = 'CreateChatCompletionStreamResponse';
/** Whole answers and chunks. */
const completion = 'CreateCompletionResponse';
const models = 'ListModelsResponse';
const response = 'Response';

/** What OpenAI calls the events of a Response. */
const responseEvents: Readonly<Record<string, string>> = {
  'response.created': 'ResponseCreatedEvent',
  'response.in_progress': 'ResponseInProgressEvent',
  'response.completed': 'ResponseCompletedEvent',
  'response.incomplete': 'ResponseIncompleteEvent',
  'response.failed': 'ResponseFailedEvent',
  'response.output_item.added': 'ResponseOutputItemAddedEvent',
  'response.output_item.done': 'ResponseOutputItemDoneEvent',
  'response.content_part.added': 'ResponseContentPartAddedEvent',
  'response.content_part.done': 'ResponseContentPartDoneEvent',
  'response.output_text.delta': 'ResponseTextDeltaEvent',
  'response.output_text.done': 'ResponseTextDoneEvent',
  'response.reasoning_summary_part.added': 'ResponseReasoningSummaryPartAddedEvent',
  'response.reasoning_summary_part.done': 'ResponseReasoningSummaryPartDoneEvent',
  'response.reasoning_summary_text.delta': 'ResponseReasoningSummaryTextDeltaEvent',
  'response.reasoning_summary_text.done': 'ResponseReasoningSummaryTextDoneEvent',
  'response.function_call_arguments.delta': 'ResponseFunctionCallArgumentsDeltaEvent',
  'response.function_call_arguments.done': 'ResponseFunctionCallArgumentsDoneEvent',
  error: 'ResponseErrorEvent',
};

/** A Response inside of an event is judged as a Response, and the event without it: its faults have one name. */
function judgeEvent(event: WireEvent): void {
  const { response: inner, ...rest } = event;
  const name = responseEvents[event.type];
  assert.ok(name, event.type);
  if (inner === undefined) return judge(name, rest);
  judge(response, inner);
  // A Response of the schema stands in for ours, which has been judged.
  judge(name, { ...rest, response: rightResponse });
}

const rightResponse = {
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  error: null,
  incomplete_details: null,
  instructions: null,
  model: 'm',
  tools: [],
  output: [],
  parallel_tool_calls: true,
  metadata: {},
  tool_choice: 'auto',
  temperature: 1,
  top_p: 1,
};

/** Rows `| object | field | what the schema says | why |`. */
const listed = new Map(
  [
    ...readFileSync(inRepository('docs', 'api-differences.md'), 'utf8').matchAll(
      /^\| `(\w+)` \| `([^`]+)` \| (.+?) \| (.+?) \|$/gm,
    ),
  ].map(([, object = '', field = '', says = '', why = '']) => [`${object} ${field}: ${says}`, why]),
);
const seen = new Set<string>();

function judge(object: string, value: unknown): void {
  assert.ok(schema);
  for (const departure of schema.departures(object, value)) {
    const row = `${object} ${departure}`;
    assert.ok(listed.has(row), `${row}\nis not in docs/api-differences.md; it departs in ${JSON.stringify(value)}`);
    seen.add(row);
  }
}

/** The chunks of a stream; errors have no schema of OpenAI's. */
const chunksOf = (sse: string): readonly unknown[] =>
  sse
    .split('\n\n')
    .filter((event) => event.startsWith('data: {') && !event.startsWith('data: {"error"'))
    .map((event) => JSON.parse(event.slice('data: '.length)) as unknown);

describe('by the schemas of OpenAI', { skip }, () => {
  for (const name of streamCaseNames()) {
    test(`the case ${name} is right, whole and in every chunk`, () => {
      const script = readStreamCase(name);
      const { sse, json } = print(script, wires.get('chat')!);
      if (script.error === undefined) judge(whole, JSON.parse(json));
      const chunks = chunksOf(sse);
      assert.ok(chunks.length > 0);
      for (const value of chunks) judge(chunk, value);
    });

    test(`the case ${name} is right as a Response, whole and in every event`, () => {
      const script = readStreamCase(name);
      const { sse, json } = print(script, wires.get('responses')!);
      if (script.error === undefined) judge(response, JSON.parse(json));
      const events = eventsOf(sse);
      assert.ok(events.length > 3);
      for (const event of events) judgeEvent(event);
    });
  }

  for (const name of streamCaseNames()) {
    for (const wire of ['completions', 'completions-tokens']) {
      test(`the case ${name} is right as a text completion, on ${wire}`, () => {
        const script = readStreamCase(name);
        const { sse, json } = print(script, wires.get(wire)!);
        if (script.error === undefined) judge(completion, JSON.parse(json));
        for (const value of chunksOf(sse)) judge(completion, value);
      });
    }
  }

  test('whatever an engine may say is right', () => {
    const head = {
      requestId: 'req_0123456789ab',
      id: '00'.repeat(16),
      created: 1_790_000_000,
      model: 'a"model',
      signer: plainSigner,
    };
    fc.assert(
      fc.property(legalStream, (stream) => {
        const meter = new Meter({
          choices: stream.choices,
          promptTokensLikely: 0,
          promptTokensPossible: Infinity,
          begunMs: 0,
        });
        const encoder = chatFormat.openStream(head);
        const fold = new Fold();
        let sse = '';
        for (const batch of stream.batches) {
          meter.read(batch);
          fold.read(meter.pass);
          sse += encoder.batch(meter.pass);
        }
        const closing = meter.closing();
        fold.read(closing);
        for (const value of chunksOf(sse + encoder.batch(closing))) judge(chunk, value);
        judge(whole, JSON.parse(chatFormat.encodeResponse(fold.generation(), head)));
      }),
      { numRuns: 200 },
    );
  });

  describe('a running service', () => {
    const service = new InnerService({
      config: scriptedModel(`
- when: { last_text: "think" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- when: { last_text: "nothing" }
  say: []
- when: { last_text: "more" }
  say: [ { text: "and so on" } ]
  repeat: 10
- say: [ { text: "hello world" } ]
`),
    });
    before(() => service.start());
    after(() => service.dispose());

    test('lists its models right', async () => {
      for (const headers of [{}, { authorization: `Bearer ${service.key}` }]) {
        judge(models, await (await fetch(`${service.url}/v1/models`, { headers })).json());
      }
    });

    for (const content of ['hi', 'think', 'nothing', 'more']) {
      test(`answers '${content}' right`, async () => {
        const body = { model: 'demo', messages: [{ role: 'user', content }], max_tokens: 8 };
        const answer = await service.chat(body);
        assert.equal(answer.status, 200);
        judge(whole, await answer.json());
        const stream = await service.chat({ ...body, stream: true });
        const chunks = chunksOf(await stream.text());
        assert.ok(chunks.length > 2);
        for (const value of chunks) judge(chunk, value);
      });

      test(`answers '${content}' right with a Response, whatever it repeats`, async () => {
        const parameters = { type: 'object', properties: {}, additionalProperties: false };
        const full = {
          instructions: 'Be brief.',
          tools: [
            { type: 'function', name: 'a', description: 'A.', parameters, strict: true },
            { type: 'function', name: 'b' },
            { type: 'web_search' },
          ],
          tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'a' }] },
          metadata: { a: 'b' },
          reasoning: { effort: 'high', summary: 'detailed' },
          prompt_cache_key: 'k',
          safety_identifier: 's',
          user: 'u',
          max_tool_calls: 2,
          include: ['reasoning.encrypted_content'],
          truncation: 'auto',
        };
        const format = { type: 'json_schema', name: 'n', strict: true, schema: { type: 'object' } };
        for (const more of [
          {},
          full,
          { text: { format, verbosity: 'low' } },
          { text: { format: { type: 'json_object' } } },
        ]) {
          const body = { model: 'demo', input: content, max_output_tokens: 8, ...more };
          const answer = await sendResponses(service, body);
          assert.equal(answer.status, 200, answer.body);
          judge(response, answer.json());
          const stream = await sendResponses(service, { ...body, stream: true });
          for (const event of eventsOf(stream.body)) judgeEvent(event);
        }
      });
    }
  });

  test('every difference that is listed is one', () => {
    assert.deepEqual([...seen].toSorted(), [...listed.keys()].toSorted());
  });

  test('the judge sees a wrong type, a missing field, a wrong word and an unknown field', () => {
    assert.ok(schema);
    const right = { id: 'a', object: 'chat.completion', created: 1, model: 'm', choices: [] };
    assert.deepEqual(schema.departures(whole, right), []);
    for (const [value, expected] of [
      [{ ...right, created: '1' }, /^created: must be integer$/],
      [{ ...right, id: undefined }, /^: must have required properties id$/],
      [{ ...right, object: 'chat' }, /^object: must be equal to one of the allowed values$/],
      [{ ...right, more: 1 }, /^more: not in the schema$/],
      [
        { ...right, usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 1.5 } },
        /^usage.total_tokens: must be/,
      ],
      [
        { ...right, choices: [{ index: 0, message: { role: 'assistant', content: 1, refusal: null } }] },
        /^choices\[\]/,
      ],
    ] as const) {
      const departures = schema.departures(whole, JSON.parse(JSON.stringify(value)));
      assert.ok(
        departures.some((departure) => expected.test(departure)),
        departures.join('\n'),
      );
    }
  });
});

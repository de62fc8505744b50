import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { GenerationEvent } from '../../../src/generation/event.ts';
import { decode, newDecoder, recordedJson, recording, type DecodeSettings } from './decoding.ts';

const streams: readonly { readonly name: string; readonly settings: DecodeSettings }[] = [
  { name: 'chat-stream-plain', settings: {} },
  { name: 'chat-stream-usage', settings: {} },
  { name: 'chat-stream-timings', settings: {} },
  { name: 'chat-stream-return-progress', settings: {} },
  { name: 'chat-logprobs-stream', settings: { wantsLogprobs: true } },
  { name: 'tool-call-stream', settings: {} },
].map(({ name, settings }) => ({ name, settings: { ...settings, closingUsage: 'per-choice' } }));

describe('recorded streams of llama-server', () => {
  for (const { name, settings } of streams) {
    const bytes = recording(`${name}.sse`);
    const expected = recording(`${name}.events`).toString();

    it(`${name} gives the events of ${name}.events`, () => {
      const { events, failure } = decode([bytes], settings);
      assert.equal(failure, undefined);
      assert.equal(lines(events), expected);
    });

    it(`${name} gives the same events for every cut`, () => {
      for (let cut = 0; cut <= bytes.length; cut++) {
        const { events } = decode([bytes.subarray(0, cut), bytes.subarray(cut)], settings);
        assert.equal(lines(events), expected, `cut at byte ${cut}`);
      }
    });

    it(`${name} gives the same events byte by byte, and with every kind of line end`, () => {
      for (const lineEnd of ['\n', '\r\n', '\r']) {
        const converted = Buffer.from(bytes.toString().replaceAll('\n', lineEnd));
        const single = Array.from(converted, (byte) => Buffer.from([byte]));
        assert.equal(lines(decode(single, settings).events), expected);
      }
    });

    it(`${name} cut short is a failure, until the last finish has come`, () => {
      const text = bytes.toString();
      const finish = text.indexOf('\n', text.search(/"finish_reason":"/));
      for (let cut = 0; cut < finish; cut++) {
        const { events, failure } = decode([bytes.subarray(0, cut)], settings);
        assert.notEqual(failure, undefined, `cut at byte ${cut}`);
        assert.ok(!events.some((event) => event.type === 'finish'));
      }
    });
  }

  it('gives the same events for any cuts of a stream with characters of every length', () => {
    const text = 'aé漢🙂\r\n\\"\u2028 end';
    const chunks = Array.from(text, (character) => ({ choices: [{ index: 0, delta: { content: character } }] }));
    const all = [...chunks, { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }];
    const stream = Buffer.from(`\ufeff: hello\n\n${all.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}`);
    const whole = lines(decode([stream]).events);
    assert.ok(whole.includes('🙂'));
    fc.assert(
      fc.property(fc.array(fc.nat(stream.length), { maxLength: 20 }), (cuts) => {
        const at = [0, ...cuts.sort((a, b) => a - b), stream.length];
        const pieces = at.slice(1).map((to, i) => stream.subarray(at[i], to));
        assert.equal(lines(decode(pieces).events), whole);
      }),
    );
  });
});

describe('recorded whole answers of llama-server', () => {
  const kinds = (events: readonly GenerationEvent[]): string => events.map((event) => event.type).join(' ');
  const wholeOf = (name: string, settings: DecodeSettings = {}): GenerationEvent[] => {
    const decoder = newDecoder({ closingUsage: 'per-choice', ...settings });
    decoder.whole(JSON.stringify(recordedJson(name).body));
    return decoder.drain();
  };

  it('reasoning and text', () => {
    assert.deepEqual(wholeOf('chat-reasoning.json'), [
      { type: 'start', promptTokens: 9 },
      { type: 'reasoning', choice: 0, text: 'Short thought.\n' },
      { type: 'text', choice: 0, text: 'Hello from the scripted model.' },
      { type: 'finish', choice: 0, reason: 'stop' },
      // Without deltas there is nothing to count reasoning by.
      { type: 'usage', usage: { promptTokens: 9, cachedTokens: 0, completionTokens: 12, reasoningTokens: 0 } },
    ]);
  });

  it('a tool call whole, and one that max_tokens cut', () => {
    assert.deepEqual(
      wholeOf('tool-call.json').filter((event) => event.type.startsWith('tool') || event.type === 'finish'),
      [
        { type: 'tool-call', choice: 0, call: 0, id: 'call_vrUeSwWAl3stRYf2CrqMLvADNNDzR57e', name: 'get_weather' },
        { type: 'tool-arguments', choice: 0, call: 0, text: '{"city": "Paris"}' },
        { type: 'finish', choice: 0, reason: 'tool-calls' },
      ],
    );
    assert.deepEqual(
      wholeOf('tool-call-cut.json').filter((event) => event.type === 'tool-arguments' || event.type === 'finish'),
      [
        { type: 'tool-arguments', choice: 0, call: 0, text: '{"city": "Paris"' },
        { type: 'finish', choice: 0, reason: 'length' },
      ],
    );
  });

  it('two choices', () => {
    const events = wholeOf('chat-n2.json', { choices: 2 });
    assert.equal(kinds(events), 'start reasoning finish reasoning finish usage');
  });

  it('a text completion, with logprobs', () => {
    const [, text] = wholeOf('completions-legacy.json', { wantsLogprobs: true });
    assert.ok(text?.type === 'text');
    assert.equal(text.text, '.');
    assert.deepEqual(
      text.logprobs?.map(({ token, tokenId, top }) => ({ token, tokenId, top: top.length })),
      [
        { token: '.', tokenId: 46, top: 2 },
        { token: '', tokenId: 642, top: 2 },
      ],
    );
  });

  it('logprobs of a chat are those of its text', () => {
    const [, reasoning] = wholeOf('chat-logprobs.json', { wantsLogprobs: true });
    assert.ok(reasoning?.type === 'reasoning' && !('logprobs' in reasoning));
  });
});

function lines(events: readonly GenerationEvent[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join('');
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import {
  decode,
  eventLines,
  newDecoder,
  recordedAnswers,
  recordedJson,
  recordedServers,
  recordedSettings,
  recordedStreams,
  recording,
  type DecodeSettings,
  type RecordedServer,
} from './decoding.ts';

for (const server of Object.keys(recordedServers) as RecordedServer[]) {
  describe(`streams of ${server}`, () => {
    for (const name of recordedStreams(server)) {
      const settings = recordedSettings(name, server);
      const bytes = recording(`${name}.sse`, server);
      const expected = recording(`${name}.events`, server).toString();

      it(`${name} gives the events of ${name}.events`, () => {
        assert.equal(linesOf(decode([bytes], settings)), expected);
      });

      // reliability U8. A usage is said once a read, so a cut can only add a usage that the next one replaces. Every event is cut
      // at the same byte at once, so that each byte of the stream is a place of a cut without a reading of the whole for each.
      it(`${name} gives the same events for every cut`, () => {
        const wanted = withoutPassingUsage(decode([bytes], settings));
        const starts = eventStarts(bytes);
        const longest = Math.max(...starts.map((start, index) => (starts[index + 1] ?? bytes.length) - start));
        for (let offset = 0; offset <= longest; offset++) {
          const cuts = starts.map((start, index) => Math.min(start + offset, starts[index + 1] ?? bytes.length));
          const pieces = [0, ...cuts].map((from, index) => bytes.subarray(from, cuts[index] ?? bytes.length));
          const got = withoutPassingUsage(decode(pieces, settings));
          if (got !== wanted) assert.equal(got, wanted, `each event cut after ${offset} bytes`);
        }
      });

      it(`${name} gives the same events byte by byte, and with every kind of line end`, () => {
        const wanted = withoutPassingUsage(decode([bytes], settings));
        for (const lineEnd of ['\n', '\r\n', '\r']) {
          const converted = Buffer.from(bytes.toString().replaceAll('\n', lineEnd));
          const single = Array.from(converted, (byte) => Buffer.from([byte]));
          assert.equal(withoutPassingUsage(decode(single, settings)), wanted);
        }
      });

      it(`${name} cut short is a failure, until the last finish has come`, () => {
        const text = bytes.toString();
        const finish = Buffer.byteLength(text.slice(0, text.indexOf('\n', text.lastIndexOf('"finish_reason":"'))));
        const isWhole = !expected.includes('"failure"');
        const end = isWhole ? finish : bytes.length;
        for (const cut of shortCuts(bytes, end)) {
          const { failure } = decode([bytes.subarray(0, cut)], settings);
          if (failure === undefined) assert.fail(`cut at byte ${cut}`);
        }
      });
    }
  });
}

/** Where events begin: behind each empty line. */
function eventStarts(bytes: Buffer): readonly number[] {
  const starts = [0];
  for (let at = bytes.indexOf('\n\n'); at !== -1; at = bytes.indexOf('\n\n', at + 2)) starts.push(at + 2);
  return starts.filter((start) => start < bytes.length);
}

/** Every byte of the first two events and of the last two before `end`, and what lies around the ends of all others. */
function shortCuts(bytes: Buffer, end: number): readonly number[] {
  const starts = eventStarts(bytes).filter((start) => start < end);
  const wholeFrom = starts.at(-2) ?? 0;
  const wholeTo = starts[2] ?? end;
  return Array.from({ length: end }, (_, cut) => cut).filter(
    (cut) => cut < wholeTo || cut >= wholeFrom || starts.some((start) => Math.abs(start - cut) <= 3),
  );
}

describe('streams of any server', () => {
  it('gives the same events for any cuts of a stream with characters of every length', () => {
    const text = 'aé漢🙂\r\n\\"\u2028 end';
    const chunks = Array.from(text, (character) => ({ choices: [{ index: 0, delta: { content: character } }] }));
    const all = [...chunks, { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }];
    const stream = Buffer.from(`\ufeff: hello\n\n${all.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}`);
    const whole = withoutPassingUsage(decode([stream]));
    assert.ok(whole.includes('🙂'));
    fc.assert(
      fc.property(fc.array(fc.nat(stream.length), { maxLength: 20 }), (cuts) => {
        const at = [0, ...cuts.sort((a, b) => a - b), stream.length];
        const pieces = at.slice(1).map((to, i) => stream.subarray(at[i], to));
        assert.equal(withoutPassingUsage(decode(pieces)), whole);
      }),
    );
  });
});

describe('recorded whole answers', () => {
  for (const server of Object.keys(recordedServers) as RecordedServer[]) {
    it(`of ${server} say what its stream of the same name says`, () => {
      for (const name of recordedAnswers(server)) {
        const stream = name.replace('.json', '');
        if (!recordedStreams(server).includes(stream)) continue;
        const settings = recordedSettings(stream, server);
        const decoder = newDecoder(settings);
        decoder.whole(JSON.stringify(recordedJson(name, server).body));
        const whole = said(decoder.drain());
        const streamed = said(decode([recording(`${stream}.sse`, server)], settings).events);
        assert.deepEqual(whole, streamed, `${server}/${name}`);
      }
    });
  }
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
      // The server does not count reasoning: it is the share that its text has of all.
      { type: 'usage', usage: { promptTokens: 9, cachedTokens: 0, completionTokens: 12, reasoningTokens: 4 } },
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
    const [, text] = wholeOf('completions-legacy.json', { logprobs: 20 });
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
    const [, reasoning] = wholeOf('chat-logprobs.json', { logprobs: 20 });
    assert.ok(reasoning?.type === 'reasoning' && !('logprobs' in reasoning));
  });
});

interface Decoded {
  readonly events: readonly GenerationEvent[];
  readonly failure: string | undefined;
}

function linesOf({ events, failure }: Decoded): string {
  return eventLines(events, failure);
}

function withoutPassingUsage({ events, failure }: Decoded): string {
  const last = events.findLastIndex((event) => event.type === 'usage');
  return eventLines(
    events.filter((event, index) => event.type !== 'usage' || index === last),
    failure,
  );
}

/** What a client gets to see, by choice: texts joined, calls whole. Ids and counts of reasoning differ between runs. */
function said(events: readonly GenerationEvent[]): unknown {
  const choices: Record<number, Record<string, string>> = {};
  for (const event of events) {
    if (!('choice' in event)) continue;
    const choice = (choices[event.choice] ??= {});
    if (event.type === 'text' || event.type === 'reasoning') {
      choice[event.type] = (choice[event.type] ?? '') + event.text;
    } else if (event.type === 'tool-call') choice[`call ${event.call}`] = event.name;
    else if (event.type === 'tool-arguments') {
      choice[`arguments ${event.call}`] = (choice[`arguments ${event.call}`] ?? '') + event.text;
    } else if (event.type === 'finish') choice['finish'] = event.reason;
  }
  for (const choice of Object.values(choices)) {
    for (const [name, text] of Object.entries(choice)) {
      // A parser of tool calls leaves the white space around them in a stream.
      if (text.trim() === '') delete choice[name];
      else choice[name] = text.trim();
    }
  }
  const usage = events.findLast((event) => event.type === 'usage')?.usage;
  return { choices, promptTokens: usage?.promptTokens, completionTokens: usage?.completionTokens };
}

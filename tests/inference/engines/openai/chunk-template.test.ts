import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ChunkShapes, ChunkTemplate } from '../../../../src/inference/engines/openai/chunk-template.ts';
import { recordedServers, recordedStreams, recording, type RecordedServer } from './decoding.ts';

const chunk = (content: string, completion = '5', more = ''): string =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":${content}},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":${completion}}${more}}`;

const template = ChunkTemplate.of(chunk('" a"'))!;

/** What `JSON.parse` makes of it; `undefined` for what it refuses. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A filled template says what `JSON.parse` says, or nothing. */
function assertHonest(made: ChunkTemplate | undefined, text: string): boolean {
  const filled = made?.fill(text);
  if (filled !== undefined) assert.deepEqual(filled, parse(text), text);
  return filled !== undefined;
}

describe('the template of a chunk', () => {
  it('is filled by chunks that differ in a text and in counts', () => {
    for (const text of [chunk('""'), chunk('" word"', '6'), chunk('"é€😀"', '123456789'), chunk('" a"', '0')]) {
      assert.ok(assertHonest(template, text), text);
    }
  });

  it('is not filled by anything else', () => {
    for (const text of [
      '',
      chunk('"a\\n"'),
      chunk('"a\\u0022"'),
      chunk('"a\u0001"'),
      chunk('"a"b"'),
      chunk('"a'),
      chunk('null'),
      chunk('5'),
      chunk(`"${'a'.repeat(100)}"`),
      chunk('" a"', '05'),
      chunk('" a"', '-5'),
      chunk('" a"', '5.5'),
      chunk('" a"', '5e3'),
      chunk('" a"', '1234567890'),
      chunk('" a"', ''),
      chunk('" a"', 'null'),
      chunk('" a"', '"5"'),
      chunk('" a"', '5', ',"error":{}'),
      `${chunk('" a"')} `,
      ` ${chunk('" a"')}`,
      chunk('" a"').slice(0, -1),
      chunk('" a","tool_calls":[]'),
      chunk('" a"').replace('"finish_reason":null', '"finish_reason":"stop"'),
      chunk('" a"').replace('"created":1', '"created":2'),
    ]) {
      assert.ok(!assertHonest(template, text), text);
    }
  });

  it('is made of no chunk whose values are not where they seem to be', () => {
    for (const text of [
      'nonsense',
      '{"choices":[]}',
      '{"content":"a","choices":[{"delta":{"content":"b"}}]}',
      '{"choices":[{"delta":{"content":"a","content":"b"}}]}',
      '{"choices":[{"delta":{"content":"b"}},{"delta":{"content":"c"}}]}',
      '{"choices":[{"delta":{"content":"a\\n"}}]}',
      '{"choices":[{"delta":{"content":"a"},"x":{"completion_tokens":5}}]}',
      '{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":5,"completion_tokens":6}}',
      '{"choices":[{"delta":{"content":"a"}}],"usage":{"a":{"total_tokens":5}}}',
      '{"model":"\\"content\\":\\"a\\"","choices":[{"delta":{"content":"a"}}]}',
    ]) {
      const made = ChunkTemplate.of(text);
      if (made === undefined) continue;
      // Where one was made, it must be an honest one.
      for (const other of [text, text.replace('"a"', '"z"'), text.replace('5', '77')]) assertHonest(made, other);
    }
    assert.equal(ChunkTemplate.of('{"choices":[{"delta":{"content":"a","content":"b"}}]}'), undefined);
    assert.equal(ChunkTemplate.of('{"choices":[{"delta":{"content":"a"},"x":{"completion_tokens":5}}]}'), undefined);
  });

  it('says of every change of a chunk what JSON.parse says, or nothing', () => {
    const text = chunk('" a"');
    fc.assert(
      fc.property(
        fc.nat(text.length),
        fc.nat(3),
        fc.oneof(fc.string({ maxLength: 4 }), fc.constantFrom('"', '\\', '0', '9', '.', 'e1', ',', '}', '\n', '\0')),
        (at, removed, inserted) => {
          assertHonest(template, text.slice(0, at) + inserted + text.slice(at + removed));
        },
      ),
      { numRuns: 5_000 },
    );
  });

  it('serves another stream of the server, and says of every change of its chunks what JSON.parse says, or nothing', () => {
    const shapes = new ChunkShapes();
    shapes.keep(template);
    const other = chunk('" b"', '77')
      .replace('"id":"c"', '"id":"another-é"')
      .replace('"created":1', '"created":1763687000');
    const found = shapes.templateFor(other.replace('"prompt_tokens":7', '"prompt_tokens":123456'));
    assert.ok(assertHonest(found, other));
    assert.ok(!assertHonest(found, chunk('" b"')), 'the id is that of one stream');
    fc.assert(
      fc.property(
        fc.nat(other.length),
        fc.nat(3),
        fc.oneof(fc.string({ maxLength: 4 }), fc.constantFrom('"', '\\', '0', '9', '.', 'e1', ',', '}', '\n', '\0')),
        (at, removed, inserted) => {
          const text = other.slice(0, at) + inserted + other.slice(at + removed);
          assertHonest(shapes.templateFor(text), text);
        },
      ),
      { numRuns: 5_000 },
    );
  });

  it('keeps of a stream only what says no word of its answer', () => {
    const withWords = (more: string): string => chunk('" a"').replace('"logprobs":null', more);
    for (const text of [
      withWords('"logprobs":{"content":[{"token":" a"}]}'),
      withWords('"token_ids":[5]'),
      withWords('"text":"secret"'),
      chunk('" a","reasoning_content":"secret"'),
      chunk('" a"', '5', ',"note":"secret"'),
    ]) {
      const made = ChunkTemplate.of(text);
      assert.ok(made !== undefined, text);
      const shapes = new ChunkShapes();
      shapes.keep(made);
      assert.equal(shapes.templateFor(text), undefined, text);
    }
  });

  it('says of every recorded event what JSON.parse says, whichever it was made of', () => {
    let filled = 0;
    for (const server of Object.keys(recordedServers) as RecordedServer[]) {
      const shapes = new ChunkShapes();
      for (const name of recordedStreams(server)) {
        const events = recording(`${name}.sse`, server).toString().split('\n');
        const texts = events.filter((line) => line.startsWith('data: {')).map((line) => line.slice(6));
        for (const of of texts.slice(0, 6)) {
          const made = ChunkTemplate.of(of);
          for (const text of texts) if (assertHonest(made, text)) filled++;
          if (made !== undefined) shapes.keep(made);
          for (const text of texts) assertHonest(shapes.templateFor(text), text);
        }
      }
    }
    assert.ok(filled > 200, `${filled} fitted`);
  });
});

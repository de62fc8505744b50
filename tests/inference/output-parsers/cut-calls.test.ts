import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { spelled as spelledCalls } from '../../../src/inference/output-parsers/format.ts';
import { read, shown } from './reading.ts';
import { formatNames, formatOf, type FormatName } from './templates.ts';

/**
 * A text that a grammar holds to calls, cut at every place where `max_tokens` may cut it (§4.2.2): what is told of it is the
 * beginning of those calls, never their markup, and no call of which nothing was written.
 */
const calls = [
  ['get_weather', '{"city": "Paris", "days": 3, "tags": ["a"]}'],
  ['now', '{}'],
] as const;

function spelled(name: FormatName): string {
  const format = formatOf(name);
  const written = calls.map(([of, args], index) => ({
    id: `${index}`,
    name: of,
    arguments: JSON.parse(args) as unknown,
  }));
  return spelledCalls(format, format.between === undefined ? written.slice(0, 1) : written);
}

/** What may be told of a beginning of the calls: each with a beginning of its arguments, all but the last of them whole. */
function assertBeginning(lines: readonly string[], where: string): void {
  for (const [index, line] of lines.entries()) {
    const [name, args] = calls[index] ?? ['', ''];
    assert.ok(`${name} ${args}`.startsWith(line), `${where}: ${JSON.stringify(lines)}`);
    assert.ok(
      line.length > `${name} `.length,
      `${where}: a call of which nothing was written: ${JSON.stringify(lines)}`,
    );
    if (index < lines.length - 1) assert.equal(line, `${name} ${args}`, where);
  }
}

for (const format of formatNames) {
  describe(`calls that are cut, in the format ${format}`, () => {
    const text = spelled(format);
    const pieces = (length: number) => [length % 2 === 0 ? [text.slice(0, length)] : text.slice(0, length).split('')];

    test('forced: nothing is text, at any place', () => {
      let seen = 0;
      for (let length = 0; length <= text.length; length++) {
        for (const cut of pieces(length)) {
          const lines = shown(read(cut, { format, bound: 'answer' }));
          assertBeginning(lines, `${format} after ${JSON.stringify(text.slice(0, length))}`);
          // What was emitted is not revoked with more of the text.
          assert.ok(lines.join('\n').length >= seen, `${format} after ${length} characters`);
          seen = lines.join('\n').length;
        }
      }
      const all = formatOf(format).between === undefined ? calls.slice(0, 1) : calls;
      assert.deepEqual(
        shown(read([text], { format, bound: 'answer' })),
        all.map(([name, args]) => `${name} ${args}`),
      );
    });

    const { mark, closeCall, afterArguments } = formatOf(format);
    if (mark !== '')
      test('begun by the model: from the mark on nothing is text', () => {
        for (let length = text.indexOf(mark) + mark.length; length <= text.length; length++) {
          for (const [first = '', ...rest] of pieces(length)) {
            const [said, ...lines] = shown(read([`Well. ${first}`, ...rest], { format, bound: 'marked' }));
            assert.ok(said === 'text: Well. ' || said === 'text: Well.', said);
            assertBeginning(lines, `${format} after ${JSON.stringify(text.slice(0, length))}`);
          }
        }
      });

    if (!text.includes(calls[0][1])) return;
    test('held by no grammar: half of a mark behind the arguments is layout, and no call is made up', () => {
      const [[name, args]] = calls;
      const one = text.indexOf(args) + args.length;
      for (let length = 1; length <= one; length++) {
        const lines = shown(read([text.slice(0, length)], { format }));
        const [line = ''] = lines;
        if (line.startsWith('text: ')) assert.deepEqual(lines, [`text: ${text.slice(0, length)}`]);
        else assertBeginning(lines, `${format} after ${JSON.stringify(text.slice(0, length))}`);
      }
      const end = text.indexOf(afterArguments + closeCall, one);
      for (let length = one; length < end + (afterArguments + closeCall).length; length++) {
        assert.deepEqual(
          shown(read([text.slice(0, length)], { format })),
          [`${name} ${args}`],
          `${format} after ${JSON.stringify(text.slice(0, length))}`,
        );
      }
    });
  });
}

test('XML calls that are cut: no call of which nothing was written, and no half of a mark', () => {
  const text =
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>';
  const whole = 'get_weather {"city": "Paris", "days": 3}';
  for (let length = 1; length <= text.length; length++) {
    const lines = shown(read([text.slice(0, length)], { format: 'qwen-xml' }));
    const [line = ''] = lines;
    assert.equal(lines.length, 1, JSON.stringify(lines));
    if (line.startsWith('text: ')) assert.equal(line, `text: ${text.slice(0, length)}`);
    else assert.ok(line.startsWith('get_weather {"city": ') && line.length <= whole.length, line);
  }
});

test('a word for no arguments that is cut makes no call', () => {
  for (const cut of ['n', 'nul', 'null']) {
    const text = `<tool_call>\n{"name": "now", "arguments": ${cut}`;
    assert.deepEqual(shown(read([text])), [`text: ${text}`]);
    assert.deepEqual(shown(read([text], { bound: 'answer' })), []);
  }
});

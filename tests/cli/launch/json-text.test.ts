import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';

import { readJsonText, TextProblem, withJsonValue } from '../../../src/cli/launch/json-text.ts';

type Json = Record<string, unknown>;

/** JSON as people write it: comments anywhere, commas at the end, tabs or spaces, on one line or on many. */
const written = fc
  .record({
    value: fc.dictionary(
      fc.string({ maxLength: 6 }).filter((name) => name !== '__proto__'),
      fc.jsonValue({ maxDepth: 3 }),
      { maxKeys: 4 },
    ),
    unit: fc.constantFrom('', '  ', '\t', '    '),
    lineEnd: fc.constantFrom('\n', '\r\n'),
    comments: fc.array(fc.constantFrom('// one', '/* two */', '/* "a": { */', '// "}'), { minLength: 1, maxLength: 4 }),
    trailing: fc.boolean(),
    mark: fc.boolean(),
  })
  .map(({ value, unit, lineEnd, comments, trailing, mark }) => {
    let text = JSON.stringify(value, null, unit === '' ? undefined : unit);
    if (unit !== '') {
      let count = 0;
      text = text
        .split('\n')
        .map((line) => (/[,{[]$/.test(line) ? `${line} ${comments[count++ % comments.length]!}` : line))
        .join(lineEnd);
      if (trailing) text = text.replace(/([^,{[\s])(\s*)\}$/, '$1,$2}');
    }
    return { value, text: `${mark ? '\uFEFF' : ''}${text}${lineEnd}` };
  });

const setIn = (value: Json, [name, ...rest]: readonly string[], to: unknown): Json => {
  const inner = Object.hasOwn(value, name!) ? value[name!] : undefined;
  const isObject = typeof inner === 'object' && inner !== null && !Array.isArray(inner);
  const set = rest.length === 0 ? to : setIn(isObject ? (inner as Json) : {}, rest, to);
  return { ...value, [name!]: set };
};

describe('a change in the text of JSON with comments', () => {
  test('changes the value and nothing else', () => {
    fc.assert(
      fc.property(
        written,
        fc.array(fc.constantFrom('a', 'b', 'model', 'x.y'), { minLength: 1, maxLength: 3 }),
        fc.jsonValue({ maxDepth: 1 }),
        ({ value, text }, path, to) => {
          const after = withJsonValue(text, path, to);
          const plain = JSON.parse(JSON.stringify(setIn(value as Json, path, to))) as unknown;
          assert.deepEqual(readJsonText(after), plain);
          assert.deepEqual(readJsonText(text), JSON.parse(JSON.stringify(value)));
          // Again changes nothing more.
          assert.equal(withJsonValue(after, path, to), after);
          if (Object.hasOwn(value, path[0]!)) return;
          // What is new is inserted: all characters of before are there, in their order.
          let at = 0;
          for (const character of text.trimEnd()) {
            at = after.indexOf(character, at) + 1;
            assert.notEqual(at, 0, after);
          }
        },
      ),
    );
  });

  for (const [name, before, after] of [
    ['an empty file', '', '{\n  "a": {\n    "b": 1\n  }\n}\n'],
    ['nothing but a comment', '// mine\n', '// mine\n{\n  "a": {\n    "b": 1\n  }\n}\n'],
    ['an empty object', '{}\n', '{\n  "a": {\n    "b": 1\n  }\n}\n'],
    ['one line', '{ "x": 1 }', '{ "x": 1, "a": {\n  "b": 1\n} }'],
    ['a comment behind the last value', '{\n  "x": 1 // keep\n}', '{\n  "x": 1, // keep\n  "a": {\n    "b": 1\n  }\n}'],
    ['a comma at the end', '{\n\t"x": 1,\n}', '{\n\t"x": 1,\n\t"a": {\n\t\t"b": 1\n\t},\n}'],
    ['a value that is there', '{ "a": { "b": 2, "c": 3 } }', '{ "a": { "b": 1, "c": 3 } }'],
    ['something else in its place', '{ "a": [2] }', '{ "a": {\n  "b": 1\n} }'],
  ] as const)
    test(name, () => assert.equal(withJsonValue(before, ['a', 'b'], 1), after));

  for (const [text, message] of [
    ['[]', /line 1, column 1: expected an object/],
    ['{ "a": 1', /expected , or \}/],
    ['{ "a" 1 }', /column 7: expected :/],
    ['{ "a": "x }', /a string has no end/],
    ['{ /* }', /a comment has no end/],
    ['{} {}', /expected the end of the file/],
    ["{ 'a': 1 }", /expected a name in quotes/],
    [`${'['.repeat(100_000)}`, /expected an object/],
    [`{ "a": ${'['.repeat(100_000)}`, /nested too deeply/],
  ] as const)
    test(`refuses ${text.slice(0, 20)}`, () =>
      assert.throws(
        () => withJsonValue(text, ['b'], 1),
        (error) => error instanceof TextProblem && message.test(error.message),
      ));
});

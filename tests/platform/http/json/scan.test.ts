import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { structureOf as scan, structureLimits } from '../../../../src/platform/http/json/scan.ts';

const faultOf = (text: string, limits = structureLimits): string | undefined =>
  faultIn(scan(Buffer.from(text), limits));

const faultIn = (structure: ReturnType<typeof scan>): string | undefined =>
  typeof structure === 'string' ? structure : undefined;

/** Counted on the value that the text stands for, not on its bytes. */
function structureOf(value: unknown): { characters: number; depth: number } {
  if (typeof value !== 'object' || value === null) return { characters: 0, depth: 0 };
  const isArray = Array.isArray(value);
  const children = isArray ? (value as unknown[]) : Object.values(value);
  const inside = children.map(structureOf);
  const own = 2 + Math.max(0, children.length - 1) + (isArray ? 0 : children.length);
  return {
    characters: inside.reduce((sum, one) => sum + one.characters, own),
    depth: 1 + Math.max(0, ...inside.map((one) => one.depth)),
  };
}

test('the limits are exact for every text', () => {
  // `fc.json` writes names twice now and then, which a value does not show: what is counted is printed again.
  fc.assert(
    fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(0, 1, 2), (json, indent) => {
      const value = JSON.parse(json) as unknown;
      const text = JSON.stringify(value, undefined, indent);
      const { characters, depth } = structureOf(value);
      const exact = { structuralCharactersMax: characters, depthMax: depth };
      assert.equal(faultOf(text, exact), undefined, text);
      if (depth > 0) assert.match(String(faultOf(text, { ...exact, depthMax: depth - 1 })), /deeper than/);
      if (characters > 0)
        assert.match(String(faultOf(text, { ...exact, structuralCharactersMax: characters - 1 })), /structural/);
    }),
    { numRuns: 2_000 },
  );
});

test('what stands in strings is not counted, however they are escaped', () => {
  const piece = fc.constantFrom(
    '\\"',
    '\\\\',
    '[',
    '{',
    ',',
    ':',
    'x',
    '\\n',
    '\\u005b',
    'x'.repeat(31),
    'x'.repeat(33),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
      const text = `["${pieces.join('')}",1]`;
      JSON.parse(text);
      assert.equal(faultOf(text, { structuralCharactersMax: 3, depthMax: 1 }), undefined, text);
      assert.notEqual(faultOf(text, { structuralCharactersMax: 2, depthMax: 1 }), undefined, text);
    }),
    { numRuns: 3_000 },
  );
});

test('no legal request is refused', () => {
  const nest = (levels: number, open: string, close: string): string => open.repeat(levels) + close.repeat(levels);
  // A free-form field may have 128 levels, and stands at most eight levels down.
  assert.equal(faultOf('{"a":'.repeat(8) + nest(128, '[', ']') + '}'.repeat(8)), undefined);
  // A JSON Schema of 64 schemas inside each other, as a tool's parameters.
  const schema = '{"type":"object","properties":{"a":'.repeat(63) + '{"type":"string"}' + '}}'.repeat(63);
  assert.equal(faultOf(`{"tools":[{"function":{"parameters":${schema}}}]}`), undefined);
  // The messages of a million-token window, the tokens of one of half a million, a bias for every token.
  assert.equal(faultOf(`[${'{"role":"user","content":"x"},'.repeat(80_000)}1]`), undefined);
  assert.equal(faultOf(`{"prompt":[${'1000,'.repeat(499_000)}1]}`), undefined);
  assert.equal(faultOf(`{"logit_bias":{${'"100000":1,'.repeat(200_000)}"1":1}}`), undefined);
});

test('a bomb is refused where it breaks the limit', () => {
  const { structuralCharactersMax, depthMax } = structureLimits;
  for (const [bomb, readMax, message] of [
    ['{},', structuralCharactersMax + 1, /structural/],
    ['[', depthMax + 1, /256 levels/],
    ['{"a":', 5 * (depthMax + 1), /256 levels/],
    ['"",', 3 * (structuralCharactersMax + 1), /structural/],
  ] as const) {
    const { fault, steps } = stepsOn(Buffer.from(bomb.repeat(3_000_000 / bomb.length)));
    assert.match(String(fault), message);
    assert.ok(steps <= readMax, `${steps} steps for ${bomb}`);
  }
});

test('the worst text costs three looks at a byte', () => {
  const size = 60_000;
  for (const content of [
    '\\"',
    '\\\\',
    '\\',
    '"',
    'x',
    ' ',
    '""',
    `${'x'.repeat(33)}\\"`,
    `${'x'.repeat(33)}\\\\\\"`,
    '\\u0022',
  ]) {
    for (const before of ['', '"', '["', `"${'x'.repeat(32)}`]) {
      const text = Buffer.from(before + content.repeat(size / content.length));
      const { steps } = stepsOn(text);
      assert.ok(steps <= 3 * text.length + 64, `${steps} steps for ${text.length} bytes of ${content}`);
    }
  }
});

/** How many bytes are looked at, those by `indexOf` too. */
function stepsOn(bytes: Buffer): { readonly fault: string | undefined; readonly steps: number } {
  let steps = 0;
  const counted = new Proxy(bytes, {
    get: (target, name) => {
      if (name === 'length') return target.length;
      if (name === 'indexOf') {
        return (byte: number, from: number): number => {
          const found = target.indexOf(byte, from);
          steps += 1 + (found < 0 ? target.length : found) - from;
          return found;
        };
      }
      steps++;
      return target[Number(name)];
    },
  });
  const fault = faultIn(scan(counted));
  return { fault, steps };
}

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';

import { parseJson } from '../../../../src/platform/http/json/parse.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { accepted, eitherAccepted, eitherRefused, refused } from './catalogue.ts';

type Verdict = { readonly value: unknown } | { readonly refusal: string };

/** What the service makes of a body. Anything but a value or `invalid_json_request` fails the test. */
function verdictOn(body: string | Uint8Array): Verdict {
  try {
    return { value: parseJson(Buffer.from(body as Uint8Array)) };
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.code, 'invalid_json_request');
    assert.equal(error.status, 400);
    return { refusal: error.message };
  }
}

/** What a parser without limits makes of it, when it does not take bytes that are no UTF-8. */
function verdictOfJsonParse(body: string | Uint8Array): { readonly value: unknown } | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(body as Uint8Array));
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}

describe('texts that are JSON (reliability §3.4)', () => {
  for (const [name, text] of Object.entries({ ...accepted, ...eitherAccepted })) {
    test(name, () => assert.deepEqual(verdictOn(text), verdictOfJsonParse(text)));
  }
});

describe('texts that are not, or that break a limit', () => {
  for (const [name, text] of Object.entries({ ...refused, ...eitherRefused })) {
    test(name, () => {
      const verdict = verdictOn(text);
      assert.ok('refusal' in verdict, 'it was taken');
      assert.ok(verdict.refusal.length < 200, 'a refusal does not repeat the text');
      // What is refused although it is JSON names its limit.
      if (verdictOfJsonParse(text) !== undefined)
        assert.match(verdict.refusal, /256 levels|500000 structural characters/);
    });
  }
});

test('the catalogue is of a size', () => {
  const sizes = [accepted, refused, eitherAccepted, eitherRefused].map((table) => Object.keys(table).length);
  assert.ok(sizes.reduce((sum, size) => sum + size, 0) >= 250, String(sizes));
});

test('whatever JSON.parse says of a text, the service says too', () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 8 }), (text) => {
      assert.deepEqual(verdictOn(text), { value: JSON.parse(text) as unknown });
    }),
    { numRuns: 2_000 },
  );
});

test('whatever JSON.parse says of a text with a fault, the service says too', () => {
  const fault = fc.record({
    text: fc.json({ maxDepth: 4 }),
    at: fc.nat(),
    cut: fc.nat(3),
    put: fc.uint8Array({ maxLength: 3 }),
  });
  fc.assert(
    fc.property(fault, ({ text, at, cut, put }) => {
      const whole = Buffer.from(text);
      const place = at % (whole.length + 1);
      const body = Buffer.concat([whole.subarray(0, place), put, whole.subarray(place + cut)]);
      const verdict = verdictOn(body);
      assert.deepEqual('value' in verdict ? verdict : undefined, verdictOfJsonParse(body));
    }),
    { numRuns: 3_000 },
  );
});

test('what JSON leaves to the reader', () => {
  const read = (text: string): unknown => {
    const verdict = verdictOn(text);
    return 'value' in verdict ? verdict.value : assert.fail(verdict.refusal);
  };
  assert.deepEqual(read('{"a":1,"a":2}'), { a: 2 }, 'of a name that stands twice the last one counts');
  assert.equal(read('9007199254740993'), 9007199254740992, 'a number is the nearest double');
  assert.equal(read('1e999'), Infinity, 'a reader of numbers refuses this one');
  assert.equal(read('"\\ud800"'), '\ud800', 'a reader of text makes it well-formed');
  assert.equal(read('"\\u0000"'), '\0');
  const polluting = read('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}') as object;
  assert.deepEqual(Object.keys(polluting), ['__proto__', 'constructor'], 'own names');
  assert.equal(Object.getPrototypeOf(polluting), Object.prototype);
  assert.equal(({} as { polluted?: unknown }).polluted, undefined);
});

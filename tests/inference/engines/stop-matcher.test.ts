import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { StopMatcher } from '../../../src/inference/engines/stop-matcher.ts';

/** The definition, one character at a time over the whole text: the first complete sequence, of several the longest. */
function reference(text: string, sequences: readonly string[]): { text: string; matched: string | undefined } {
  for (let end = 1; end <= text.length; end++) {
    const complete = sequences.filter((sequence) => sequence !== '' && text.slice(0, end).endsWith(sequence));
    const longest = complete.sort((a, b) => b.length - a.length)[0];
    if (longest !== undefined) return { text: text.slice(0, end - longest.length), matched: longest };
  }
  return { text, matched: undefined };
}

function run(pieces: readonly string[], sequences: readonly string[]): { text: string; matched: string | undefined } {
  const matcher = new StopMatcher(sequences);
  let text = '';
  for (const piece of pieces) {
    const found = matcher.push(piece);
    text += found.text;
    if (found.matched !== undefined) return { text, matched: found.matched };
  }
  return { text: text + matcher.flush(), matched: undefined };
}

describe('stop sequences', () => {
  const letters = fc.string({ unit: fc.constantFrom('a', 'b', '\n'), maxLength: 12 });
  const sequences = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '\n'), minLength: 1, maxLength: 4 }), {
    minLength: 1,
    maxLength: 4,
  });

  test('give the same result for every cut of the text', () => {
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 8 }), sequences, (pieces, stops) => {
        assert.deepEqual(run(pieces, stops), reference(pieces.join(''), stops));
      }),
      { numRuns: 2000 },
    );
  });

  test('never let any part of a match out', () => {
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 8 }), sequences, (pieces, stops) => {
        const matcher = new StopMatcher(stops);
        let out = '';
        for (const piece of pieces) {
          const found = matcher.push(piece);
          out += found.text;
          assert.ok(reference(pieces.join(''), stops).text.startsWith(out), 'what left belongs to the answer');
          if (found.matched !== undefined) break;
        }
      }),
    );
  });

  test('hold no more than they must', () => {
    const matcher = new StopMatcher(['STOP']);
    assert.deepEqual(matcher.push('one ST'), { text: 'one ' });
    assert.deepEqual(matcher.push('ART S'), { text: 'START ' });
    assert.deepEqual(matcher.push('TOP now'), { text: '', matched: 'STOP' });
  });

  test('are none when there are none', () => {
    const matcher = new StopMatcher(['']);
    assert.deepEqual(matcher.push('text'), { text: 'text' });
    assert.equal(matcher.flush(), '');
  });
});

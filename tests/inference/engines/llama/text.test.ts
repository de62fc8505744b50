import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { IncrementalText } from '../../../../src/inference/engines/llama/text.ts';

/** A vocabulary whose tokens are any byte strings; invalid UTF-8 comes out as U+FFFD, as from llama.cpp. */
function byteVocabulary(pieces: readonly Uint8Array[]): (ids: readonly number[]) => string {
  return (ids) => Buffer.concat(ids.map((id) => pieces[id] ?? new Uint8Array())).toString('utf8');
}

function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const positions = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  const edges = [0, ...positions, bytes.length];
  return edges.slice(1).map((end, index) => bytes.subarray(edges[index], end));
}

describe('incremental text', () => {
  test('is the same for every cut of the bytes, and never shows half a character', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 24 }).filter((value) => !value.includes('\uFFFD'));
    fc.assert(
      fc.property(text, fc.array(fc.nat(), { maxLength: 40 }), (value, cuts) => {
        const pieces = cutAt(Buffer.from(value, 'utf8'), cuts);
        const incremental = new IncrementalText(byteVocabulary(pieces));
        let out = '';
        for (const id of pieces.keys()) {
          const ready = incremental.push(id);
          assert.ok(!ready.includes('\uFFFD'), 'half a character left');
          assert.doesNotMatch(ready, /\p{Surrogate}/u);
          out += ready;
        }
        assert.equal(out + incremental.flush(), value);
      }),
      { numRuns: 2000 },
    );
  });

  test('is the same for every cut of bytes that are no text at all', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 30 }), fc.array(fc.nat(), { maxLength: 20 }), (bytes, cuts) => {
        const pieces = cutAt(bytes, cuts);
        const incremental = new IncrementalText(byteVocabulary(pieces));
        const out = [...pieces.keys()].map((id) => incremental.push(id)).join('') + incremental.flush();
        assert.equal(out, Buffer.from(bytes).toString('utf8'));
      }),
      { numRuns: 2000 },
    );
  });

  test('keeps the blanks of a vocabulary that drops the first one', () => {
    const pieces = ['\u2581Hello', '\u2581the', 're', '\u2581!'];
    const sentencePiece = (ids: readonly number[]) =>
      ids
        .map((id) => pieces[id] ?? '')
        .join('')
        .replaceAll('\u2581', ' ')
        .replace(/^ /, '');
    const incremental = new IncrementalText(sentencePiece);
    const out = [0, 1, 2, 3].map((id) => incremental.push(id)).join('') + incremental.flush();
    assert.equal(out, 'Hello there !');
  });

  test('gives up waiting for the rest of a character that never comes', () => {
    const incremental = new IncrementalText(byteVocabulary([Uint8Array.of(0xf0)]));
    let out = '';
    for (let count = 0; count < 200; count++) out += incremental.push(0);
    assert.ok(out.length >= 190, `only ${out.length} of 200 left`);
  });
});

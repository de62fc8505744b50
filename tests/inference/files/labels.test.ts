import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { attachment, cleanName } from '../../../src/inference/files/file-name.ts';
import { kindOf, TypeSniffer } from '../../../src/inference/files/media-type.ts';

test('whatever a name is, its label is short, shown as it reads, and safe in a header (reliability §3.4, §3.5)', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 600 }), (text) => {
      const name = cleanName(text);
      assert.ok(Buffer.byteLength(name) <= 255);
      assert.ok(name.isWellFormed());
      assert.doesNotMatch(name, /[\p{Cc}/\\\u202a-\u202e\u2066-\u2069]/u);
      assert.match(attachment(name), /^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''[A-Za-z0-9.\-_~%]*$/);
      assert.equal(cleanName(name), name, 'cleaning is done once');
    }),
  );
});

test('a type does not depend on how the bytes arrive', () => {
  const typeOf = (chunks: readonly Uint8Array[], name: string): string => {
    const sniffer = new TypeSniffer();
    for (const chunk of chunks) sniffer.push(chunk);
    return sniffer.mediaType(name);
  };
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 80 }),
      fc.nat(80),
      fc.constantFrom('a.md', 'a.csv', 'a'),
      (bytes, cut, name) => {
        assert.equal(typeOf([bytes.subarray(0, cut), bytes.subarray(cut)], name), typeOf([bytes], name));
      },
    ),
  );
  const text = Buffer.from('ü文😀 '.repeat(2_000));
  for (let cut = 0; cut < 64; cut++)
    assert.equal(typeOf([text.subarray(0, cut), text.subarray(cut)], 'a.csv'), 'text/csv');
  assert.equal(typeOf([text.subarray(0, 3)], 'a.csv'), 'application/octet-stream', 'cut inside of a character');
  assert.equal(typeOf([], 'a.json'), 'application/json');
  assert.deepEqual(
    ['image/png', 'application/pdf', 'application/json', 'text/csv', 'application/octet-stream'].map(kindOf),
    ['image', 'pdf', 'text', 'text', 'other'],
  );
});

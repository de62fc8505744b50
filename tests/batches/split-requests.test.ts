import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RequestSplitter } from '../../src/inference/batches/split-requests.ts';
import { mulberry32 } from '../support/random.ts';

const bounds = { requestsMax: 1_000, requestBytesMax: 10_000 };

test('requests are found where they are, wherever the body is cut', () => {
  const next = mulberry32(7);
  const below = (count: number): number => Math.floor(next() * count);
  const texts = ['', '"', '\\', '\\"', '{', '}]', '[{"a":1}]', 'ü', '"requests":[{', '\n'];
  const anything = (depth: number): unknown => {
    const kind = below(depth > 3 ? 3 : 5);
    if (kind === 0) return texts[below(texts.length)];
    if (kind === 1) return below(100);
    if (kind === 2) return null;
    const members = Array.from({ length: below(4) }, () => anything(depth + 1));
    return kind === 3 ? members : Object.fromEntries(members.map((value, at) => [`${texts[at]!}${at}`, value]));
  };
  for (let round = 0; round < 300; round++) {
    const requests = Array.from({ length: 1 + below(5) }, (_, index) => ({ index, of: anything(0) }));
    const indent = below(3);
    const body = Buffer.from(JSON.stringify({ before: anything(2), requests, after: anything(2) }, null, indent));
    const splitter = new RequestSplitter(bounds);
    const found: unknown[] = [];
    for (let from = 0; from < body.length;) {
      const until = Math.min(body.length, from + 1 + below(40));
      for (const { line, offsetBytes, length, bytes } of splitter.push(body.subarray(from, until))) {
        assert.deepEqual(bytes, body.subarray(offsetBytes, offsetBytes + length));
        found.push(JSON.parse(String(bytes)));
        assert.equal(line, found.length);
      }
      from = until;
    }
    assert.equal(splitter.end(), requests.length);
    assert.deepEqual(found, JSON.parse(JSON.stringify(requests)), String(body));
  }
});

test('what is too much is refused while it arrives', () => {
  const push = (text: string) => () => new RequestSplitter(bounds).push(Buffer.from(text));
  assert.throws(push(`{"requests":[${'{},'.repeat(1_001)}`), /more than 1000 requests/);
  assert.throws(push(`{"requests":[{"a":"${'x'.repeat(20_000)}`), /requests\.0 has more than 10000 bytes/);
  assert.throws(push(`{"other":"${'x'.repeat(200_000)}`), /too much beside/);
});

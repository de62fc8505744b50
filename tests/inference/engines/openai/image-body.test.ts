import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ImageUrl, jsonBody } from '../../../../src/inference/engines/openai/image-body.ts';
import type { JsonBody } from '../../../../src/inference/engines/openai/image-body.ts';
import type { ImagePart } from '../../../../src/generation/request.ts';

const imageOf = (bytes: number): ImagePart => ({
  type: 'image',
  mediaType: 'image/png',
  base64: Buffer.alloc(bytes, 7).toString('base64'),
  size: { width: 1, height: 1 },
  at: 'x',
});

async function wholeOf({ pieces, text }: JsonBody): Promise<string> {
  assert.equal(text, '');
  const all: Uint8Array[] = [];
  for await (const piece of pieces!) all.push(piece);
  return Buffer.concat(all).toString();
}

test('the pieces are the JSON with a data URI for each image, of the announced length, as often as it is read', async () => {
  for (const sizes of [[3], [1, 2, 3], [1_000_000], [300_000, 5, 700_001]]) {
    const images = sizes.map(imageOf);
    const valueWith = (url: (image: ImagePart) => unknown): unknown => ({
      text: 'ünï "quotes" \\ data:image/png;base64,AAAA',
      images: images.map((image) => ({ image_url: { url: url(image) } })),
      last: 1,
    });
    const body = jsonBody(
      valueWith((image) => new ImageUrl(image)),
      true,
    );
    const expected = JSON.stringify(valueWith(({ base64 }) => `data:image/png;base64,${base64}`));
    assert.equal(await wholeOf(body), expected);
    assert.equal(await wholeOf(body), expected);
    assert.equal(body.length, Buffer.byteLength(expected));
    assert.ok(body.textLength < 500 + 100 * sizes.length);
  }
});

test('a body without images is one string', async () => {
  const body = jsonBody({ a: 'ü' }, false);
  assert.deepEqual(body, { text: '{"a":"ü"}', pieces: undefined, length: 10, textLength: 10 });
});

test('a large image is passed on in pieces, between which others run', async () => {
  const { pieces } = jsonBody({ url: new ImageUrl(imageOf(6_000_000)) }, true);
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  let largest = 0;
  for await (const piece of pieces!) largest = Math.max(largest, piece.length);
  isOver = true;
  assert.ok(largest <= 262_144 && turns >= 29, `${largest} bytes at once, ${turns} turns`);
});

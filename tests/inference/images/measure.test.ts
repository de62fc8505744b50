import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { measure } from '../../../src/inference/images/measure.ts';
import type { ByteSource, Measured } from '../../../src/inference/images/measure.ts';
import { gifFrame, gifOf, jpegOf, jpegSegment, pngChunk, pngMagic, pngOf, webpOf } from '../../support/image-files.ts';

/** Counts what is looked at. */
function sourceOf(bytes: Buffer): ByteSource & { reads: number } {
  const source = {
    reads: 0,
    length: bytes.length,
    at: (start: number, count: number) => {
      source.reads++;
      return bytes.subarray(start, start + count);
    },
  };
  return source;
}
const measured = (bytes: Buffer): Measured | string => measure(sourceOf(bytes));

test('§4.2.4(3): kind and size are read from the header of each format', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 4_000 }), fc.integer({ min: 1, max: 4_000 }), (width, height) => {
      const size = { width, height };
      const table: readonly (readonly [string, Buffer])[] = [
        ['image/png', pngOf(width, height)],
        ['image/jpeg', jpegOf(width, height)],
        ['image/jpeg', jpegOf(width, height, { frame: 0xc2, before: jpegSegment(0xc4, Buffer.alloc(30)) })],
        ['image/gif', gifOf(width, height)],
        ['image/webp', webpOf(width, height, 'lossy')],
        ['image/webp', webpOf(width, height, 'lossless')],
        ['image/webp', webpOf(width, height, 'extended')],
      ];
      for (const [mediaType, bytes] of table) assert.deepEqual(measured(bytes), { mediaType, size });
    }),
  );
});

test('reliability §3.4: what is too large, animated, damaged or something else is refused in words', () => {
  const cut = (bytes: Buffer, length: number): Buffer => bytes.subarray(0, length);
  const noFrame = gifOf(1, 1, []);
  const table: readonly (readonly [string, Buffer, RegExp])[] = [
    ['no pixels', pngOf(0, 5), /no pixels/],
    ['no height', jpegOf(5, 0), /no pixels/],
    ['a million wide', pngOf(1_000_000, 1), /8192 pixels on a side/],
    ['2^31 wide', pngOf(2 ** 31, 2 ** 31), /8192 pixels on a side/],
    ['8193 high', jpegOf(1, 8_193), /8192 pixels on a side/],
    ['67 megapixels', pngOf(8_192, 8_192), /33 million pixels/],
    ['a WebP of 2^24', webpOf(2 ** 24, 2 ** 24, 'extended'), /8192 pixels on a side/],
    ['APNG', pngOf(5, 5, { before: pngChunk('acTL', Buffer.alloc(8)) }), /animated/],
    ['animated WebP', webpOf(5, 5, 'extended', 2), /animated/],
    ['two pictures of GIF', gifOf(5, 5, [gifFrame(5, 5), gifFrame(5, 5)]), /animated/],
    ['a picture beyond its screen', gifOf(5, 5, [gifFrame(9_000, 5)]), /8192 pixels on a side/],
    ['GIF without a picture', noFrame, /damaged/],
    ['nothing', Buffer.alloc(0), /not a PNG, JPEG, WebP or GIF/],
    ['SVG', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'), /not a PNG/],
    ['HTML', Buffer.from('<!doctype html><title>x</title>'), /not a PNG/],
    ['PDF', Buffer.from('%PDF-1.7 xxxxxxxxxxxxxxxxxxxx'), /not a PNG/],
    ['BMP', Buffer.from('BM xxxxxxxxxxxxxxxxxxxxxxxxx'), /not a PNG/],
    ['WAV', Buffer.from('RIFF\0\0\0\0WAVEfmt xxxxxxxxxxxxx'), /not a PNG/],
    ['PNG that ends after its magic', pngMagic, /damaged/],
    ['PNG without IHDR', Buffer.concat([pngMagic, pngChunk('IDAT', Buffer.alloc(20))]), /damaged/],
    ['PNG with two IHDR', pngOf(5, 5, { before: pngChunk('IHDR', Buffer.alloc(13)) }), /damaged/],
    ['PNG cut in its pixels', cut(pngOf(5, 5, { pixels: 100 }), 60), /damaged/],
    ['JPEG cut', cut(jpegOf(5, 5), 25), /damaged/],
    ['JPEG without a frame', Buffer.from([0xff, 0xd8, 0xff, 0xda, 0, 4, 0, 0, 0, 0, 0]), /damaged/],
    ['JPEG with a segment without length', Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0]), /damaged/],
    ['WebP cut', cut(webpOf(5, 5, 'lossy'), 28), /damaged/],
    ['WebP of something', Buffer.concat([Buffer.from('RIFF\x20\0\0\0WEBPXXXX'), Buffer.alloc(40)]), /damaged/],
  ];
  for (const [name, bytes, expected] of table) {
    const found = measured(bytes);
    assert.ok(typeof found === 'string' && expected.test(found), `${name}: ${JSON.stringify(found)}`);
  }
});

test('reliability §3.4: a file cannot make us look at more than a bounded number of places', () => {
  const many = (count: number, piece: Buffer): Buffer => Buffer.concat(new Array<Buffer>(count).fill(piece));
  const bombs: readonly Buffer[] = [
    pngOf(5, 5, { before: many(200_000, pngChunk('tEXt', Buffer.alloc(0))) }),
    jpegOf(5, 5, { before: many(300_000, jpegSegment(0xe2, Buffer.alloc(2))) }),
    Buffer.concat([Buffer.from([0xff, 0xd8]), Buffer.alloc(1_000_000, 0xff)]),
    gifOf(5, 5, [many(100_000, Buffer.from([0x21, 0xfe, 1, 65, 0]))]),
    gifOf(5, 5, [gifFrame(5, 5, 40_000)]),
  ];
  for (const bomb of bombs) {
    const source = sourceOf(bomb);
    measure(source);
    assert.ok(source.reads <= 16_400, `${source.reads} reads`);
  }
});

test('any bytes at all, and any file that is cut or changed anywhere, are measured or refused, never thrown at', () => {
  const files = [pngOf(9, 9), jpegOf(9, 9), gifOf(9, 9), webpOf(9, 9, 'extended'), webpOf(9, 9, 'lossy')];
  fc.assert(
    fc.property(fc.constantFrom(...files), fc.nat(400), fc.nat(255), fc.nat(400), (file, place, byte, length) => {
      const changed = Buffer.from(file);
      changed[place % file.length] = byte;
      for (const bytes of [changed, changed.subarray(0, length)]) {
        const found = measured(bytes);
        if (typeof found !== 'string') assert.ok(found.size.width >= 1 && found.size.width <= 8_192);
      }
    }),
    { numRuns: 3_000 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => void measured(Buffer.from(bytes))));
});

/** QR codes read back as a reader reads them: by the format, the mask, the order of the codewords and their error correction. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { qrCode } from '../../web/src/pages/settings/qr.ts';

/** Of level M, by version: codewords of correction in a block, blocks, and codewords of data; from table 9 of ISO/IEC 18004. */
const levels: Readonly<Record<number, readonly [number, number, number]>> = {
  1: [10, 1, 16],
  2: [16, 1, 28],
  3: [26, 1, 44],
  4: [18, 2, 64],
  5: [24, 2, 86],
  6: [16, 4, 108],
  7: [18, 4, 124],
  8: [22, 4, 154],
  9: [22, 5, 182],
  10: [26, 5, 216],
  14: [24, 9, 365],
  20: [26, 16, 669],
};

test('texts of every length come back, with nothing for the error correction to correct', () => {
  for (const length of [0, 1, 14, 15, 26, 42, 62, 84, 106, 122, 152, 180, 181, 213, 362, 666]) {
    const text = Array.from({ length }, (_, at) => String.fromCodePoint(33 + ((at * 7 + length) % 90))).join('');
    const code = qrCode(text);
    assert.ok(code !== undefined, `${length}`);
    assert.equal(read(code), text, `${length}`);
  }
});

test('a text that fits no code has none, and letters beyond ASCII are read as UTF-8', () => {
  assert.equal(qrCode('x'.repeat(2332)), undefined);
  assert.equal(read(qrCode('otpauth://totp/Tökenhaus:字')!), 'otpauth://totp/Tökenhaus:字');
});

type Code = readonly (readonly boolean[])[];

function read(code: Code): string {
  const size = code.length;
  const version = (size - 17) / 4;
  const level = levels[version];
  assert.ok(level !== undefined && Number.isInteger(version), `version ${version}`);
  const [each, count, dataCount] = level;
  checkPatterns(code);
  const codewords = codewordsOf(code, maskOf(code), version);
  const short = Math.floor(dataCount / count);
  const long = dataCount % count;
  const blocks: number[][] = Array.from({ length: count }, () => []);
  let from = 0;
  for (let at = 0; at <= short; at++)
    for (const [block, words] of blocks.entries())
      if (at < short || block >= count - long) words.push(codewords[from++]!);
  const data = blocks.flat();
  for (let at = 0; at < each; at++) for (const words of blocks) words.push(codewords[from++]!);
  for (const words of blocks)
    for (let power = 0, root = 1; power < each; power++, root = times(root, 2))
      assert.equal(
        words.reduce((sum, word) => times(sum, root) ^ word, 0),
        0,
        'a syndrome is zero',
      );
  const bits = data.map((byte) => byte.toString(2).padStart(8, '0')).join('');
  assert.equal(bits.slice(0, 4), '0100', 'bytes');
  const lengthEnd = version < 10 ? 12 : 20;
  const length = Number.parseInt(bits.slice(4, lengthEnd), 2);
  const bytes = (bits.slice(lengthEnd, lengthEnd + length * 8).match(/.{8}/g) ?? []).map((byte) =>
    Number.parseInt(byte, 2),
  );
  return Buffer.from(bytes).toString('utf8');
}

/** Three finders with their white around them, and the timing between them. */
function checkPatterns(code: Code): void {
  const size = code.length;
  for (const [x, y] of [
    [0, 0],
    [size - 7, 0],
    [0, size - 7],
  ] as const)
    for (let row = 0; row < 7; row++) {
      const line = code[y + row]!.slice(x, x + 7).map(Number);
      assert.equal(line.join(''), ['1111111', '1000001', '1011101', '1011101', '1011101', '1000001', '1111111'][row]);
    }
  for (let at = 8; at < size - 8; at++) assert.deepEqual([code[6]![at], code[at]![6]], [at % 2 === 0, at % 2 === 0]);
}

/** Both copies of the format agree; level M with this mask. */
function maskOf(code: Code): number {
  const size = code.length;
  const bit = (x: number, y: number): string => (code[y]![x]! ? '1' : '0');
  const near =
    [0, 1, 2, 3, 4, 5, 7, 8].map((y) => bit(8, y)).join('') + [7, 5, 4, 3, 2, 1, 0].map((x) => bit(x, 8)).join('');
  const far =
    [1, 2, 3, 4, 5, 6, 7, 8].map((x) => bit(size - x, 8)).join('') +
    [7, 6, 5, 4, 3, 2, 1].map((y) => bit(8, size - y)).join('');
  assert.equal(near, far);
  const format = Number.parseInt([...near].toReversed().join(''), 2) ^ 0b101_0100_0001_0010;
  let rest = format;
  for (let shift = 4; shift >= 0; shift--) if (((rest >> (shift + 10)) & 1) === 1) rest ^= 0b101_0011_0111 << shift;
  assert.deepEqual([rest, format >> 13], [0, 0], 'the check of the format, and level M');
  return (format >> 10) & 7;
}

function codewordsOf(code: Code, mask: number, version: number): readonly number[] {
  const size = code.length;
  const centres = alignmentsOf(version);
  const isNear = (a: number, b: number): boolean => Math.abs(a - b) <= 2;
  const isPattern = (x: number, y: number): boolean =>
    x === 6 ||
    y === 6 ||
    (x < 9 && y < 9) ||
    (x < 9 && y >= size - 8) ||
    (x >= size - 8 && y < 9) ||
    (version >= 7 && ((x < 6 && y >= size - 11) || (y < 6 && x >= size - 11))) ||
    centres.some((cx) =>
      centres.some(
        (cy) =>
          isNear(x, cx) &&
          isNear(y, cy) &&
          !((cx === 6 && cy === 6) || (cx === 6 && cy === size - 7) || (cx === size - 7 && cy === 6)),
      ),
    );
  const bits: number[] = [];
  let isUpward = true;
  for (const right of Array.from({ length: (size - 1) / 2 }, (_, at) => size - 1 - 2 * at).map((x) =>
    x > 6 ? x : x - 1,
  )) {
    const rows = Array.from({ length: size }, (_, y) => y);
    for (const y of isUpward ? rows.toReversed() : rows)
      for (const x of [right, right - 1]) if (!isPattern(x, y)) bits.push(Number(code[y]![x]! !== masks[mask]!(x, y)));
    isUpward = !isUpward;
  }
  return (bits.join('').match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2));
}

/** A product in the field of 256 elements that the codewords are of. */
function times(a: number, b: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) {
    product = (product << 1) ^ ((product >> 7) * 0x11d);
    if (((b >> bit) & 1) === 1) product ^= a;
  }
  return product;
}

/** Centres of the alignment patterns, in both directions. */
function alignmentsOf(version: number): readonly number[] {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.ceil((4 * version + 4) / (count * 2 - 2)) * 2;
  const last = 17 + 4 * version - 7;
  return [6, ...Array.from({ length: count - 1 }, (_, at) => last - step * (count - 2 - at))];
}

/** By their numbers in the format. */
const masks: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

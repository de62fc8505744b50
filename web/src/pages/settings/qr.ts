/**
 * QR codes (ISO/IEC 18004) of bytes with error correction level M, versions 1 to 20: up to 666 bytes, which any `otpauth:` address
 * fits. Ours, because it is small and has no reason to change.
 */
type Modules = boolean[][];

/** Codewords of error correction in each block, and the number of blocks, by version. */
const correction: readonly (readonly [number, number])[] = [
  [0, 0],
  [10, 1],
  [16, 1],
  [26, 1],
  [18, 2],
  [24, 2],
  [16, 4],
  [18, 4],
  [22, 4],
  [22, 5],
  [26, 5],
  [30, 5],
  [22, 8],
  [22, 9],
  [24, 9],
  [24, 10],
  [28, 10],
  [28, 11],
  [26, 13],
  [26, 14],
  [26, 16],
];
const versionMax = correction.length - 1;

/** Rows of modules, true is dark; undefined: the text is too long. */
export function qrCode(text: string): readonly (readonly boolean[])[] | undefined {
  const bytes = new TextEncoder().encode(text);
  const version = versionFor(bytes.length);
  if (version === undefined) return undefined;
  const { modules, isFree } = emptyCode(version);
  place(modules, isFree, withCorrection(dataOf(bytes, version), version));
  let best: { readonly code: Modules; readonly penalty: number } | undefined;
  for (let mask = 0; mask < masks.length; mask++) {
    const code = modules.map((row, y) => row.map((dark, x) => dark !== (isFree[y]![x]! && masks[mask]!(x, y))));
    writeFormat(code, mask);
    const penalty = penaltyOf(code);
    if (best === undefined || penalty < best.penalty) best = { code, penalty };
  }
  return best?.code;
}

const sizeOf = (version: number): number => 17 + 4 * version;
const lengthBits = (version: number): number => (version < 10 ? 8 : 16);

/** All codewords of a version, of data and of error correction. */
function codewordsOf(version: number): number {
  const alignments = alignmentsOf(version).length;
  const taken = version < 2 ? 0 : (25 * alignments - 10) * alignments - 55 + (version < 7 ? 0 : 36);
  return Math.floor(((16 * version + 128) * version + 64 - taken) / 8);
}

function dataCodewordsOf(version: number): number {
  const [each, blocks] = correction[version]!;
  return codewordsOf(version) - each * blocks;
}

function versionFor(bytes: number): number | undefined {
  for (let version = 1; version <= versionMax; version++)
    if (4 + lengthBits(version) + 8 * bytes <= 8 * dataCodewordsOf(version)) return version;
  return undefined;
}

/** The mode (bytes), the length, the bytes, and padding up to the capacity. */
function dataOf(bytes: Uint8Array, version: number): readonly number[] {
  const capacity = dataCodewordsOf(version);
  const bits: number[] = [];
  const write = (value: number, count: number): void => {
    for (let bit = count - 1; bit >= 0; bit--) bits.push((value >> bit) & 1);
  };
  write(0b0100, 4);
  write(bytes.length, lengthBits(version));
  for (const byte of bytes) write(byte, 8);
  write(0, Math.min(4, capacity * 8 - bits.length));
  write(0, (8 - (bits.length % 8)) % 8);
  const data: number[] = [];
  for (let at = 0; at < bits.length; at += 8)
    data.push(bits.slice(at, at + 8).reduce((byte, bit) => byte * 2 + bit, 0));
  for (let pad = 0xec; data.length < capacity; pad ^= 0xec ^ 0x11) data.push(pad);
  return data;
}

/** In GF(256) with the polynomial 0x11d. */
export function times(a: number, b: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) {
    product = (product << 1) ^ ((product >> 7) * 0x11d);
    if (((b >> bit) & 1) === 1) product ^= a;
  }
  return product;
}

/** Coefficients of the product of (x − 2^i), the highest one left out. */
function generatorOf(degree: number): readonly number[] {
  const coefficients: number[] = [...Array.from({ length: degree - 1 }, () => 0), 1];
  let root = 1;
  for (let step = 0; step < degree; step++) {
    for (let at = 0; at < degree; at++) coefficients[at] = times(coefficients[at]!, root) ^ (coefficients[at + 1] ?? 0);
    root = times(root, 2);
  }
  return coefficients;
}

function remainderOf(data: readonly number[], generator: readonly number[]): readonly number[] {
  let rest = generator.map(() => 0);
  for (const byte of data) {
    const factor = byte ^ rest[0]!;
    rest = [...rest.slice(1), 0].map((one, at) => one ^ times(generator[at]!, factor));
  }
  return rest;
}

/** Blocks of data, each with its error correction, interleaved. The later blocks may be a codeword longer. */
function withCorrection(data: readonly number[], version: number): readonly number[] {
  const [each, count] = correction[version]!;
  const generator = generatorOf(each);
  const short = Math.floor(data.length / count);
  const firstLong = count - (data.length % count);
  const blocks: (readonly number[])[] = [];
  let from = 0;
  for (let block = 0; block < count; block++) {
    const end = from + short + (block < firstLong ? 0 : 1);
    blocks.push(data.slice(from, end));
    from = end;
  }
  const woven = (parts: readonly (readonly number[])[]): number[] =>
    Array.from({ length: Math.max(...parts.map(({ length }) => length)) }, (_, at) => at).flatMap((at) =>
      parts.flatMap((part) => (at < part.length ? [part[at]!] : [])),
    );
  return [...woven(blocks), ...woven(blocks.map((block) => remainderOf(block, generator)))];
}

/** Centres of the alignment patterns, the same in both directions. */
export function alignmentsOf(version: number): readonly number[] {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.ceil((4 * version + 4) / (count * 2 - 2)) * 2;
  const last = sizeOf(version) - 7;
  return [6, ...Array.from({ length: count - 1 }, (_, at) => last - step * (count - 2 - at))];
}

/** The patterns that every code of a version has, and which modules are left for codewords. */
function emptyCode(version: number): { readonly modules: Modules; readonly isFree: Modules } {
  const size = sizeOf(version);
  const modules: Modules = Array.from({ length: size }, () => Array.from({ length: size }, () => false));
  const isFree: Modules = Array.from({ length: size }, () => Array.from({ length: size }, () => true));
  const set = (x: number, y: number, dark: boolean): void => {
    if (x < 0 || y < 0 || x >= size || y >= size) return;
    modules[y]![x] = dark;
    isFree[y]![x] = false;
  };
  for (let at = 0; at < size; at++) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
  const squares = (cx: number, cy: number, reach: number, isDark: (ring: number) => boolean): void => {
    for (let dy = -reach; dy <= reach; dy++)
      for (let dx = -reach; dx <= reach; dx++) set(cx + dx, cy + dy, isDark(Math.max(Math.abs(dx), Math.abs(dy))));
  };
  const corners = [
    [3, 3],
    [size - 4, 3],
    [3, size - 4],
  ] as const;
  for (const [x, y] of corners) squares(x, y, 4, (ring) => ring !== 2 && ring !== 4);
  const centres = alignmentsOf(version);
  const isAtFinder = (x: number, y: number): boolean => corners.some(([cx, cy]) => Math.hypot(x - cx, y - cy) < 6);
  for (const x of centres) for (const y of centres) if (!isAtFinder(x, y)) squares(x, y, 2, (ring) => ring !== 1);
  // Where the format goes, and the version of large codes.
  for (const [x, y] of formatPlaces(size).flat()) set(x, y, false);
  set(8, size - 8, true);
  if (version >= 7) {
    const bits = withCheck(version, 12, 0x1f25);
    for (let at = 0; at < 18; at++) {
      const [near, far] = [Math.floor(at / 3), size - 11 + (at % 3)];
      set(far, near, ((bits >> at) & 1) === 1);
      set(near, far, ((bits >> at) & 1) === 1);
    }
  }
  return { modules, isFree };
}

/** A value and its check, `bits` long, by a polynomial. */
function withCheck(value: number, bits: number, polynomial: number): number {
  let rest = value;
  for (let at = 0; at < bits; at++) rest = (rest << 1) ^ ((rest >> (bits - 1)) * polynomial);
  return (value << bits) | rest;
}

/** Both copies of the fifteen bits of the format, each from its lowest bit on. */
function formatPlaces(size: number): readonly (readonly (readonly [number, number])[])[] {
  const bits = Array.from({ length: 15 }, (_, at) => at);
  return [
    bits.map((at) => (at < 6 ? [8, at] : at < 8 ? [8, at + 1] : at === 8 ? [7, 8] : [14 - at, 8])),
    bits.map((at) => (at < 8 ? [size - 1 - at, 8] : [8, size - 15 + at])),
  ];
}

function writeFormat(code: Modules, mask: number): void {
  // Level M is 00.
  const bits = withCheck(mask, 10, 0x537) ^ 0x5412;
  for (const copy of formatPlaces(code.length))
    for (const [at, [x, y]] of copy.entries()) code[y]![x] = ((bits >> at) & 1) === 1;
}

/** Two columns at a time from the right, up and down by turns; the column of the timing pattern is left out. */
function place(modules: Modules, isFree: Modules, codewords: readonly number[]): void {
  const size = modules.length;
  let bit = 0;
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step++) {
      const isUpward = ((right + 1) & 2) === 0;
      const y = isUpward ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (!isFree[y]![x]! || bit >= codewords.length * 8) continue;
        modules[y]![x] = ((codewords[bit >> 3]! >> (7 - (bit & 7))) & 1) === 1;
        bit++;
      }
    }
  }
}

export const masks: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

/** How hard it is to read: runs, blocks, what looks like a finder, and more of one colour than of the other. */
function penaltyOf(code: Modules): number {
  const lines = [...code, ...code.map((_, x) => code.map((row) => row[x]!))].map((line) =>
    line.map((dark) => (dark ? '1' : '0')).join(''),
  );
  let penalty = 0;
  for (const line of lines) {
    for (const [run] of line.matchAll(/1{5,}|0{5,}/g)) penalty += run.length - 2;
    penalty += 40 * [...line.matchAll(/(?=10111010000|00001011101)/g)].length;
  }
  for (let y = 1; y < code.length; y++)
    for (let x = 1; x < code.length; x++) {
      const dark = code[y]![x]!;
      if (code[y - 1]![x] === dark && code[y]![x - 1] === dark && code[y - 1]![x - 1] === dark) penalty += 3;
    }
  const share = code.flat().filter(Boolean).length / code.length ** 2;
  return penalty + 10 * Math.floor(Math.abs(share * 100 - 50) / 5);
}

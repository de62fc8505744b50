import type { ImageMediaType, ImageSize } from '../../generation/request.ts';

/** Random access to the bytes of a file. */
export interface ByteSource {
  readonly length: number;
  /** Returns `count` bytes from `start` on; fewer at the end of the file. */
  at(start: number, count: number): Uint8Array;
}

export interface Measured {
  readonly mediaType: ImageMediaType;
  readonly size: ImageSize;
}

const sideMax = 8_192;
const pixelsMax = 33_000_000;

/**
 * Returns the type and size of an image, from its magic bytes and header, or a message for the client saying why it is refused. Nothing is
 * decoded: 50 MB of PNG may hold 50 GB (reliability §3.4). Reads a bounded number of positions, whatever the file claims.
 */
export function measure(file: ByteSource): Measured | string {
  const found = headerOf(file);
  if (typeof found === 'string') return found;
  const { width, height } = found.size;
  if (width < 1 || height < 1) return 'has no pixels';
  if (width > sideMax || height > sideMax) return `has more than ${sideMax} pixels on a side`;
  if (width * height > pixelsMax) return `has more than ${pixelsMax / 1_000_000} million pixels`;
  return found;
}

function headerOf(file: ByteSource): Measured | string {
  const head = file.at(0, 12);
  if (startsWith(head, 0, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])) return png(file);
  if (startsWith(head, 0, [0xff, 0xd8, 0xff])) return jpeg(file);
  if (text(head, 0, 6) === 'GIF87a' || text(head, 0, 6) === 'GIF89a') return gif(file);
  if (text(head, 0, 4) === 'RIFF' && text(head, 8, 4) === 'WEBP') return webp(file, view(head).getUint32(4, true));
  return 'is not a PNG, JPEG, WebP or GIF file';
}

const damaged = 'is damaged or truncated';
const animated = 'is animated; send a still image';

/** Maximum chunks before the pixels; ordinary files have fewer than ten. */
const pngChunksMax = 256;

/** https://www.w3.org/TR/png-3/#5DataRep: length, type, data, checksum; IHDR comes first. */
function png(file: ByteSource): Measured | string {
  let size: ImageSize | undefined;
  let start = 8;
  for (let chunk = 0; chunk < pngChunksMax; chunk++) {
    const head = file.at(start, 16);
    if (head.length < 12) return damaged;
    const length = view(head).getUint32(0);
    const end = start + 12 + length;
    const type = text(head, 4, 4);
    if (end > file.length || (chunk === 0) !== (type === 'IHDR')) return damaged;
    if (type === 'acTL') return animated;
    if (type === 'IHDR') {
      if (length !== 13) return damaged;
      size = { width: view(head).getUint32(8), height: view(head).getUint32(12) };
    }
    if (type === 'IDAT') return size === undefined ? damaged : { mediaType: 'image/png', size };
    start = end;
  }
  return damaged;
}

/** Maximum segments before the frame; a colour profile has at most 255 of them. */
const jpegSegmentsMax = 1_024;

/** ITU T.81, annex B: FF, a marker, and for most markers a length that includes itself. */
function jpeg(file: ByteSource): Measured | string {
  let start = 2;
  for (let segment = 0; segment < jpegSegmentsMax; segment++) {
    const head = file.at(start, 9);
    if (head.length < 9 || head[0] !== 0xff) return damaged;
    const marker = head[1]!;
    // Any number of FF may precede a marker.
    if (marker === 0xff) {
      start++;
      continue;
    }
    const length = view(head).getUint16(2);
    if (marker === 0xd9 || marker === 0xda || marker < 0xc0 || length < 2) return damaged;
    // SOF0 to SOF15, except DHT, JPG and DAC.
    if (marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc) {
      return { mediaType: 'image/jpeg', size: { width: view(head).getUint16(7), height: view(head).getUint16(5) } };
    }
    start += 2 + length;
  }
  return damaged;
}

/** How many blocks of a GIF are searched for a second picture; a block is at most 255 bytes. */
const gifBlocksMax = 16_384;

/** https://www.w3.org/Graphics/GIF/spec-gif89a.txt: a screen, then extensions and pictures, each a chain of blocks. */
function gif(file: ByteSource): Measured | string {
  const head = file.at(0, 13);
  if (head.length < 13) return damaged;
  let size: ImageSize = { width: view(head).getUint16(6, true), height: view(head).getUint16(8, true) };
  let start = 13 + colorTableBytes(head[10]!);
  let pictures = 0;
  let inBlocks = false;
  for (let block = 0; block < gifBlocksMax; block++) {
    const [kind, ...rest] = file.at(start, 10);
    if (kind === undefined) return pictures === 0 ? damaged : { mediaType: 'image/gif', size };
    if (inBlocks) {
      inBlocks = kind !== 0;
      start += 1 + kind;
    } else if (kind === 0x21) {
      inBlocks = true;
      start += 2;
    } else if (kind === 0x2c) {
      if (++pictures > 1) return animated;
      if (rest.length < 9) return damaged;
      const little = (at: number): number => rest[at]! | (rest[at + 1]! << 8);
      // Some readers use the screen's size, some the picture's.
      size = {
        width: Math.max(size.width, little(0) + little(4)),
        height: Math.max(size.height, little(2) + little(6)),
      };
      inBlocks = true;
      start += 11 + colorTableBytes(rest[8]!);
    } else if (kind === 0x3b) {
      return pictures === 0 ? damaged : { mediaType: 'image/gif', size };
    } else return damaged;
  }
  return pictures === 0 ? damaged : { mediaType: 'image/gif', size };
}

const colorTableBytes = (flags: number): number => ((flags & 0x80) === 0 ? 0 : 3 * 2 ** ((flags & 7) + 1));

/** RFC 9649: RIFF chunks, the first of which tells the kind. */
function webp(file: ByteSource, riffLength: number): Measured | string {
  const head = file.at(12, 18);
  if (head.length < 18 || riffLength + 8 > file.length) return damaged;
  const at = view(head);
  const found = (width: number, height: number): Measured => ({ mediaType: 'image/webp', size: { width, height } });
  switch (text(head, 0, 4)) {
    case 'VP8 ':
      if (!startsWith(head, 11, [0x9d, 0x01, 0x2a])) return damaged;
      return found(at.getUint16(14, true) & 0x3fff, at.getUint16(16, true) & 0x3fff);
    case 'VP8L': {
      if (head[8] !== 0x2f) return damaged;
      const bits = at.getUint32(9, true);
      return found((bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1);
    }
    case 'VP8X': {
      if ((head[8]! & 0x02) !== 0) return animated;
      const side = (place: number): number => 1 + at.getUint16(place, true) + head[place + 2]! * 65_536;
      return found(side(12), side(15));
    }
    default:
      return damaged;
  }
}

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

const text = (bytes: Uint8Array, start: number, count: number): string =>
  String.fromCharCode(...bytes.subarray(start, start + count));

const startsWith = (bytes: Uint8Array, start: number, expected: readonly number[]): boolean =>
  expected.every((byte, index) => bytes[start + index] === byte);

/** Files of images: whole headers around pixels that nobody decodes. */

const be32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
};
const be16 = (value: number): Buffer => Buffer.from([(value >> 8) & 255, value & 255]);
const le16 = (value: number): Buffer => Buffer.from([value & 255, (value >> 8) & 255]);
const le24 = (value: number): Buffer => Buffer.from([value & 255, (value >> 8) & 255, (value >> 16) & 255]);

export const pngChunk = (type: string, data: Buffer): Buffer =>
  Buffer.concat([be32(data.length), Buffer.from(type), data, be32(0)]);

export const pngMagic = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** `before`: chunks between the header and the pixels; `pixels`: bytes of the chunk of pixels. */
export const pngOf = (
  width: number,
  height: number,
  { before = Buffer.alloc(0) as Buffer, pixels = 10 } = {},
): Buffer =>
  Buffer.concat([
    pngMagic,
    pngChunk('IHDR', Buffer.concat([be32(width), be32(height), Buffer.from([8, 2, 0, 0, 0])])),
    before,
    pngChunk('IDAT', Buffer.alloc(pixels, 7)),
    pngChunk('IEND', Buffer.alloc(0)),
  ]);

export const jpegSegment = (marker: number, data: Buffer): Buffer =>
  Buffer.concat([Buffer.from([0xff, marker]), be16(data.length + 2), data]);

export const jpegOf = (
  width: number,
  height: number,
  { before = Buffer.alloc(0) as Buffer, frame = 0xc0 } = {},
): Buffer =>
  Buffer.concat([
    Buffer.from([0xff, 0xd8]),
    jpegSegment(0xe0, Buffer.from('JFIF\0..........')),
    before,
    jpegSegment(frame, Buffer.concat([Buffer.from([8]), be16(height), be16(width), Buffer.alloc(10)])),
    jpegSegment(0xda, Buffer.alloc(10)),
    Buffer.alloc(20, 1),
    Buffer.from([0xff, 0xd9]),
  ]);

export const gifFrame = (width: number, height: number, blocks = 1): Buffer =>
  Buffer.concat([
    Buffer.from([0x2c, 0, 0, 0, 0]),
    le16(width),
    le16(height),
    Buffer.from([0, 2]),
    ...Array.from({ length: blocks }, () => Buffer.concat([Buffer.from([255]), Buffer.alloc(255, 3)])),
    Buffer.from([0]),
  ]);

export const gifOf = (width: number, height: number, frames: readonly Buffer[] = [gifFrame(width, height)]): Buffer =>
  Buffer.concat([
    Buffer.from('GIF89a'),
    le16(width),
    le16(height),
    Buffer.from([0x80, 0, 0]),
    Buffer.alloc(6),
    Buffer.from([0x21, 0xf9, 4, 0, 0, 0, 0, 0]),
    ...frames,
    Buffer.from([0x3b]),
  ]);

const riff = (...chunks: readonly Buffer[]): Buffer => {
  const content = Buffer.concat([Buffer.from('WEBP'), ...chunks]);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(content.length);
  return Buffer.concat([Buffer.from('RIFF'), length, content]);
};
const riffChunk = (type: string, data: Buffer): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(data.length);
  return Buffer.concat([Buffer.from(type), length, data]);
};

export const webpOf = (width: number, height: number, kind: 'lossy' | 'lossless' | 'extended', flags = 0): Buffer => {
  switch (kind) {
    case 'lossy':
      return riff(
        riffChunk(
          'VP8 ',
          Buffer.concat([Buffer.from([0, 0, 0, 0x9d, 1, 0x2a]), le16(width), le16(height), Buffer.alloc(20)]),
        ),
      );
    case 'lossless': {
      const bits = Buffer.alloc(4);
      bits.writeUInt32LE(((width - 1) | ((height - 1) << 14)) >>> 0);
      return riff(riffChunk('VP8L', Buffer.concat([Buffer.from([0x2f]), bits, Buffer.alloc(21)])));
    }
    case 'extended':
      return riff(
        riffChunk('VP8X', Buffer.concat([Buffer.from([flags, 0, 0, 0]), le24(width - 1), le24(height - 1)])),
        riffChunk('VP8L', Buffer.alloc(26)),
      );
  }
};

export const dataUri = (mediaType: string, bytes: Buffer): string =>
  `data:${mediaType};base64,${bytes.toString('base64')}`;

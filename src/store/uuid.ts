import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(8192);
let offset = pool.length;
let counter = 0;

/** UUIDv7 (RFC 9562): 48 bits of milliseconds, a 12-bit counter, 62 random bits. 16 bytes, ordered by time. */
export function uuidv7(nowMs: number = Date.now()): Uint8Array {
  if (offset >= pool.length) {
    randomFillSync(pool);
    offset = 0;
  }
  const bytes = Buffer.allocUnsafeSlow(16);
  bytes.writeUIntBE(nowMs, 0, 6);
  counter = (counter + 1) & 0xfff;
  bytes.writeUInt16BE(0x7000 | counter, 6);
  pool.copy(bytes, 8, offset, offset + 8);
  offset += 8;
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes;
}

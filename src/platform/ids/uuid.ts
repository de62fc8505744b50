import { randomFillSync } from 'node:crypto';

/**
 * Returns a generator of UUIDv7 (RFC 9562): 48 bits of milliseconds, a 12-bit counter in place of `rand_a`, 62 random bits. Ids of
 * one generator sort in the order of creation, even when the clock steps back or 4,096 are made in a millisecond.
 */
export function uuidMaker(now: () => number = Date.now): () => Uint8Array {
  const random = new Uint8Array(8 * 512); // one call of the random source for 512 ids
  let used = random.length;
  let lastMs = 0;
  let counter = 0;
  return () => {
    if (used === random.length) {
      randomFillSync(random);
      used = 0;
    }
    const ms = now();
    if (ms > lastMs) {
      lastMs = ms;
      counter = 0;
    } else if (++counter > 0xfff) {
      lastMs += 1;
      counter = 0;
    }
    const id = new Uint8Array(16); // its own buffer: a view into a pool would drag the pool along between threads
    id[0] = lastMs / 2 ** 40;
    id[1] = lastMs / 2 ** 32;
    id[2] = lastMs / 2 ** 24;
    id[3] = lastMs / 2 ** 16;
    id[4] = lastMs / 2 ** 8;
    id[5] = lastMs;
    id[6] = 0x70 | (counter >> 8);
    id[7] = counter;
    for (let index = 8; index < 16; index++) id[index] = random[used++]!;
    id[8] = (id[8]! & 0x3f) | 0x80;
    return id;
  };
}

export function uuidText(id: Uint8Array): string {
  const hex = Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The 16 bytes of a UUID in its usual form, undefined for any other text. */
export function parseUuid(text: string): Uint8Array | undefined {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text)) return undefined;
  return Uint8Array.from(Buffer.from(text.replaceAll('-', ''), 'hex'));
}

/**
 * The public id of a request id: `req_`, the low 32 bits of its milliseconds, 16 of its random bits. This way a request is found by
 * its public id through the primary key, without updating an index of random values with every row.
 */
export function publicIdOf(requestId: Uint8Array): string {
  const bytes = Buffer.from(requestId.buffer, requestId.byteOffset, 16);
  return `req_${bytes.toString('hex', 2, 6)}${bytes.toString('hex', 14, 16)}`;
}

/** Milliseconds after which the time in a public id wraps around: 49.7 days. */
const publicIdPeriodMs = 2 ** 32;

/** Ranges of request ids, newest first, that may contain a request with this public id; empty if the text has another form. */
export function rangesOfPublicId(
  publicId: string,
  sinceMs: number,
  untilMs: number,
): { readonly from: Uint8Array; readonly below: Uint8Array }[] {
  const [, time] = /^req_([0-9a-f]{8})[0-9a-f]{4}$/.exec(publicId) ?? [];
  if (time === undefined) return [];
  const ranges: { readonly from: Uint8Array; readonly below: Uint8Array }[] = [];
  const newest = Math.floor(untilMs / publicIdPeriodMs) * publicIdPeriodMs + Number.parseInt(time, 16);
  for (let ms = newest; ms >= sinceMs; ms -= publicIdPeriodMs) {
    if (ms <= untilMs) ranges.push({ from: firstIdOf(ms), below: firstIdOf(ms + 1) });
  }
  return ranges;
}

/** The time of creation by its generator's clock, in milliseconds since 1970. */
export function timeOfUuid(id: Uint8Array): number {
  return Buffer.from(id.buffer, id.byteOffset, id.byteLength).readUIntBE(0, 6);
}

/** The smallest possible id of that millisecond. */
export function firstIdOf(ms: number): Uint8Array {
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(ms, 0, 6);
  return new Uint8Array(bytes);
}

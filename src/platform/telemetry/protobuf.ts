const firstBytes = 4_096;
const twoTo32 = 2 ** 32;
/** Up to this length a loop writes a text faster than a native call. */
const shortCharacters = 64;

/**
 * Writes a Protocol Buffers message from its end to its beginning, so that the length of a part is known when it is written in
 * front of it: fields are given in reverse order. The memory is reused after `reset`.
 */
export class ProtobufWriter {
  #bytes = Buffer.allocUnsafeSlow(firstBytes);
  /** Offset of the first written byte. */
  #at = firstBytes;

  /** The number of bytes written so far; pass it to `message` to mark the end of a nested message. */
  get length(): number {
    return this.#bytes.length - this.#at;
  }

  /** Returns a copy of what has been written. */
  finish(): Buffer {
    return Buffer.from(this.#bytes.subarray(this.#at));
  }

  reset(): void {
    this.#at = this.#bytes.length;
  }

  /** Turns the fields written since then into a nested message. */
  message(field: number, since: number): void {
    this.#tag(field, this.length - since);
  }

  text(field: number, text: string): void {
    const length = text.length <= shortCharacters && isAscii(text) ? this.#ascii(text) : this.#utf8(text);
    this.#tag(field, length);
  }

  /** A field of bytes, given in hex digits. */
  hex(field: number, digits: string): void {
    const length = digits.length / 2;
    this.#reserve(length);
    this.#bytes.write(digits, this.#at, 'hex');
    this.#tag(field, length);
  }

  /** Fields that are already encoded. */
  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#at);
  }

  /** An integer from 0 to 2^53. */
  integer(field: number, value: number): void {
    this.#varint(value);
    this.#varint(field * 8);
  }

  double(field: number, value: number): void {
    this.#reserve(8);
    this.#bytes.writeDoubleLE(value, this.#at);
    this.#varint(field * 8 + 1);
  }

  /** A `fixed64` from 0 to 2^53. */
  fixed64(field: number, value: number): void {
    this.#halves(value % twoTo32, Math.floor(value / twoTo32));
    this.#varint(field * 8 + 1);
  }

  /** An OTLP time from milliseconds since 1970, which a double holds to a quarter of a microsecond. */
  nanoseconds(field: number, ms: number): void {
    const micros = Math.round(ms * 1_000);
    const low = (micros % twoTo32) * 1_000;
    this.#halves(low % twoTo32, Math.floor(micros / twoTo32) * 1_000 + Math.floor(low / twoTo32));
    this.#varint(field * 8 + 1);
  }

  fixed32(field: number, value: number): void {
    this.#reserve(4);
    this.#bytes.writeUInt32LE(value, this.#at);
    this.#varint(field * 8 + 5);
  }

  /** A list of `fixed64` or `double`, packed. */
  packed(field: number, values: readonly number[], as: 'fixed64' | 'double'): void {
    for (let index = values.length - 1; index >= 0; index--) {
      const value = values[index]!;
      if (as === 'fixed64') this.#halves(value % twoTo32, Math.floor(value / twoTo32));
      else {
        this.#reserve(8);
        this.#bytes.writeDoubleLE(value, this.#at);
      }
    }
    this.#tag(field, 8 * values.length);
  }

  #ascii(text: string): number {
    this.#reserve(text.length);
    for (let index = 0; index < text.length; index++) this.#bytes[this.#at + index] = text.charCodeAt(index);
    return text.length;
  }

  #utf8(text: string): number {
    const length = Buffer.byteLength(text);
    this.#reserve(length);
    this.#bytes.write(text, this.#at, 'utf8');
    return length;
  }

  #halves(low: number, high: number): void {
    this.#reserve(8);
    this.#bytes.writeUInt32LE(low, this.#at);
    this.#bytes.writeUInt32LE(high, this.#at + 4);
  }

  #tag(field: number, length: number): void {
    this.#varint(length);
    this.#varint(field * 8 + 2);
  }

  #varint(value: number): void {
    if (value < 128) {
      this.#reserve(1);
      this.#bytes[this.#at] = value;
      return;
    }
    let bytes = 1;
    for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes++;
    this.#reserve(bytes);
    let rest = value;
    for (let index = 0; index < bytes; index++) {
      this.#bytes[this.#at + index] = (rest % 128) + (index < bytes - 1 ? 128 : 0);
      rest = Math.floor(rest / 128);
    }
  }

  /** Makes room in front of what is written, and moves the offset to its beginning. */
  #reserve(length: number): void {
    if (length > this.#at) {
      const used = this.length;
      const larger = Buffer.allocUnsafeSlow(2 * this.#bytes.length + length);
      this.#bytes.copy(larger, larger.length - used, this.#at);
      this.#at = larger.length - used;
      this.#bytes = larger;
    }
    this.#at -= length;
  }
}

function isAscii(text: string): boolean {
  for (let index = 0; index < text.length; index++) if (text.charCodeAt(index) > 127) return false;
  return true;
}

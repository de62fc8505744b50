const firstBytes = 4_096;

/**
 * Writes a message of Protocol Buffers from its end to its beginning, so that the length of a part is known when it is written in
 * front of it: fields are given in the reverse of their order.
 */
export class ProtobufWriter {
  #bytes = Buffer.allocUnsafe(firstBytes);
  /** Of the first byte that is written. */
  #at = firstBytes;

  /** What has been written, in bytes of their own. */
  finish(): Buffer {
    return Buffer.from(this.#bytes.subarray(this.#at));
  }

  /** `write` writes the fields of the message inside. */
  message(field: number, write: () => void): void {
    const end = this.#bytes.length - this.#at;
    write();
    this.#tag(field, this.#bytes.length - this.#at - end);
  }

  text(field: number, text: string): void {
    const length = Buffer.byteLength(text);
    this.#reserve(length);
    this.#bytes.write(text, this.#at, 'utf8');
    this.#tag(field, length);
  }

  /** Bytes that are written in hex digits. */
  hex(field: number, digits: string): void {
    const length = digits.length / 2;
    this.#reserve(length);
    this.#bytes.write(digits, this.#at, 'hex');
    this.#tag(field, length);
  }

  bytes(field: number, bytes: Uint8Array): void {
    this.raw(bytes);
    this.#tag(field, bytes.length);
  }

  /** Fields that are encoded already. */
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

  /** `fixed64`. */
  fixed(field: number, value: bigint): void {
    this.#reserve(8);
    this.#bytes.writeBigUInt64LE(value, this.#at);
    this.#varint(field * 8 + 1);
  }

  /** `fixed32`. */
  fixed32(field: number, value: number): void {
    this.#reserve(4);
    this.#bytes.writeUInt32LE(value, this.#at);
    this.#varint(field * 8 + 5);
  }

  /** A list of `fixed64` or `double`, packed. */
  packed(field: number, values: readonly number[], as: 'fixed64' | 'double'): void {
    this.#reserve(8 * values.length);
    for (const [index, value] of values.entries()) {
      if (as === 'double') this.#bytes.writeDoubleLE(value, this.#at + 8 * index);
      else this.#bytes.writeBigUInt64LE(BigInt(value), this.#at + 8 * index);
    }
    this.#tag(field, 8 * values.length);
  }

  #tag(field: number, length: number): void {
    this.#varint(length);
    this.#varint(field * 8 + 2);
  }

  #varint(value: number): void {
    let bytes = 1;
    for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes++;
    this.#reserve(bytes);
    let rest = value;
    for (let index = 0; index < bytes; index++) {
      this.#bytes[this.#at + index] = (rest % 128) + (index < bytes - 1 ? 128 : 0);
      rest = Math.floor(rest / 128);
    }
  }

  /** Makes room in front of what is written, and moves to its beginning. */
  #reserve(length: number): void {
    if (length > this.#at) {
      const used = this.#bytes.length - this.#at;
      const larger = Buffer.allocUnsafe(2 * this.#bytes.length + length);
      this.#bytes.copy(larger, larger.length - used, this.#at);
      this.#at = larger.length - used;
      this.#bytes = larger;
    }
    this.#at -= length;
  }
}

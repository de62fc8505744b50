import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const cipher = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;

/** Returns the stored form of an answer: a nonce, the encrypted answer, and its tag. `key` has 32 bytes. */
export function encryptAnswer(answer: string, key: Uint8Array): Uint8Array {
  const nonce = randomBytes(nonceBytes);
  const encryption = createCipheriv(cipher, key, nonce);
  return Uint8Array.from(
    Buffer.concat([nonce, encryption.update(answer, 'utf8'), encryption.final(), encryption.getAuthTag()]),
  );
}

/** `undefined`: it was encrypted with another key, or is damaged. */
export function decryptAnswer(encrypted: Uint8Array, key: Uint8Array): string | undefined {
  if (encrypted.byteLength < nonceBytes + tagBytes) return undefined;
  const bytes = Buffer.from(encrypted.buffer, encrypted.byteOffset, encrypted.byteLength);
  const decryption = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes });
  decryption.setAuthTag(bytes.subarray(-tagBytes));
  try {
    return Buffer.concat([decryption.update(bytes.subarray(nonceBytes, -tagBytes)), decryption.final()]).toString(
      'utf8',
    );
  } catch {
    return undefined;
  }
}

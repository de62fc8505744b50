import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const cipher = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;

/** The stored form of an answer: a nonce, the encrypted answer, and its tag. `key` has 32 bytes. */
export function sealAnswer(answer: string, key: Uint8Array): Uint8Array {
  const nonce = randomBytes(nonceBytes);
  const sealing = createCipheriv(cipher, key, nonce);
  return Uint8Array.from(Buffer.concat([nonce, sealing.update(answer, 'utf8'), sealing.final(), sealing.getAuthTag()]));
}

/** `undefined`: it was sealed with another key, or is damaged. */
export function openAnswer(sealed: Uint8Array, key: Uint8Array): string | undefined {
  if (sealed.byteLength < nonceBytes + tagBytes) return undefined;
  const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
  const opening = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes });
  opening.setAuthTag(bytes.subarray(-tagBytes));
  try {
    return Buffer.concat([opening.update(bytes.subarray(nonceBytes, -tagBytes)), opening.final()]).toString('utf8');
  } catch {
    return undefined;
  }
}

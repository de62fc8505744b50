/**
 * Signs days of usage with Ed25519 (decision 065). The private keys are derived from the service's secret, so that a copy of the database
 * cannot sign, and processes that share the secret sign alike.
 */
import { createHmac, createPrivateKey, createPublicKey, sign, type KeyObject } from 'node:crypto';

import { dayHeadText, signingKeyId, type DayHead } from '../store/proofs/forms.ts';
import { hex } from '../store/proofs/merkle.ts';
import type { SigningKey } from '../store/proofs/signing-keys.ts';
import { OperationError, type OperationServices } from './operation.ts';

type KeyServices = Pick<OperationServices, 'repositories' | 'secret' | 'now'>;

/** An Ed25519 key in PKCS #8 is these bytes and its seed (RFC 8410 §7). */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex');

function privateKeyOf(secret: KeyObject, number: number): KeyObject {
  const seed = createHmac('sha256', secret).update(`key ${number}`).digest();
  return createPrivateKey({ key: Buffer.concat([pkcs8, seed]), format: 'der', type: 'pkcs8' });
}

function publicKeyOf(key: KeyObject): Uint8Array {
  const { x } = createPublicKey(key).export({ format: 'jwk' });
  return Uint8Array.from(Buffer.from(x!, 'base64url'));
}

/** Signs a day's head with the newest key, which is made if there is none, or if it was of another secret. */
export async function signDay(
  head: Omit<DayHead, 'key_id' | 'signed_at'>,
  services: KeyServices,
): Promise<{ readonly head: DayHead; readonly signature: string }> {
  const { number, id } = await signingKeyOf(services);
  const signed = { ...head, key_id: id, signed_at: String(services.now()) };
  const signature = sign(null, Buffer.from(dayHeadText(signed)), privateKeyOf(services.secret.receipts, number));
  return { head: signed, signature: hex(signature) };
}

async function signingKeyOf(services: KeyServices): Promise<SigningKey> {
  const newest = (await services.repositories.listSigningKeys({})).at(-1);
  if (newest !== undefined) {
    const own = publicKeyOf(privateKeyOf(services.secret.receipts, newest.number));
    if (Buffer.compare(own, newest.publicKey) === 0) return newest;
  }
  return await addKey(services, (newest?.number ?? 0) + 1);
}

/** From now on another key signs. What was signed before stays valid: the earlier keys stay in the list of public keys. */
export async function rotateSigningKey(services: KeyServices): Promise<SigningKey> {
  return await addKey(services, ((await services.repositories.listSigningKeys({})).at(-1)?.number ?? 0) + 1);
}

async function addKey({ repositories, secret, now }: KeyServices, number: number): Promise<SigningKey> {
  const publicKey = publicKeyOf(privateKeyOf(secret.receipts, number));
  const key = { id: signingKeyId(publicKey), number, publicKey, createdAt: now() };
  await repositories.addSigningKey(key);
  const added = (await repositories.listSigningKeys({})).at(-1);
  if (added?.id === key.id) return added;
  throw new OperationError('Another process with another secret adds signing keys at the same time. Try again.');
}

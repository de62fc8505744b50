import { createHmac } from 'node:crypto';
import type { KeyObject } from 'node:crypto';

/**
 * The secret of an endpoint, displayed to its owner once. It is derived from the service's secret and not stored, so a copy of the database
 * cannot sign.
 */
export function endpointSecret(master: KeyObject, endpointId: string, version: number): string {
  const bytes = createHmac('sha256', master).update(`${endpointId}:${version}`).digest();
  return `whsec_${bytes.toString('base64')}`;
}

/** The signature of the Standard Webhooks specification: HMAC-SHA-256 over `id.timestamp.body`. */
export function signature(secret: string, id: string, seconds: number, body: string): string {
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64')}`;
}

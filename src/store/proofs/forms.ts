/**
 * What is hashed and signed (decision 065): JSON arrays of texts and nulls, whose first text names the form. A form is never changed: rows
 * that were signed with it have to be checked with it for ever. A new column of usage gets a new form.
 */
import { createPublicKey, hash, verify } from 'node:crypto';
import type { tables } from '../schema/tables.ts';
import { leafHash } from './merkle.ts';

type UsageColumn = keyof (typeof tables)['usage']['columns'];

/** The columns of a request that its proof shows, in the order in which they are hashed. */
export const shownColumns = [
  'request_id',
  'public_id',
  'account_id',
  'key_id',
  'model_id',
  'api',
  'streamed',
  'started_at',
  'ended_at',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
  'hold',
  'ending',
  'finish',
  'error_code',
  'counted',
  'input_price',
  'output_price',
  'cache_read_price',
  'plan',
  'tier',
  'zdr',
] as const satisfies readonly UsageColumn[];
type ShownColumn = (typeof shownColumns)[number];

/** All others, such as labels and backends: a proof has one fingerprint of them together. */
export const otherColumns = [
  'client_id',
  'backend',
  'first_token_ms',
  'total_ms',
  'tags',
  'key_budget',
  'account_budget',
  'member_budget',
  'backend_attempts',
  'fallbacks',
  'queued',
  'batch_id',
  'warnings',
] as const satisfies readonly UsageColumn[];

/**
 * Columns that came after the form: what they have follows the others, by name, and nothing where they are null. So a row from before them has the
 * hash that was signed, and no value can be added to it or taken from it.
 */
export const laterColumns = ['price_multiple'] as const satisfies readonly UsageColumn[];

/** A request as its proof shows it: every value as text, the id in hex, and `details`, the fingerprint of the other columns. */
export type ShownUsage = Readonly<Record<ShownColumn | 'details', string | null>>;

/** `shown` and `others`: the columns as parts of a JSON list (row-text.ts). */
export const storedUsageHash = (shown: string, others: string): Uint8Array =>
  leafHash(`["tokenhouse usage 1",${shown},"${hash('sha256', `[${others}]`, 'hex')}"]`);

export function shownUsage(shown: string, others: string): ShownUsage {
  const values = JSON.parse(`[${shown}]`) as readonly (string | null)[];
  const named = Object.fromEntries(shownColumns.map((column, index) => [column, values[index]!]));
  return { ...(named as Record<ShownColumn, string | null>), details: hash('sha256', `[${others}]`, 'hex') };
}

export const usageHash = (shown: ShownUsage): Uint8Array =>
  leafHash(JSON.stringify(['tokenhouse usage 1', ...shownColumns.map((column) => shown[column]), shown.details]));

/** All requests of an account that were signed with a day. */
export interface AccountHead {
  readonly account_id: string;
  /** `2026-11-28`, in UTC. */
  readonly date: string;
  readonly requests: string;
  /** The first of them, which ended on earlier days and were recorded after these were signed. */
  readonly late: string;
  /** The sum of their costs in microcents. */
  readonly cost: string;
  /** The root above their hashes. */
  readonly root: string;
  /** The hash of the account's head before; null: it is its first. */
  readonly previous: string | null;
}

export const accountHeadHash = (head: AccountHead): Uint8Array =>
  leafHash(
    JSON.stringify([
      'tokenhouse account day 1',
      head.account_id,
      head.date,
      head.requests,
      head.late,
      head.cost,
      head.root,
      head.previous,
    ]),
  );

/** A day of the whole service. */
export interface DayHead {
  readonly date: string;
  /** The root above the hashes of the accounts' heads, in the order of these hashes. */
  readonly root: string;
  /** SHA-256 of the text of the head before; null: it is the first. */
  readonly previous: string | null;
  readonly key_id: string;
  /** Milliseconds since 1970. */
  readonly signed_at: string;
}

/** The text that is signed. */
export const dayHeadText = (head: DayHead): string =>
  JSON.stringify(['tokenhouse day 1', head.date, head.root, head.previous, head.key_id, head.signed_at]);

export const dayHeadHash = (head: DayHead): Uint8Array => hash('sha256', dayHeadText(head), 'buffer');

/** An Ed25519 key is named by its hash. */
export const signingKeyId = (publicKey: Uint8Array): string => hash('sha256', publicKey, 'hex').slice(0, 16);

/** `publicKey`: its 32 bytes. */
export function isSignedWith(publicKey: Uint8Array, head: DayHead, signature: Uint8Array): boolean {
  try {
    const jwk = { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(publicKey).toString('base64url') };
    return verify(null, Buffer.from(dayHeadText(head)), createPublicKey({ key: jwk, format: 'jwk' }), signature);
  } catch {
    return false;
  }
}

export const dateOf = (day: number | bigint): string => new Date(Number(day)).toISOString().slice(0, 10);

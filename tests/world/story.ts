/** What is known of a schedule while it is played, and at its end. */
import type { Backends } from './backends.ts';
import type { Answer } from './clients.ts';
import type { Disk } from './disk.ts';
import type { Seen, Wanted } from './dialects.ts';
import type { Host } from './host.ts';
import type { Scripts } from './machine.ts';
import type { Scheduler } from './scheduler.ts';
import type { Template, WorldKey } from './setup.ts';

/** A request that a client made. */
export interface Asked extends Wanted {
  readonly mark: string;
  readonly publicId: string;
  readonly by: WorldKey;
  readonly idempotencyKey: string | undefined;
  readonly begunMs: number;
  /** When its client had what it got. */
  overMs: number;
  answer: Answer;
  seen: Seen;
}

export interface BatchAsked {
  readonly id: string;
  readonly endpoint: string;
  readonly customIds: readonly string[];
  /** Its file was deleted, or it was cancelled, as far as is known. */
  isDisturbed: boolean;
  status: string;
  results: readonly BatchResult[];
}

export interface BatchResult {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: { readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens?: number } };
  } | null;
}

/** Credit that an operator moved: all of these have been answered. */
export interface Granted {
  readonly account: string;
  readonly microcents: bigint;
}

export interface Refunded {
  readonly account: string;
  readonly publicId: string;
  /** What the operator asked for; undefined: all. */
  readonly microcents: bigint | undefined;
  /** The operator was told that it was done. */
  isDone: boolean;
}

/** A schedule that is about one part: more of it, and kills near its tables. */
export const themes = {
  batches: ['batch_line', 'usage'],
  payments: ['payment_event', 'payment', 'topup', 'transfer', 'demo_payment_object'],
  accounts: ['account', 'api_key', 'change', 'transfer', 'open_request'],
  days: ['usage_head', 'usage_leaves', 'day_head'],
  /** Clocks are set instead. */
  clocks: [],
} as const;
export type Theme = keyof typeof themes;

export interface Story {
  readonly theme: Theme | undefined;
  readonly template: Template;
  readonly scripts: Scripts;
  readonly scheduler: Scheduler;
  readonly backends: Backends;
  readonly disk: Disk;
  readonly host: Host;
  readonly asked: Asked[];
  readonly batches: BatchAsked[];
  readonly granted: Granted[];
  readonly refunded: Refunded[];
  /** Microcents of all payments that were made: each counts once. */
  paidMicrocents: bigint;
  /** When the key to be revoked was, and the account to be deleted was, as their operator was told. */
  revokedMs: number | undefined;
  deletedMs: number | undefined;
  /** What was noticed on the way. */
  readonly faults: string[];
}

export const newStory = (
  parts: Pick<Story, 'theme' | 'template' | 'scripts' | 'scheduler' | 'backends' | 'disk' | 'host'>,
): Story => ({
  ...parts,
  ...{ asked: [], batches: [], granted: [], refunded: [], faults: [] },
  ...{ paidMicrocents: 0n, revokedMs: undefined, deletedMs: undefined },
});

/** The faulty part of a schedule takes about so long. */
export const lengthMs = 4_000;

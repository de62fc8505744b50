import type { AuditEntry } from '../store/repositories/audit.ts';
import type { AuditOutcome } from '../store/database.ts';
import { serviceItself } from './actor.ts';
import type { OperationServices } from './operation.ts';

/** How an operation is recorded. */
export interface Audited<Input, Answer> {
  /** Its name in the log, such as `key.create`. */
  readonly action: string;
  readonly subject: AuditSubject<Input, Answer>;
  /** Request fields that are never recorded: values worth guessing at, and addresses that could not be removed again. */
  readonly unwritten?: readonly string[];
}

/** What an operation changes, compared before and after it. */
export interface AuditSubject<Input, Answer> {
  /** The subject as known before the operation. */
  before(input: Input, services: OperationServices): Promise<Subject>;
  /** The subject as known after the operation; omitted: the same. */
  after?(before: Subject, answer: Answer): Subject;
  /** The subject's exact state, with amounts as bigints; null: it does not exist. `answer` is set after the operation. */
  facts(subject: Subject, services: OperationServices, answer?: Answer): Promise<object | null>;
}

export interface Subject {
  readonly accountId: string | null;
  /** Set if the subject is a key. */
  readonly keyId?: string | undefined;
  /** Set if the subject is a member of the account. */
  readonly userId?: string | undefined;
  /** The subject's id in the log entry. */
  readonly target: string | null;
}

/** An operation that is recorded but not yet carried out. */
interface BegunEntry {
  subjectOf(answer: unknown): Subject;
  /** Records the outcome. Never throws: an entry that stays `begun` means that the outcome is unknown. */
  complete(outcome: Exclude<AuditOutcome, 'begun'>, answer?: unknown): Promise<void>;
}

/**
 * Records an operation before any of it is done, so that no crash can hide a change: its subject, its input, and the previous state. None
 * of these holds a secret, because operations have none.
 */
export async function beginEntry<Input extends { readonly kind: string }>(
  request: Input,
  { action, subject, unwritten = [] }: Audited<Input, unknown>,
  services: OperationServices,
): Promise<BegunEntry> {
  const { repositories, newId, now, actor = serviceItself } = services;
  const { requestId, address, ...who } = actor;
  const before = await subject.before(request, services);
  const id = newId();
  const common = { actor: who, action, requestId, address };
  await repositories.recordAudit({
    ...common,
    id,
    at: now(),
    accountId: before.accountId,
    target: before.target,
    before: print(await subject.facts(before, services)),
    after: null,
    outcome: 'begun',
    input: JSON.stringify(request, (name, value: unknown) => (unwritten.includes(name) ? undefined : value)),
  });
  const subjectOf = (answer: unknown): Subject => subject.after?.(before, answer) ?? before;
  return {
    subjectOf,
    complete: async (outcome, answer) => {
      try {
        const isDone = outcome === 'done';
        const after = isDone ? subjectOf(answer) : before;
        await repositories.recordAudit({
          ...common,
          id: newId(),
          at: now(),
          accountId: after.accountId,
          target: after.target,
          before: null,
          after: isDone ? print(await subject.facts(after, services, answer)) : null,
          outcome,
          completes: id,
        });
      } catch {
        // The change itself is durable, or was not made: a failure here must not lose its answer.
      }
    },
  };
}

/** Serializes exactly: amounts are decimal strings. */
const print = (facts: object | null): string | null =>
  facts === null
    ? null
    : JSON.stringify(facts, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value));

/** Parses the JSON that an entry stores. */
export const readPrinted = (text: string | null | undefined): unknown =>
  text === undefined || text === null ? null : (JSON.parse(text) as unknown);

export const auditId = ({ id }: Pick<AuditEntry, 'id'>): string => `audit_${Buffer.from(id).toString('hex')}`;

/** Parses an entry's id; undefined: not a valid id. */
export function readAuditId(text: string): Uint8Array | undefined {
  const hex = /^audit_([0-9a-f]{32})$/.exec(text)?.[1];
  return hex === undefined ? undefined : Uint8Array.from(Buffer.from(hex, 'hex'));
}

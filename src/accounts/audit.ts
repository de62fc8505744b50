import type { AuditEntry } from '../store/repositories/audit.ts';
import type { AuditOutcome } from '../store/database.ts';
import { serviceItself } from './actor.ts';
import type { OperationServices } from './operation.ts';

/** How an operation is written down. */
export interface Audited<Input, Answer> {
  /** Its name in the log, such as `key.create`. */
  readonly action: string;
  readonly subject: AuditSubject<Input, Answer>;
  /** Fields of the request that no entry has: what is worth guessing at, and addresses that could not be removed again. */
  readonly unwritten?: readonly string[];
}

/** What an operation changes, compared before and after it. */
export interface AuditSubject<Input, Answer> {
  /** As known before it is done. */
  before(input: Input, services: OperationServices): Promise<Subject>;
  /** As known when it is done; left out: the same. */
  after?(before: Subject, answer: Answer): Subject;
  /** Its state; exact: amounts are bigints. null: there is none. `answer` is there when the operation is done. */
  facts(subject: Subject, services: OperationServices, answer?: Answer): Promise<object | null>;
}

export interface Subject {
  readonly accountId: string | null;
  /** Set where it is a key. */
  readonly keyId?: string | undefined;
  /** Set where it is a member of the account. */
  readonly userId?: string | undefined;
  /** The id that an entry has for it. */
  readonly target: string | null;
}

/** An operation that is written down but not yet carried out. */
interface BegunEntry {
  subjectOf(answer: unknown): Subject;
  /** Writes the outcome. Never throws: an entry that stays `begun` says that the outcome is unknown. */
  complete(outcome: Exclude<AuditOutcome, 'begun'>, answer?: unknown): Promise<void>;
}

/**
 * Writes an operation down before any of it is done, so that no crash hides a change: its subject, its input, and the state
 * before. Neither holds a secret: an operation has none.
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
        // The change itself is durable, or was not made: its answer must not be lost because of this.
      }
    },
  };
}

/** Exact: amounts are decimal text. */
const print = (facts: object | null): string | null =>
  facts === null
    ? null
    : JSON.stringify(facts, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value));

/** Reads what an entry keeps as JSON. */
export const readPrinted = (text: string | null | undefined): unknown =>
  text === undefined || text === null ? null : (JSON.parse(text) as unknown);

export const auditId = ({ id }: Pick<AuditEntry, 'id'>): string => `audit_${Buffer.from(id).toString('hex')}`;

/** undefined: not the id of an entry. */
export function readAuditId(text: string): Uint8Array | undefined {
  const hex = /^audit_([0-9a-f]{32})$/.exec(text)?.[1];
  return hex === undefined ? undefined : Uint8Array.from(Buffer.from(hex, 'hex'));
}

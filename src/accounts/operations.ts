import type { OperationServices } from './operation.ts';
import { accountOperations } from './operations/accounts.ts';
import { backendOperations } from './operations/added-backends.ts';
import { creditOperations } from './operations/credit.ts';
import { keyOperations } from './operations/keys.ts';
import { priceOperations } from './operations/prices.ts';
import { retentionOperations } from './operations/retention.ts';
import { signInOperations } from './operations/sign-in.ts';
import { perform } from './perform.ts';
import type { AnswerOf, InputOf, OperationTable } from './perform.ts';

/**
 * Every change that an operator can make, with the service running or not: from the CLI, over the control socket and through the account
 * API. Requests and answers are plain JSON data.
 */
export const operations = {
  ...accountOperations,
  ...keyOperations,
  ...priceOperations,
  ...creditOperations,
  ...signInOperations,
  ...backendOperations,
  ...retentionOperations,
} as const satisfies OperationTable;

type Operations = typeof operations;
export type OperationKind = keyof Operations;

/** A request of one of these kinds, or of any. */
export type Operation<Kind extends OperationKind = OperationKind> = {
  readonly [Each in Kind]: { readonly kind: Each } & InputOf<Operations[Each]>;
}[Kind];

/** The same, with the kind inferred by the compiler. */
export type OperationRequest<Kind extends OperationKind> = { readonly kind: Kind } & InputOf<Operations[Kind]>;

export type OperationAnswer<Kind extends OperationKind> = AnswerOf<Operations[Kind]>;

/** Carries out one operation. When the promise resolves, it is durable, in force in this process, and in the audit log. */
export const operate = <Kind extends OperationKind>(
  request: OperationRequest<Kind>,
  services: OperationServices,
): Promise<OperationAnswer<Kind>> => perform(operations, request, services);

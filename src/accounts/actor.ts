import type { Actor } from '../store/repositories/audit.ts';

/** The actor of an operation and its request id. */
export interface OperationActor extends Actor {
  readonly requestId: string | null;
  readonly address: string | null;
}

/** The service itself: the default actor. */
export const serviceItself: OperationActor = {
  kind: 'system',
  id: null,
  name: null,
  requestId: null,
  address: null,
};

/** A user with access to the control socket or to the database itself. */
export const commandLine: OperationActor = { ...serviceItself, kind: 'cli' };

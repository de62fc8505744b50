import type { Actor } from '../store/repositories/audit.ts';

/** The actor of an operation, and its request. */
export interface OperationActor extends Actor {
  readonly requestId: string | null;
  readonly address: string | null;
}

/** The service itself: the actor where no other is named. */
export const serviceItself: OperationActor = {
  kind: 'system',
  id: null,
  name: null,
  requestId: null,
  address: null,
};

/** A user who may open the control socket, or the database itself. */
export const commandLine: OperationActor = { ...serviceItself, kind: 'cli' };

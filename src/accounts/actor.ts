import type { Actor } from '../store/repositories/audit.ts';

/** Who asks for an operation, and by which request. */
export interface OperationActor extends Actor {
  readonly requestId: string | null;
  readonly address: string | null;
}

/** The service by itself: where nobody is named who asks. */
export const serviceItself: OperationActor = {
  kind: 'system',
  id: null,
  name: null,
  requestId: null,
  address: null,
};

/** Whoever may open the control socket, or the database itself. */
export const commandLine: OperationActor = { ...serviceItself, kind: 'cli' };

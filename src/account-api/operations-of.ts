import type { OperationServices } from '../accounts/operation.ts';
import { actorOf } from './api.ts';
import type { Call } from './route.ts';

/** Operations on behalf of the sender of this request: each writes its own entry in the audit log. */
export function operationsOf({
  principal,
  requestId,
  address,
  services,
}: Pick<Call, 'principal' | 'requestId' | 'address' | 'services'>): OperationServices {
  return { ...services.operations, actor: { ...actorOf(principal), requestId, address } };
}

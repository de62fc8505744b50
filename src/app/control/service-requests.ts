import Type from 'typebox';
import type { TObject } from 'typebox';

import { text } from '../../accounts/request-schema.ts';
import type { Input } from '../../accounts/request-schema.ts';
import type { RecordedPage } from '../../inference/pipeline/traffic-recorder.ts';
import type { ReloadOutcome } from '../../config/reload-outcome.ts';
import type { ServiceStatus } from './status.ts';

const quickMs = 30_000;
/** Many months of many accounts take time. */
const notifyMs = 600_000;
/** New engines may have to load first; the service gives up after fifteen minutes. */
const reloadMs = 960_000;

/** The command line's requests to a running service, besides operations. */
export const serviceRequests = {
  service_status: { schema: Type.Object({}), timeoutMs: quickMs },
  /** Reads the configuration again. */
  reload: { schema: Type.Object({}), timeoutMs: reloadMs },
  /** Closes past months, as the job does. */
  issue_invoices: { schema: Type.Object({}), timeoutMs: notifyMs },
  /** Mails an existing invitation to own an account. */
  invite: { schema: Type.Object({ accountId: text, email: text, token: text }), timeoutMs: notifyMs },
  /** Sends a ping to an endpoint. */
  test_webhook: { schema: Type.Object({ endpointId: text }), timeoutMs: notifyMs },
  /** Sends a delivery again. */
  replay_webhook: { schema: Type.Object({ deliveryId: text }), timeoutMs: notifyMs },
  /** Begins to record traffic, and forgets what was recorded before. */
  record_traffic: {
    schema: Type.Object({ minutes: Type.Integer({ minimum: 1, maximum: 1440 }), model: Type.Optional(text) }),
    timeoutMs: quickMs,
  },
  forget_traffic: { schema: Type.Object({}), timeoutMs: quickMs },
  /** What a process has recorded, from this request on. */
  recorded_traffic: {
    schema: Type.Object({ process: Type.Integer({ minimum: 0 }), from: Type.Integer({ minimum: 0 }) }),
    timeoutMs: quickMs,
  },
} as const satisfies Readonly<Record<string, { readonly schema: TObject; readonly timeoutMs: number }>>;

type Requests = typeof serviceRequests;
export type ServiceRequestKind = keyof Requests;
export type TrafficRequestKind = 'record_traffic' | 'forget_traffic' | 'recorded_traffic';
export type NotificationKind = Exclude<ServiceRequestKind, 'service_status' | 'reload' | TrafficRequestKind>;

interface Answers extends Readonly<Record<NotificationKind, Reported>> {
  readonly service_status: ServiceStatus;
  readonly reload: ReloadOutcome;
  readonly record_traffic: { readonly untilMs: number };
  readonly forget_traffic: object;
  /** `page` is null where nothing is recorded. */
  readonly recorded_traffic: { readonly processes: number; readonly page: RecordedPage | null };
}
export type ServiceAnswer<Kind extends ServiceRequestKind> = Answers[Kind];

export type ServiceRequest<Kind extends ServiceRequestKind> = { readonly kind: Kind } & Input<Requests[Kind]['schema']>;

/** The service's handlers for them. Each throws OperationError. */
export type ServiceHandlers<Kind extends ServiceRequestKind = ServiceRequestKind> = {
  readonly [Each in Kind]: (request: Input<Requests[Each]['schema']>) => Promise<ServiceAnswer<Each>>;
};

export interface Reported {
  /** What was done, for display. */
  readonly done: string;
  /** Id of the event or the delivery, if there is one. */
  readonly id: string | null;
}

import type { Directory } from '../../accounts/directory.ts';
import type { KeyLookUps } from '../../accounts/key-look-ups.ts';
import type { Admission } from '../../billing/rate-limits/admission.ts';
import type { Limits } from '../../billing/rate-limits/rate-limits.ts';
import type { DeadlinesByLength } from '../../platform/deadlines.ts';
import type { ListenerLimits } from '../../platform/http/listener.ts';
import type { JsonThreads } from '../../platform/http/json/threads.ts';
import type { Log } from '../../platform/log.ts';
import type { ServiceMetrics } from '../../platform/metrics/service-metrics.ts';
import type { Recording } from '../../platform/telemetry/traces.ts';
import type { Batches } from '../batches/batches.ts';
import type { Lines } from '../batches/line.ts';
import type { Files } from '../files/files.ts';
import type { PublishedDocument } from '../openapi/published.ts';
import type { ActiveRequests } from '../pipeline/active-requests.ts';
import type { ServeServices } from '../pipeline/call.ts';
import type { ErrorCounts } from '../pipeline/error-counts.ts';
import type { Idempotency } from '../pipeline/idempotency.ts';
import type { RunServices } from '../pipeline/run.ts';
import type { Lease } from '../pipeline/runtime-config.ts';
import type { KeptItems } from '../pipeline/stored-items.ts';
import type { BodyBudget } from './body-budget.ts';
import type { VectorRoom } from './vector-room.ts';

export interface InferenceHostOptions {
  /** Version of the program. */
  readonly version: string;
  /** Base URL of the pages about error codes. */
  readonly accountUrl: string;
  /** Whether clients call this host by https. */
  readonly isHttps: boolean;
  readonly listener: ListenerLimits;
}

export interface InferenceHostServices
  extends
    Pick<ServeServices, 'constraints' | 'promptCounts' | 'reasoningKeys' | 'fileParts'>,
    Pick<RunServices, 'billing' | 'imageFetcher' | 'traffic'> {
  readonly directory: Directory;
  /** Reads keys that are not in memory. */
  readonly keyLookUps: Pick<KeyLookUps, 'read'>;
  /** The current runtime config; each request keeps the one that it began with. */
  lease(): Lease;
  /** Keys, accounts and prices as known to this process, and whether they are up to date. */
  readonly feed: { readonly isStale: boolean; freshen(): Promise<boolean> };
  readonly bodyBudget: BodyBudget;
  readonly items: KeptItems;
  readonly idempotency: Idempotency;
  readonly errorCounts: Pick<ErrorCounts, 'refused' | 'refusedKey' | 'failed'>;
  readonly files: Files;
  readonly batches: Batches;
  /** Called once, with what runs the lines of batches. */
  batchLines(lines: Lines): void;
  readonly running: ActiveRequests;
  readonly log: Log;
  readonly admission: Admission;
  readonly limits: Limits;
  readonly jsonThreads: JsonThreads;
  readonly metrics: ServiceMetrics;
  /** Undefined: requests are not traced. */
  readonly traces: Recording | undefined;
  /** Makes UUIDv7s, the ledger's keys. */
  readonly newId: () => Uint8Array;
  /** The time shared by all replicas: requests are dated and priced by it. */
  readonly now: () => number;
  /** Whether new work is accepted: not while starting, and not while stopping. */
  ready(): boolean;
  /** Whether a load balancer should send requests here: they are accepted, changes arrive in time, and the store and the ledger answer. */
  isReady(): Promise<boolean>;
}

/** What all requests of the host share. */
export interface Host {
  readonly services: InferenceHostServices;
  readonly options: InferenceHostOptions;
  readonly document: PublishedDocument;
  readonly deadlines: DeadlinesByLength;
  readonly vectorRoom: VectorRoom;
}

import type { PortableConfig } from '../../config/portable.ts';
import type { Problem } from '../../config/problem.ts';
import type { ServiceStatus } from '../control/status.ts';
import type { FamilyFigures } from '../../platform/metrics/figures.ts';

/** What a worker receives when it begins. */
export interface BeginWorker {
  readonly index: number;
  readonly count: number;
  /** The id of the process, among those that share the books. */
  readonly replicaId: Uint8Array;
  readonly config: PortableConfig;
  /** The same moment by the clock that times the windows of limits, and by the one that all processes of a machine share. */
  readonly limitMoment: { readonly ms: number; readonly monotonicNs: bigint };
  readonly version: string;
  readonly accountUrl: string;
  /** The port to listen on; 0: the free one that all of them share. */
  readonly port: number;
}

/** The worker listens. */
export interface WorkerBegan {
  readonly port: number;
}

/** The outcome of a configuration that a worker was to prepare. */
export type WorkerPrepared = { readonly ready: true } | { readonly problems: readonly Problem[] };

export type WorkerBackends = ServiceStatus['backends'];
export type WorkerFigures = readonly FamilyFigures[];

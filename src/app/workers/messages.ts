import type { PortableConfig } from '../../config/portable.ts';
import type { Problem } from '../../config/problem.ts';
import type { ServiceStatus } from '../control/status.ts';
import type { FamilyFigures } from '../../platform/metrics/figures.ts';

/** What a worker is told when it begins. */
export interface BeginWorker {
  readonly index: number;
  readonly count: number;
  /** The process, among those that share the books. */
  readonly replicaId: Uint8Array;
  readonly config: PortableConfig;
  /** A moment of the clock by which the windows of limits are timed, and of the one that all processes of a machine share. */
  readonly limitMoment: { readonly ms: number; readonly monotonicNs: bigint };
  readonly version: string;
  readonly accountUrl: string;
  /** To listen on; 0: the free one that all of them share. */
  readonly port: number;
}

/** It listens. */
export interface WorkerBegan {
  readonly port: number;
}

/** What became of a configuration that a worker was to make ready. */
export type WorkerPrepared = { readonly ready: true } | { readonly problems: readonly Problem[] };

export type WorkerBackends = ServiceStatus['backends'];
export type WorkerFigures = readonly FamilyFigures[];

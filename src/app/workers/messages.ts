import { SecretError } from '../../accounts/secret.ts';
import type { PortableConfig } from '../../config/portable.ts';
import type { ErrorMapping } from '../../platform/rpc/failure.ts';
import type { Rpc } from '../../platform/rpc/rpc.ts';
import { storeErrors } from '../../store/store-error.ts';
import type { BackendStatus } from '../control/status.ts';
import type { RecordedPage, TrafficRecording } from '../../inference/pipeline/traffic-recorder.ts';
import type { DrainTimes } from '../listening.ts';
import type { FamilyFigures } from '../../platform/metrics/figures.ts';

/** What a worker receives at its start. */
export interface BeginWorker {
  readonly index: number;
  readonly count: number;
  readonly config: PortableConfig;
  readonly version: string;
  readonly accountUrl: string;
  /** The port to listen on; 0: a free one that all workers share. */
  readonly port: number;
}

/** The answer once the worker listens. */
export interface WorkerBegan {
  readonly port: number;
}

export type WorkerBackends = readonly BackendStatus[];
export type WorkerFigures = readonly FamilyFigures[];

/** What a worker calls at its parent. */
export type ParentCalls = {
  /** A note: the worker now listens to its parent. */
  readonly awake: (nothing: null) => void;
  /** A note: whole lines of the log. */
  readonly log: (lines: string) => void;
};

/** What the parent calls at a worker: `begin` first, the others once it has been answered. */
export type WorkerCalls = {
  readonly begin: (given: BeginWorker) => WorkerBegan;
  /** Rejects with the reason why this configuration cannot come into force. */
  readonly prepare: (config: PortableConfig) => void;
  readonly commit: (nothing: null) => void;
  readonly abandon: (nothing: null) => void;
  readonly catch_up: (nothing: null) => boolean;
  readonly is_ready: (nothing: null) => boolean;
  readonly figures: (nothing: null) => WorkerFigures;
  readonly backends: (nothing: null) => WorkerBackends;
  readonly record_traffic: (recording: TrafficRecording) => void;
  readonly forget_traffic: (nothing: null) => void;
  readonly recorded_traffic: (from: number) => RecordedPage | undefined;
  /** A note: ends running requests. */
  readonly cut: (nothing: null) => void;
  readonly stop: (times: DrainTimes) => void;
};

export type WorkerConnection = Rpc<WorkerCalls, ParentCalls>;
export type ParentConnection = Rpc<ParentCalls, WorkerCalls>;

/** Errors of the store and of the secret keep their class; others, such as a port in use, keep their code. */
export const workerErrors: ErrorMapping = {
  ofConnection: storeErrors.ofConnection,
  revive: (failure, cause) => {
    if (failure.name === 'SecretError') return new SecretError(failure.message, { cause });
    return failure.name === 'StoreError' ? storeErrors.revive(failure, cause) : undefined;
  },
};

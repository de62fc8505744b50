import type { BackendState, ModelResidence, SourceState } from '../../config/backend-state.ts';

/** The status of a running service. */
export interface ServiceStatus {
  readonly version: string;
  readonly pid: number;
  readonly startedAt: number;
  /** `undefined` while the service starts. */
  readonly inferenceUrl: string | undefined;
  readonly accountUrl: string | undefined;
  /** The address of the API on this computer. */
  readonly localUrl: string | undefined;
  readonly backends: readonly BackendStatus[];
  /** The sources of backends that are not in the file. */
  readonly sources: readonly SourceState[];
}

/** Includes details for local commands only. */
export interface BackendStatus extends BackendState {
  /** The file of an embedded model, once it is there and its checksum matches. */
  readonly file?: { readonly path: string; readonly sha256: string } | undefined;
  readonly residence?:
    | (ModelResidence & {
        /** Absent in earlier versions. */
        readonly compute?: { readonly with: string; readonly note?: string; readonly isOfNote: boolean } | undefined;
      })
    | undefined;
}

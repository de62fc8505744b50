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
  /** Where backends come from that the file does not list. */
  readonly sources: readonly SourceState[];
}

/** With what only this computer's commands are told. */
export interface BackendStatus extends BackendState {
  /** The file of an embedded model, once it is there and its checksum is right. */
  readonly file?: { readonly path: string; readonly sha256: string } | undefined;
  readonly residence?:
    | (ModelResidence & {
        /** Earlier versions do not say. */
        readonly compute?: { readonly with: string; readonly note?: string; readonly isOfNote: boolean } | undefined;
      })
    | undefined;
}

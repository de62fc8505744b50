/** What a running service says of itself. */
export interface ServiceStatus {
  readonly version: string;
  readonly pid: number;
  readonly startedAt: number;
  /** `undefined` while the service starts. */
  readonly inferenceUrl: string | undefined;
  readonly accountUrl: string | undefined;
  /** How the API is reached from this very computer. */
  readonly localUrl: string | undefined;
  readonly backends: readonly {
    readonly modelId: string;
    readonly label: string;
    readonly state: 'starting' | 'ready' | 'failed';
    /** The file of an embedded model, once it is there and its checksum is right. */
    readonly file?: { readonly path: string; readonly sha256: string } | undefined;
  }[];
}

/** Asks for the status; everything else that is sent is an `Operation`. */
export const statusRequest = { kind: 'service_status' } as const;

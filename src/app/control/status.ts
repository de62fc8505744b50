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
  readonly sources: readonly {
    readonly model: string;
    readonly source: string;
    readonly by: string;
    readonly listed: number;
    readonly inUse: number;
    readonly problem: string | null;
    readonly lastReadAt: number | null;
  }[];
}

/** How a backend does, in the words of JSON. */
export interface BackendStatus {
  readonly modelId: string;
  readonly label: string;
  readonly state: 'starting' | 'ready' | 'failed';
  /** What its engine says of its state; null: nothing. */
  readonly detail: string | null;
  /** The file of an embedded model, once it is there and its checksum is right. */
  readonly file?: { readonly path: string; readonly sha256: string } | undefined;
  /** Requests that it may have at once; null: as many as come, in a queue of its own. */
  readonly runningMax: number | null;
  /** Requests that it failed in a row. */
  readonly failures: number;
  /** It is left out: until the next attempt; 0: it may be tried now; null: it is in use. */
  readonly ejectedForMs: number | null;
  /** How fast it reads prompts; null: not measured. */
  readonly promptTokensPerSecond: number | null;
  /** Of an embedded model. */
  readonly residence?:
    | {
        readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
        readonly memoryBytes: number | undefined;
        readonly tokensPerSecond: number | undefined;
        /** Earlier versions do not say. */
        readonly compute?: { readonly with: string; readonly note?: string; readonly isOfNote: boolean } | undefined;
      }
    | undefined;
}

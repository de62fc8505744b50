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
  readonly backends: readonly {
    readonly modelId: string;
    readonly label: string;
    readonly state: 'starting' | 'ready' | 'failed';
    /** Of an embedded model. */
    readonly residence?:
      | {
          readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
          readonly memoryBytes: number | undefined;
          readonly tokensPerSecond: number | undefined;
        }
      | undefined;
    /** The file of an embedded model, once it is there and its checksum is right. */
    readonly file?: { readonly path: string; readonly sha256: string } | undefined;
  }[];
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

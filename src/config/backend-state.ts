/** Where backends come from that the configuration does not list. */
export interface SourceState {
  readonly model: string;
  readonly source: string;
  readonly by: string;
  readonly listed: number;
  readonly inUse: number;
  readonly problem: string | null;
  readonly lastReadAt: number | null;
}

/** How a backend does, in the words of JSON. */
export interface BackendState {
  readonly modelId: string;
  readonly label: string;
  readonly state: 'starting' | 'ready' | 'failed';
  /** What its engine says of its state; null: nothing. */
  readonly detail: string | null;
  /** Requests that it may have at once; null: as many as come, in a queue of its own. */
  readonly runningMax: number | null;
  /** Requests that it failed in a row. */
  readonly failures: number;
  /** It is left out: until the next attempt; 0: it may be tried now; null: it is in use. */
  readonly ejectedForMs: number | null;
  /** How fast it reads prompts; null: not measured. */
  readonly promptTokensPerSecond: number | null;
  /** Of a model in the embedded engine. */
  readonly residence?: ModelResidence | undefined;
}

export interface ModelResidence {
  readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
  readonly memoryBytes: number | undefined;
  readonly tokensPerSecond: number | undefined;
}

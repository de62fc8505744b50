/** A source of backends that are not in the configuration. */
export interface SourceState {
  readonly model: string;
  readonly source: string;
  readonly by: string;
  readonly listed: number;
  readonly inUse: number;
  readonly problem: string | null;
  readonly lastReadAt: number | null;
}

/** The state of a backend, as JSON values. */
export interface BackendState {
  readonly modelId: string;
  readonly label: string;
  readonly state: 'starting' | 'ready' | 'sleeping' | 'stopped' | 'failed';
  /** What its engine reports about its state, if anything. */
  readonly detail: string | null;
  /** Requests that it may run at the same time; null: no limit, it has its own queue. */
  readonly runningMax: number | null;
  /** Consecutive failed requests. */
  readonly failures: number;
  /** Time until the next attempt while it is excluded; 0: it may be tried now; null: it is in use. */
  readonly ejectedForMs: number | null;
  /** How fast it reads prompts; null if not measured. */
  readonly promptTokensPerSecond: number | null;
  /** Only for a model in the embedded engine. */
  readonly residence?: ModelResidence | undefined;
}

export interface ModelResidence {
  readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
  readonly memoryBytes: number | undefined;
  readonly tokensPerSecond: number | undefined;
}

import type { BucketFigures } from './figures.ts';
import type { ProcessReadings } from './process-readings.ts';

/** Read from the parts of the service on each scrape. */
export interface ServiceReadings {
  readonly version: string;
  readonly process: ProcessReadings;
  readonly requestsRunning: () => number;
  readonly openHolds: () => number;
  readonly heldMicrocents: () => bigint;
  readonly settlementsWaiting: () => number;
  readonly bodyBytes: () => number;
  /** Work for requests in which accounts take turns. */
  readonly work: () => readonly WorkReading[];
  readonly sockets: () => { readonly inference: number; readonly account: number };
  readonly logLinesDropped: () => number;
  readonly telemetry: () => TelemetryReading;
  /** Reports sent to other processes, and received from them. */
  readonly peerReports: () => { readonly sent: number; readonly heard: number };
  readonly backends: () => readonly BackendReading[];
  readonly models: () => readonly ModelReading[];
  readonly config: () => ConfigReading & { readonly leaving: number };
  /** Processes that answer requests. */
  readonly workers: () => number;
  readonly workersEnded: () => number;
  /** The recurring work beside the requests. */
  readonly jobs: () => readonly {
    readonly name: string;
    readonly lastSuccessSeconds: number;
    readonly failures: number;
  }[];
  readonly sources: () => readonly SourceReading[];
}

/** A source of backends that are not in the file. */
export interface SourceReading {
  readonly model: string;
  readonly source: string;
  readonly listed: number;
  readonly inUse: number;
  readonly problem: string | null;
  /** Milliseconds since 1970; null until it could be read. */
  readonly lastReadAt: number | null;
  readonly failures: number;
}

export interface WorkReading {
  readonly kind: string;
  readonly begun: number;
  readonly waiting: number;
  readonly refused: number;
}

/** Telemetry sent to a collector; empty without one. */
export interface TelemetryReading {
  readonly spans: { readonly sent: number; readonly dropped: number };
  /** Posts that failed. */
  readonly failures: { readonly traces: number; readonly metrics: number };
}

export interface ConfigReading {
  readonly version: number;
  readonly failures: number;
  readonly lastSuccess: boolean;
}

export interface BackendReading {
  readonly model: string;
  readonly backend: string;
  readonly isReady: boolean;
  readonly running: number;
  /** Undefined if this service has no queue for the backend. */
  readonly waiting: number | undefined;
  /** Excluded because it failed. */
  readonly isEjected: boolean;
  readonly ejections: number;
  /** Prompt tokens expected in its cache, and those found there, for the same requests. */
  readonly cachedTokensExpected: number;
  readonly cachedTokensFound: number;
  /** What its answers were like since the start; undefined: there was none. */
  readonly answers: AnswersReading | undefined;
  /** Seconds from the call of the backend to the first content of its answers. */
  readonly firstToken: BucketFigures | undefined;
  /** Used less, because it is worse than its peers. */
  readonly isWorse: boolean;
  /** As reported by its server: the tokens in its prompt cache, and the load from other clients. */
  readonly cacheTokens: number | undefined;
  readonly foreign: { readonly running: number; readonly waitingTokens: number } | undefined;
  /** Undefined unless the model is embedded. */
  readonly isLoaded: boolean | undefined;
  /** Whether it waits for others to make room. */
  readonly isWaitingForMemory: boolean | undefined;
  readonly memoryBytes: number | undefined;
  readonly tokensPerSecond: number | undefined;
  /** Undefined unless the service starts its server. */
  readonly server:
    { readonly state: string; readonly starts: number; readonly failures: number; readonly loadMs: number } | undefined;
}

export interface AnswersReading {
  readonly answered: number;
  readonly failed: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly generatedCentiseconds: number;
  readonly calls: number;
  readonly callsUnreadable: number;
  readonly callsUnknown: number;
  readonly callsMisfit: number;
  readonly callsInText: number;
  readonly forms: number;
  readonly formsMisfit: number;
}

export interface ModelReading {
  readonly model: string;
  /** Requests in its wait queue, by service tier. */
  readonly waiting: Readonly<Record<string, number>>;
  /** Slots that nobody has; undefined: a backend takes any number. */
  readonly slotsFree: number | undefined;
  /** Requests that were tried at another backend, and that were not because of the retry budget. */
  readonly retries: number;
  readonly retriesRefused: number;
}

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
  /** What its answers were like; null if there were none. Absent in earlier versions. */
  readonly quality?: { readonly fiveMinutes: AnswerCounts; readonly hour: AnswerCounts } | null | undefined;
  /** Why it is used less than its peers; null if it is not. Absent in earlier versions. */
  readonly worse?: WorseState | null | undefined;
  /** Only for a server that the service starts beside others. Absent in earlier versions. */
  readonly shared?: SharedMemory | undefined;
  /** Only for a model in the embedded engine. */
  readonly residence?: ModelResidence | undefined;
}

/** What a server that the service starts needs of the GPU, or the memory, that it shares: as `ServerMemory` of the engines. */
export interface SharedMemory {
  readonly group: string;
  readonly declared?: number | undefined;
  readonly learned?: { readonly on: 'gpu' | 'memory'; readonly bytes: number; readonly ofBytes: number } | undefined;
  readonly exceeds: boolean;
  readonly isDoubted: boolean;
}

export interface ModelResidence {
  readonly state: 'unloaded' | 'waiting' | 'loading' | 'loaded';
  readonly memoryBytes: number | undefined;
  readonly tokensPerSecond: number | undefined;
}

/** What is counted of answers, by name. */
export type AnswerCounts = Readonly<
  Record<
    | 'answered'
    | 'failed'
    | 'promptTokens'
    | 'cachedTokens'
    | 'completionTokens'
    | 'generatedCentiseconds'
    | 'calls'
    | 'callsChecked'
    | 'callsUnreadable'
    | 'callsUnknown'
    | 'callsMisfit'
    | 'callsInText'
    | 'forms'
    | 'formsMisfit',
    number
  >
>;

export interface WorseState {
  /** What it fails at: answers with calls, answers in a form, or requests. */
  readonly by: 'calls' | 'forms' | 'errors';
  readonly forMs: number;
  /** The share of them that it failed when that was found, and the share that its peers fail. */
  readonly share: number;
  readonly peersShare: number;
}

/** The shares of answers that are as they should be, and their speed in tokens a second; null: there were none. */
export function answerShares(counts: AnswerCounts) {
  const { calls, callsChecked, callsUnreadable, callsInText, callsUnknown, callsMisfit, forms, formsMisfit } = counts;
  const { promptTokens, cachedTokens, completionTokens, generatedCentiseconds } = counts;
  const part = (some: number, all: number): number | null =>
    all === 0 ? null : Math.round((10_000 * some) / all) / 10_000;
  return {
    json: part(calls - callsUnreadable - callsInText, calls),
    known: part(calls - callsUnknown, calls),
    fit: part(callsChecked - callsMisfit, callsChecked),
    formsFit: part(forms - formsMisfit, forms),
    cached: part(cachedTokens, promptTokens),
    tokensPerSecond:
      generatedCentiseconds === 0 ? null : Math.round((1_000 * completionTokens) / generatedCentiseconds) / 10,
  };
}

/** Progress of fetching a file. Within one activity on one source `bytes` never decreases. */
export interface FetchProgress {
  readonly activity: 'checking' | 'waiting' | 'downloading' | 'unpacking';
  /** Label of the source, or of the file being checked. */
  readonly source: string;
  readonly bytes: number;
  /** `undefined` when the source does not say. */
  readonly total: number | undefined;
  readonly bytesPerSecond: number;
  readonly secondsLeft: number | undefined;
  /** Whether some of the bytes were there before. */
  readonly resumed: boolean;
}

const reportEveryMs = 100;
const rateOverMs = 5_000;

/** Turns byte counts into progress reports, at most ten a second. */
export class Meter {
  readonly #onProgress: (progress: FetchProgress) => void;
  readonly #source: string;
  readonly #now: () => number;
  #activity: FetchProgress['activity'] = 'downloading';
  #bytes = 0;
  #total: number | undefined;
  #resumed = false;
  #reportedAt = -Infinity;
  /** Recent byte counts with their times, oldest first; bounded, because one is kept per report. */
  #samples: { readonly at: number; readonly bytes: number }[] = [];

  constructor(
    source: string,
    onProgress: (progress: FetchProgress) => void,
    now: () => number = () => performance.now(),
  ) {
    this.#source = source;
    this.#onProgress = onProgress;
    this.#now = now;
  }

  /** Starts a new stage, whose rate is measured from scratch. */
  begin(activity: FetchProgress['activity'], total: number | undefined, present = 0, resumed = false): void {
    if (activity !== this.#activity) this.#bytes = 0;
    this.#activity = activity;
    this.#total = total;
    this.#resumed ||= resumed;
    this.#samples = [];
    this.#reportedAt = -Infinity;
    this.report(present);
  }

  report(bytes: number): void {
    this.#bytes = Math.max(this.#bytes, this.#total === undefined ? bytes : Math.min(bytes, this.#total));
    const at = this.#now();
    const last = this.#total !== undefined && this.#bytes >= this.#total;
    if (at - this.#reportedAt < reportEveryMs && !(last && this.#samples.at(-1)?.bytes !== this.#bytes)) return;
    this.#reportedAt = at;
    this.#samples.push({ at, bytes: this.#bytes });
    while (this.#samples.length > 1 && at - this.#samples[0]!.at > rateOverMs) this.#samples.shift();
    const bytesPerSecond = this.#rate();
    this.#onProgress({
      activity: this.#activity,
      source: this.#source,
      bytes: this.#bytes,
      total: this.#total,
      bytesPerSecond,
      secondsLeft:
        this.#total === undefined || bytesPerSecond === 0
          ? undefined
          : Math.ceil((this.#total - this.#bytes) / bytesPerSecond),
      resumed: this.#resumed,
    });
  }

  #rate(): number {
    const [first, last] = [this.#samples[0]!, this.#samples.at(-1)!];
    return last.at === first.at ? 0 : Math.round(((last.bytes - first.bytes) * 1000) / (last.at - first.at));
  }
}

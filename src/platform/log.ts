/**
 * One JSON line per event. No content by construction: the records are closed types of ids, figures and codes, made field by
 * field, and only our own texts are accepted. Nothing here takes an error's message, a body or a header's value.
 */

/** A request that reached a hold, when its money is settled. */
export interface AnswerRecord {
  readonly requestId: Uint8Array;
  readonly publicId: string;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  /** The models that did not serve it, starting with the requested one; absent if that one did. */
  readonly fallbacks?: readonly { readonly model: string; readonly reason: string }[] | undefined;
  readonly api: string;
  readonly streamed: boolean;
  readonly ending: string;
  readonly errorCode: string | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  /** The service tier that served it. */
  readonly tier?: string | null | undefined;
  /** Its wait for a slot, if it waited. */
  readonly queued?: QueuedRecord | undefined;
  readonly backend: string | null;
  readonly firstTokenMs: number | null;
  readonly totalMs: number;
}

/** A request's wait for a slot, and the requests in front of it when that began. */
export interface QueuedRecord {
  readonly waitMs: number;
  readonly expectedMs: number | null;
  readonly ahead: { readonly tiers: number; readonly own: number; readonly others: number };
}

/** 1: the next slot is its. */
export const positionOf = ({ ahead: { tiers, own, others } }: QueuedRecord): number => tiers + own + others + 1;

/** A request that was refused before a hold, or failed. */
export interface RefusalRecord {
  readonly id: string | null;
  readonly publicId: string;
  readonly method: string;
  readonly status: number;
  readonly errorCode: string | null;
  readonly totalMs: number;
}

/** A request that got the answer of an earlier one (`Idempotency-Key`) and is not charged. */
export interface ReplayRecord {
  readonly id: string;
  readonly publicId: string;
  /** `request_id` of the request that was generated; null: it may be a client's own, which is not kept. */
  readonly replayOf: string | null;
  readonly accountId: string;
  readonly keyId: string;
  readonly model: string;
  readonly api: string;
  readonly streamed: boolean;
  readonly status: number;
  readonly totalMs: number;
}

/** An event of the service itself. `detail` holds only our own words, file names and figures. */
export interface ServiceRecord {
  readonly level: 'info' | 'warn' | 'error';
  readonly event: string;
  readonly detail?: Readonly<Record<string, string | number | boolean | null>>;
}

export interface Log {
  answer(record: AnswerRecord): void;
  request(record: RefusalRecord): void;
  replay(record: ReplayRecord): void;
  service(record: ServiceRecord): void;
  /** Since the start. */
  readonly linesDropped: number;
}

/** The log of a process that writes it. */
export interface LogOutput extends Log {
  /** Writes whole lines formatted by another process. */
  pass(lines: string): void;
  /** Resolves when no line waits any more. */
  flush(): Promise<void>;
}

/** The destination of lines. Returns false while the consumer is behind, like a Node stream; throws when a write fails. */
export interface LineSink {
  write(line: string): boolean;
  once(event: 'drain', listener: () => void): unknown;
}

export function createLog(sink: LineSink): LogOutput {
  const output = new LineOutput(sink);
  const write = (record: Readonly<Record<string, unknown>>): void => output.add(lineOf(record));
  return {
    get linesDropped() {
      return output.dropped;
    },
    answer: (record) =>
      write({
        time: now(),
        event: 'answer',
        id: Buffer.from(record.requestId).toString('hex'),
        request_id: record.publicId,
        account: record.accountId,
        key: record.keyId,
        model: record.modelId,
        // Omitted if undefined.
        fallback_from: record.fallbacks?.[0]?.model,
        api: record.api,
        streamed: record.streamed,
        ending: record.ending,
        error: record.errorCode,
        prompt_tokens: record.promptTokens,
        cached_tokens: record.cachedTokens,
        completion_tokens: record.completionTokens,
        reasoning_tokens: record.reasoningTokens,
        cost_microcents: Number(record.costMicrocents),
        // Omitted if it is the usual one, and if it did not wait.
        tier: record.tier === 'default' ? undefined : record.tier,
        queue_ms: record.queued?.waitMs,
        queue_expected_ms: record.queued?.expectedMs ?? undefined,
        queue_position: record.queued === undefined ? undefined : positionOf(record.queued),
        backend: record.backend,
        first_token_ms: record.firstTokenMs,
        total_ms: record.totalMs,
      }),
    request: (record) =>
      write({
        time: now(),
        event: 'refusal',
        id: record.id,
        request_id: record.publicId,
        method: record.method,
        status: record.status,
        error: record.errorCode,
        total_ms: record.totalMs,
      }),
    replay: (record) =>
      write({
        time: now(),
        event: 'replay',
        id: record.id,
        request_id: record.publicId,
        replay_of: record.replayOf,
        account: record.accountId,
        key: record.keyId,
        model: record.model,
        api: record.api,
        streamed: record.streamed,
        status: record.status,
        total_ms: record.totalMs,
      }),
    service: (record) => write({ time: now(), ...record, ...record.detail, detail: undefined }),
    pass: (lines) => output.add(lines),
    flush: () => output.flushed(),
  };
}

const lineOf = (record: Readonly<Record<string, unknown>>): string => `${JSON.stringify(record)}\n`;

const now = (): string => new Date().toISOString();

/** Characters that may wait for a slow consumer; lines beyond that are dropped and counted (reliability S11). */
const waitingCharactersMax = 4 * 1024 * 1024;

/** Lines of one turn of the event loop are written together: standard output may be a file, and then each write blocks. */
class LineOutput {
  readonly #sink: LineSink;
  /** `scheduled`: written in the next turn. `blocked`: the consumer is behind, so nothing is written until it has drained. */
  #state: 'idle' | 'scheduled' | 'blocked' = 'idle';
  #waiting = '';
  #dropped = 0;
  #droppedAndReported = 0;
  readonly #flushes: (() => void)[] = [];

  constructor(sink: LineSink) {
    this.#sink = sink;
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** Whole lines. */
  add(lines: string): void {
    if (this.#waiting.length > waitingCharactersMax) this.#drop(lines);
    else {
      this.#waiting += lines;
      this.#schedule();
    }
  }

  flushed(): Promise<void> {
    return new Promise((resolve) => {
      this.#flushes.push(resolve);
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#state !== 'idle') return;
    this.#state = 'scheduled';
    setImmediate(() => this.#write());
  }

  #write(): void {
    const lines = this.#waiting;
    this.#waiting = '';
    try {
      if (lines === '') for (const resolve of this.#flushes.splice(0)) resolve();
      else if (this.#sink.write(lines)) this.#noteDropped();
      else return this.#block();
    } catch {
      // A full disk: the log must not end any part of the service (reliability S3).
      this.#drop(lines);
    }
    this.#state = 'idle';
    if (this.#waiting !== '' || this.#flushes.length > 0) this.#schedule();
  }

  #block(): void {
    this.#state = 'blocked';
    this.#sink.once('drain', () => {
      this.#noteDropped();
      this.#write();
    });
  }

  #drop(lines: string): void {
    this.#dropped += lines.split('\n').length - 1;
  }

  /** Reports dropped lines once there is room again. It does not use `add`, so that this line is not dropped too. */
  #noteDropped(): void {
    const count = this.#dropped - this.#droppedAndReported;
    if (count === 0) return;
    this.#droppedAndReported = this.#dropped;
    this.#waiting += lineOf({ time: now(), level: 'warn', event: 'log_lines_dropped', count });
  }
}

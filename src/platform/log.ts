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
  readonly api: string;
  readonly streamed: boolean;
  readonly ending: string;
  readonly errorCode: string | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  readonly backend: string | null;
  readonly firstTokenMs: number | null;
  readonly totalMs: number;
}

/** A request that was refused before a hold, or failed. */
export interface RefusalRecord {
  readonly id: string | null;
  readonly publicId: string;
  readonly method: string;
  readonly status: number;
  readonly errorCode: string | null;
  readonly totalMs: number;
}

/** A request that got the answer of another one (`Idempotency-Key`), and is charged nothing. */
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
  /** Writes whole lines that another process has made as this one does. */
  pass(lines: string): void;
  /** Resolves when no line waits any more. */
  flush(): Promise<void>;
}

/** The destination of lines. Returns false while the consumer is behind, like a Node stream; throws when a write fails. */
export interface LineSink {
  write(line: string): boolean;
  once(event: 'drain', listener: () => void): unknown;
}

/** Characters that may wait for a slow consumer; lines beyond that are dropped and counted (reliability S11). */
const waitingCharactersMax = 4 * 1024 * 1024;

/** Lines of one turn of the event loop are written together: standard output may be a file, and then each write blocks. */
export function createLog(sink: LineSink): LogOutput {
  let waiting = '';
  let isScheduled = false;
  let isBlocked = false;
  let dropped = 0;
  let droppedAndReported = 0;
  const idle: (() => void)[] = [];

  const flush = (): void => {
    isScheduled = false;
    if (isBlocked) return;
    if (waiting === '') {
      for (const resolve of idle.splice(0)) resolve();
      return;
    }
    const lines = waiting;
    waiting = '';
    try {
      if (sink.write(lines)) return reportDropped();
    } catch {
      // A full disk: the log must not end any part of the service (reliability S3).
      dropped += lines.split('\n').length - 1;
      return;
    }
    isBlocked = true;
    sink.once('drain', () => {
      isBlocked = false;
      noteDropped();
      flush();
    });
  };
  /** Not by `write`: lines were dropped for lack of room, and this one must get through. */
  const noteDropped = (): void => {
    const count = dropped - droppedAndReported;
    if (count === 0) return;
    droppedAndReported = dropped;
    waiting += `${JSON.stringify({ time: now(), level: 'warn', event: 'log_lines_dropped', count })}\n`;
  };
  /** There is room again. */
  const reportDropped = (): void => {
    noteDropped();
    if (waiting !== '' || idle.length > 0) setImmediate(flush);
  };
  const schedule = (): void => {
    if (isScheduled || isBlocked) return;
    isScheduled = true;
    setImmediate(flush);
  };
  const write = (record: Readonly<Record<string, unknown>>): void => {
    if (waiting.length > waitingCharactersMax) {
      dropped++;
      return;
    }
    waiting += `${JSON.stringify(record)}\n`;
    schedule();
  };
  const now = (): string => new Date().toISOString();

  return {
    get linesDropped() {
      return dropped;
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
        api: record.api,
        streamed: record.streamed,
        ending: record.ending,
        error: record.errorCode,
        prompt_tokens: record.promptTokens,
        cached_tokens: record.cachedTokens,
        completion_tokens: record.completionTokens,
        reasoning_tokens: record.reasoningTokens,
        cost_microcents: Number(record.costMicrocents),
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
    pass: (lines) => {
      if (waiting.length > waitingCharactersMax) dropped += lines.split('\n').length - 1;
      else {
        waiting += lines;
        schedule();
      }
    },
    flush: () =>
      new Promise((resolve) => {
        idle.push(resolve);
        schedule();
      }),
  };
}

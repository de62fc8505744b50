import type { Caller } from '../../accounts/directory.ts';
import type { ApiError } from '../../platform/errors.ts';
import type { BatchRow } from '../../store/repositories/batch-rows.ts';

/** A line of a batch's input, with what its batch says of it. */
export interface BatchLine {
  readonly wire: BatchRow['wire'];
  /** The batch's id, as its client knows it. */
  readonly batchId: string;
  /** The path that all lines of the batch are for. */
  readonly endpoint: string;
  readonly caller: Caller;
  /** The line, without its end: a JSON object of the form of the batch's interface. */
  readonly bytes: Buffer<ArrayBuffer>;
}

/** What a line of the right form says. */
export type CheckedLine = { readonly customId: string } & (
  | {
      /** The id of the model that it names, as the catalog has it. */
      readonly modelId: string;
      readonly refused?: undefined;
    }
  | {
      /** Its request cannot run. `result` is JSON, like that of an answer. */
      readonly refused: { readonly error: ApiError; readonly result: string };
    }
);

/** An answer that is about to be charged. */
export interface KeptAnswer {
  /** The ledger's key of its charge. */
  readonly requestId: Uint8Array;
  /** JSON: `status_code`, `request_id`, `body`. */
  readonly result: string;
}

/** How a run of a line ended; `failed` was not charged. */
export type LineOutcome =
  | { readonly kind: 'answered' }
  | {
      readonly kind: 'failed';
      readonly error: ApiError;
      /** It says nothing of the line: it was stopped by its batch, its key or the end of the process, or its charge was lost. */
      readonly isStopped: boolean;
      /** JSON, like that of an answer. */
      readonly result: string;
    };

/** Called while a line runs. */
export interface LineProgress {
  /** It can be stopped from now on. */
  begun(stop: () => void): void;
  /** It has a slot of its model, or waits for one. */
  placed(): void;
}

/** What runs lines: an exchange without a socket for each. */
export interface Lines {
  /** The process is overloaded and refuses requests: no line is to begin. */
  readonly areShed: boolean;
  /** Checks what can be checked without running it. Throws `ApiError` when the line is none; `param` is a place in it. */
  check(line: BatchLine): Promise<CheckedLine>;
  /**
   * Runs a line on the way of every request. `keep` is called before the charge; `false`: the line belongs to another process, and nothing
   * is charged.
   */
  run(
    line: BatchLine & { readonly customId: string },
    keep: (answer: KeptAnswer) => Promise<boolean>,
    progress: LineProgress,
  ): Promise<LineOutcome>;
}

/** What went wrong, why it did or why it matters, and the command that repairs it, a line each. */
export interface Failure {
  /** More than one line only for several faults. */
  readonly what: readonly string[];
  readonly why: string;
  /** The first can be run as printed. */
  readonly repair: readonly string[];
  readonly exitCode: number;
}

/** A failure of a command, with everything that is reported about it. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure';
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.what.join('\n'));
    this.failure = failure;
  }
}

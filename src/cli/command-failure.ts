/** What went wrong, why that is so or matters, and the command that repairs it: a line each. */
export interface Failure {
  /** More than one line only where several things are wrong at once. */
  readonly what: readonly string[];
  readonly why: string;
  /** The first can be run as it is. */
  readonly repair: readonly string[];
  readonly exitCode: number;
}

/** Something that a command could not do, with everything that is to be said of it. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure';
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.what.join('\n'));
    this.failure = failure;
  }
}

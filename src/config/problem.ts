/** A fault of the configuration, and how to repair it. */
export interface Problem {
  /** `file:line:column`, or the name of the environment variable. */
  readonly where: string;
  /** What is wrong, why that matters, and how to repair it, in one line. */
  readonly what: string;
}

/** Thrown when the configuration cannot be used. `problems` lists everything found, in the order of the file. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    super(problems.map((problem) => `${problem.where}: ${problem.what}`).join('\n'));
    this.problems = problems;
  }
}

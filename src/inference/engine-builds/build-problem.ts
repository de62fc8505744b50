/** Why a build could not be installed. */
export class BuildProblem extends Error {
  override readonly name = 'BuildProblem';
  readonly kind: 'platform' | 'space' | 'network' | 'package' | 'npm';
  /** What to do about it, where that is known. */
  readonly remedy: string | undefined;

  constructor(kind: BuildProblem['kind'], message: string, remedy: string | undefined) {
    super(message);
    this.kind = kind;
    this.remedy = remedy;
  }
}

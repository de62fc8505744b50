/** Why the benchmark cannot run here, and what to do about it. The command ends with 69 (unavailable). */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly remedy: string;
  constructor(message: string, remedy: string) {
    super(message);
    this.remedy = remedy;
  }
}

/** What a command has around it: its own process, or the one of a program that runs commands inside itself. */
export interface Surroundings {
  /** Where relative paths begin, and the configuration is looked for. */
  readonly directory: string;
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number };
}

export const surroundingsOfProcess = (): Surroundings => ({
  directory: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
});

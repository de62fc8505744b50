/** The surroundings of a command: its own process, or a program that runs commands in its process. */
export interface Surroundings {
  /** The base of relative paths, where the configuration is searched for. */
  readonly directory: string;
  readonly stdout: NodeJS.WritableStream & { readonly columns?: number };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number };
}

export const surroundingsOfProcess = (): Surroundings => ({
  directory: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
});

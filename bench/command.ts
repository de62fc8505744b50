import { UsageError } from './arguments.ts';
import { Problem } from './problem.ts';

/** To standard error; standard output has the results. */
export const say = (line: string): void => void process.stderr.write(`${line}\n`);

/** Runs a command on the arguments of the process. Exit codes: 64 wrong usage, 69 something that it needs is missing. */
export async function runCommand(main: (args: readonly string[]) => Promise<void>, usage: string): Promise<void> {
  try {
    await main(process.argv.slice(2));
  } catch (error) {
    if (error instanceof UsageError) {
      say(`${error.message}\n\n${usage}`);
      process.exit(64);
    }
    if (error instanceof Problem) {
      say(`${error.message}\n→ ${error.remedy}`);
      process.exit(69);
    }
    throw error;
  }
}

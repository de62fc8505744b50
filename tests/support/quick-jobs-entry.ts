/**
 * The real program, whose jobs run five times a second instead of once in a minute or so: for tests that wait for what they do, not
 * for their pauses. Started by tests in place of the program.
 */
import { runCommandLine } from '../../src/cli/command-line.ts';
import './quick-jobs.ts';

process.exitCode = await runCommandLine(process.argv.slice(2));

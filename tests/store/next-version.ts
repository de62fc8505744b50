/** The real program with one step more: the next version, as far as databases know. Started by tests in its place. */
import { runCommandLine } from '../../src/cli/command-line.ts';
import { addNextStep } from './steps.ts';

addNextStep();
process.exitCode = await runCommandLine(process.argv.slice(2));

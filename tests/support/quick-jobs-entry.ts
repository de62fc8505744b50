/**
 * The real program, whose jobs run five times a second instead of once in a minute or so: for tests that wait for what they do, not
 * for their pauses. Started by tests in place of the program.
 */
import { runCommandLine } from '../../src/cli/command-line.ts';
import { Jobs } from '../../src/platform/jobs/jobs.ts';
import type { Job } from '../../src/platform/jobs/jobs.ts';

const addUsual = Object.getOwnPropertyDescriptor(Jobs.prototype, 'add')!.value as (job: Job) => void;
Jobs.prototype.add = function add(job) {
  addUsual.call(this, { ...job, everyMs: Math.min(job.everyMs, 200) });
};

process.exitCode = await runCommandLine(process.argv.slice(2));

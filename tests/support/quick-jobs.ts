/** Jobs of this program run five times a second instead of once in a minute or so: for tests that wait for what they do. */
import { Jobs } from '../../src/platform/jobs/jobs.ts';
import type { Job } from '../../src/platform/jobs/jobs.ts';

const addUsual = Object.getOwnPropertyDescriptor(Jobs.prototype, 'add')!.value as (job: Job) => void;
Jobs.prototype.add = function add(job) {
  addUsual.call(this, { ...job, everyMs: Math.min(job.everyMs, 200) });
};

import { describeBackendsAtStart } from './backends-at-start.ts';

describeBackendsAtStart('with one process');

/** The real program with quick jobs, under a clock that a test sets. Started by tests in place of the program. */
import './quick-jobs.ts';
import './clock-entry.ts';

/** Every page of the console on a phone. */
import { looksInBoth } from './browser.ts';
import { sweepPages } from './console-sweep.ts';

sweepPages(looksInBoth.find(({ width }) => width === 360)!);

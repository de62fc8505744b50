/** Every page of the console in its light colours. */
import { sweepPages } from './console-sweep.ts';

sweepPages('light');

/** Every page of the console in its dark colours. */
import { sweepPages } from './console-sweep.ts';

sweepPages('dark');

import { join } from 'node:path';
import { folderWith } from './repository.ts';

/**
 * What this run of the tests was built into: the chosen tests, and beside them the program that they start. It goes when the
 * run has ended (scripts/build-tests.mjs).
 */
export const runFolder = folderWith('program');

/** The built command. */
export const mainFile = join(runFolder, 'program', 'main.js');

/**
 * A source file as a module of its own that another process can run or import, such as `built('tests/store/fixture.ts')`. The
 * build finds these calls in the texts of the tests, so the path is a literal.
 */
export const built = (source: string): string => join(runFolder, source.replace(/\.ts$/, '.js'));

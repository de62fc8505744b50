import { accessSync, constants } from 'node:fs';
import path from 'node:path';

import type { Environment } from '../config/environment.ts';

/** The folders of programs that a server of the service is found in. */
export const foldersOf = ({ childVariables }: Environment): readonly string[] =>
  childVariables['PATH']?.split(path.delimiter) ?? [];

/** The first of the folders that has the program, with its name; `undefined`: none has it. */
export function programIn(program: string, folders: readonly string[]): string | undefined {
  return folders
    .map((folder) => path.resolve(folder, program))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

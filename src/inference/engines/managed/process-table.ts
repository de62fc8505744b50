import { readdir, readFile } from 'node:fs/promises';
import { statFields } from '../../../platform/process-stat.ts';

export interface ListedProcess {
  readonly id: number;
  readonly groupId: number;
  /** In ticks since the computer was started. */
  readonly began: number;
}

/** The processes of this computer; none where the system does not list them, as elsewhere than on Linux. */
export async function processes(): Promise<readonly ListedProcess[]> {
  const ids = (await namesIn('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  return (await Promise.all(ids.map(processOf))).filter((each) => each !== undefined);
}

/** `undefined`: it is gone. */
async function processOf(id: number): Promise<ListedProcess | undefined> {
  // State, parent and group are the first fields, the time of the start the twentieth.
  const fields = statFields(await textOf(`/proc/${id}/stat`));
  return fields.length < 20 ? undefined : { id, groupId: Number(fields[2]), began: Number(fields[19]) };
}

export const textOf = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '');
export const namesIn = (folder: string): Promise<readonly string[]> => readdir(folder).catch(() => []);

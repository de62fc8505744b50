import path from 'node:path';

import { OperationError } from '../accounts/operation.ts';
import { askService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { Config, ModelConfig } from '../config/config.ts';
import { takenOver } from '../config/editor.ts';
import { configPlace, findConfig } from '../config/load.ts';
import { readConfig } from '../config/read.ts';
import { scriptSchema } from '../inference/engines/scripted/script-schema.ts';
import type { Context } from './context.ts';

/** Changes the configuration, checked as at a start; a change that a running service refuses is reverted. */
export async function writeConfig(
  { around: { directory }, environment, config }: Context,
  given: string | undefined,
  change: (text: string) => string,
): Promise<{ readonly written: string; readonly reloaded: boolean }> {
  const before = findConfig({ environment, path: given, directory });
  const { file } = configPlace(given, directory, environment);
  const text = change(before.text);
  readConfig(text, { file, shownAs: before.shownAs, directory: path.dirname(file), environment, scriptSchema });
  const outcome = await takenOver(file, before.file === undefined ? undefined : before.text, text, () =>
    askService(controlSocketPath(config.storage.directory), { kind: 'reload' }),
  );
  return { written: file, reloaded: outcome !== undefined };
}

/** The changed text; throws for a model whose entry is elsewhere, such as behind an anchor. */
export function changedInFile(changed: string | undefined, id: string): string {
  if (changed === undefined) throw new OperationError(`${id} is not written in the file itself.`);
  return changed;
}

export const takenOverLine = (isReloaded: boolean): string =>
  isReloaded ? 'The running service has taken it over.' : 'It is there at the next start: tokenhouse serve';

/** Finds a model by its id in any case: no two ids differ only in case. */
export const modelNamed = ({ models }: Pick<Config, 'models'>, id: string): ModelConfig | undefined =>
  models.find((model) => model.id.toLowerCase() === id.toLowerCase());

/** The model of the configuration file with this id, in any case; refuses what a command could not change there. */
export function modelInFile(config: Config, id: string): ModelConfig {
  const found = modelNamed(config, id);
  if (found !== undefined && config.file !== undefined) return found;
  throw new OperationError(`No configuration file names the model ${id}. List models with: tokenhouse models list`);
}

/** Returns this id if no model of the configuration has it. */
export function freeModelId({ config }: Context, id: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/.test(id))
    throw new OperationError(`'${id}' cannot be an id: name one with --id.`);
  if (config.file !== undefined && modelNamed(config, id) !== undefined)
    throw new OperationError(`There is a model ${id} already: name another id with --id, or remove it first.`);
  return id;
}

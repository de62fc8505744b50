import { parse, YAMLParseError } from 'yaml';

import { OperationError } from '../accounts/operation.ts';
import { withBackendDisabled, withSettings } from '../config/edit.ts';
import { placeInFile } from '../config/sections/backends.ts';
import type { Context } from './context.ts';
import { modelInFile, takenOverLine, writeConfig } from './write-config.ts';

interface Options {
  readonly config?: string;
}

/** `tokenhouse models set`: settings of a model, in the names and the form of the file. */
export async function setModel(
  context: Context,
  options: Options,
  named = '',
  given: readonly string[] = [],
): Promise<number> {
  const { id } = modelInFile(context.config, named);
  const settings = Object.fromEntries(given.map(settingOf));
  const { written, reloaded } = await writeConfig(
    context,
    options.config,
    (text) => withSettings(text, id, settings) ?? notInFile(id),
  );
  context.print.result({ id, settings, config: written, is_in_force: reloaded }, [
    `${id}: ${Object.keys(settings).join(', ')} in ${written}`,
    takenOverLine(reloaded),
  ]);
  return 0;
}

/** `name=value`, the value as YAML; without one the setting is removed. */
function settingOf(text: string): readonly [string, unknown] {
  const at = text.indexOf('=');
  if (at < 1) throw new OperationError(`'${text}' is not a setting: write it as name=value, or name= to remove it.`);
  const [name, value] = [text.slice(0, at), text.slice(at + 1)];
  if (name === 'id' || name === 'backends') throw new OperationError(`${name} is not changed here: edit the file.`);
  try {
    return [name, value.trim() === '' ? null : parse(value)];
  } catch (error) {
    if (error instanceof YAMLParseError)
      throw new OperationError(`The value of ${name} is not YAML: ${error.message.split('\n')[0]}`);
    throw error;
  }
}

/** `tokenhouse backends disable` and `enable`. */
export const switchBackend =
  (disabled: boolean) =>
  async (context: Context, options: Options, named = '', backend = ''): Promise<number> => {
    const model = modelInFile(context.config, named);
    const others = [...model.sources, ...model.disabled];
    const names = [...model.backends, ...others].map(({ name }) => name);
    if (!names.includes(backend))
      throw new OperationError(`${model.id} has no backend ${backend}. It has: ${names.join(', ')}.`);
    const listed = model.backends.findIndex(({ name }) => name === backend);
    const place = others.find(({ name }) => name === backend)?.place ?? placeInFile(model, listed);
    const { written, reloaded } = await writeConfig(
      context,
      options.config,
      (text) => withBackendDisabled(text, model.id, place, disabled) ?? notInFile(model.id),
    );
    context.print.result({ id: model.id, backend, disabled, config: written, is_in_force: reloaded }, [
      `${model.id}: ${backend} is ${disabled ? 'disabled: it gets no more requests' : 'enabled'}`,
      takenOverLine(reloaded),
    ]);
    return 0;
  };

function notInFile(id: string): never {
  throw new OperationError(`${id} is not written in the file as an entry of its own: edit it by hand.`);
}

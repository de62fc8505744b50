import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { commentedConfig } from '../config/commented.ts';
import { readEnvironment } from '../config/environment.ts';
import { configPlace } from '../config/load.ts';
import { configSchema } from '../config/schema.ts';
import { scriptSchema } from '../inference/engines/scripted/script-schema.ts';
import { CommandFailure } from './command-failure.ts';
import { schemaText } from './config.ts';
import type { BareContext } from './context.ts';
import { exitCodes } from './failure.ts';
import { quoted } from './folder.ts';

const schemaName = 'tokenhouse.schema.json';

/** Writes the defaults as a file that explains each setting, and the schema that editors check it with. */
export async function writeConfiguration(
  { around: { directory }, configPath, print }: BareContext,
  options: { readonly force?: boolean },
  named?: string,
): Promise<number> {
  const { file, isNamed } = configPlace(named ?? configPath, directory, readEnvironment());
  const schema = path.join(path.dirname(file), schemaName);
  const texts = [
    [file, commentedConfig(configSchema(scriptSchema), `./${schemaName}`)],
    [schema, `${schemaText()}\n`],
  ] as const;
  if (options.force !== true) for (const [target, text] of texts) refuseOther(target, text, named);
  try {
    if (!isNamed) mkdirSync(path.dirname(file), { recursive: true });
    for (const [target, text] of texts) writeFileSync(target, text);
  } catch (error) {
    throw new CommandFailure({
      what: [`${file} cannot be written (${(error as NodeJS.ErrnoException).code ?? 'unknown'}).`],
      why: 'the folder does not exist, the disk is full, or this user cannot write to it',
      repair: [`mkdir -p ${quoted(path.dirname(file))} && ls -ld ${quoted(path.dirname(file))}`],
      exitCode: exitCodes.unavailable,
    });
  }
  print.result({ file, schema }, [file, schema]);
  if (!print.json)
    print.say(
      `Every line states a default. Edit the file, then run: tokenhouse config check ${quoted(path.relative(directory, file))}`,
    );
  return 0;
}

/** An existing file may be a day's work. */
function refuseOther(target: string, text: string, named: string | undefined): void {
  if (!existsSync(target) || readFileSync(target, 'utf8') === text) return;
  throw new CommandFailure({
    what: [`${target} exists already; nothing was written.`],
    why: 'its contents would be lost',
    repair: [`tokenhouse init ${quoted(named === undefined ? 'tokenhouse.new.yaml' : `${named}.new`)}`, 'add --force'],
    exitCode: exitCodes.refused,
  });
}

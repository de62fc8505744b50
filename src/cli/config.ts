import { readEnvironment } from '../config/environment.ts';
import { findConfig, loadConfig } from '../config/load.ts';
import { ConfigError } from '../config/problem.ts';
import { readSettings } from '../config/read.ts';
import { configSchema } from '../config/schema.ts';
import { settingsOf } from '../config/settings.ts';
import { scriptSchema } from '../inference/engines/scripted/script-schema.ts';
import type { BareContext } from './context.ts';
import { exitCodes } from './failure.ts';
import { quoted } from './folder.ts';
import { table } from './output.ts';
import { counted } from './amount.ts';

/** `config check`: reads the file with the code that starts the service; every problem is a line of the result. */
export async function checkConfiguration(
  { around: { directory }, configPath, print }: BareContext,
  _options: unknown,
  named?: string,
): Promise<number> {
  const path = named ?? configPath;
  try {
    const environment = readEnvironment();
    const config = loadConfig({ environment, path, directory, scriptSchema });
    const shown = config.file === undefined ? null : findConfig({ environment, path, directory }).shownAs;
    const backends = config.models.flatMap((model) => model.backends).length;
    const sources = config.models.flatMap((model) => model.sources).length;
    print.result({ ok: true, file: config.file ?? null, problems: [] }, [
      `${shown ?? 'no file, the defaults'}: right · ${counted(config.models.length, 'model')}, ${counted(backends, 'backend')}${sources === 0 ? '' : `, ${counted(sources, 'source')} of backends`}`,
    ]);
    return 0;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const problems = error.problems.map(({ where, what }) => ({ ...placeOf(where), what }));
    print.result(
      { ok: false, file: problems[0]?.file ?? null, problems },
      error.problems.map(({ where, what }) => `${where}: ${what}`),
    );
    const [first] = problems;
    const lines = problems.length === 1 ? '1 problem' : `${problems.length} problems`;
    print.say(
      first?.line === null || first === undefined
        ? lines
        : `${lines}; the first one: \${EDITOR:-vi} +${first.line} ${quoted(first.file)}`,
    );
    return exitCodes.configuration;
  }
}

function placeOf(where: string) {
  const [, file = where, line, column] = /^(.*):(\d+):(\d+)$/.exec(where) ?? [];
  return {
    where,
    file,
    line: line === undefined ? null : Number(line),
    column: column === undefined ? null : Number(column),
  };
}

/** `config show`: the settings in force, and the source of each. */
export async function showConfiguration({ around: { directory }, configPath, print }: BareContext): Promise<number> {
  const environment = readEnvironment();
  const { text, ...found } = findConfig({ environment, path: configPath, directory });
  const read = readSettings(text, { ...found, environment, scriptSchema });
  const settings = settingsOf(read, found.shownAs, configSchema(scriptSchema), environment);
  print.result(
    { file: found.file ?? null, settings: settings.map((setting) => ({ ...setting, value: setting.value ?? null })) },
    table(
      ['setting', 'value', 'from'],
      settings.map(({ key, value, source }) => [key, value === undefined ? '–' : String(value), source]),
    ),
  );
  return 0;
}

/** `config schema`: the schema that files are checked against. */
export async function printSchema({ print }: BareContext): Promise<number> {
  print.result(undefined, [schemaText()]);
  return 0;
}

export const schemaText = (): string => JSON.stringify(configSchema(scriptSchema), null, 2);

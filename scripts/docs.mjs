// `npm run check -- --fix`: writes the parts of docs/ that are printed from the program: the tables of docs/configuration.md from
// the schema, those of docs/cli.md from the declarations of the commands, and the settings of clients from `tokenhouse launch`. A
// test fails if a document is stale.
import fs from 'node:fs';
import path from 'node:path';
import { importSources } from './bundle.mjs';
import { isStarted, root, say, setup } from './setup.mjs';

/** Path below the repository → its text, with the printed parts up to date. */
export async function documents() {
  const [{ configSchema }, { scriptSchema }, { environmentVariables }, { commandProgram }, { clients }] =
    await importSources(
      'src/config/schema.ts',
      'src/inference/engines/scripted/script-schema.ts',
      'src/config/environment.ts',
      'src/cli/command-line.ts',
      'src/cli/launch/clients.ts',
    );
  const variables = table(
    ['variable', 'what it is'],
    Object.entries(environmentVariables).map(([name, what]) => [code(name), what]),
  );
  const printed = {
    'docs/configuration.md': {
      keys: keyTable(rowsOf(configSchema(), '').filter(({ engine }) => engine === undefined)),
      backends: keyTable(rowsOf(configSchema(), '').filter(({ engine }) => engine !== undefined)),
      scripts: keyTable(rowsOf(scriptSchema, '')),
      environment: variables,
    },
    'docs/clients.md': { clients: clientSections(clients) },
    'docs/cli.md': { commands: commandSections(commandProgram()), environment: variables },
  };
  return Object.fromEntries(
    Object.entries(printed).map(([file, parts]) => {
      const text = fs.readFileSync(path.join(root, file), 'utf8');
      return [file, Object.entries(parts).reduce((whole, [name, part]) => replaced(file, whole, name, part), text)];
    }),
  );
}

function replaced(file, text, name, part) {
  const begin = `<!-- printed: ${name} -->`;
  const end = `<!-- end: ${name} -->`;
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${file} has no place for ${begin}`);
  return `${text.slice(0, from + begin.length)}\n\n${part}\n\n${text.slice(to)}`;
}

/** The leaves of a schema; the keys of a backend are under the name of its engine. */
function rowsOf(schema, at, isRequired = false, engine = undefined) {
  const { properties, required = [], items, anyOf } = schema;
  if (properties !== undefined) {
    const own = properties.engine?.const;
    const prefix = own !== undefined ? `${own}.` : at === '' ? '' : `${at}.`;
    return Object.entries(properties).flatMap(([name, node]) =>
      rowsOf(node, `${prefix}${name}`, required.includes(name), own ?? engine),
    );
  }
  const groups = [anyOf, items?.anyOf, items === undefined ? undefined : [items]].find((choices) =>
    choices?.every((choice) => choice.properties !== undefined),
  );
  if (groups?.every(({ properties: { by } }) => by?.const !== undefined))
    return merged(groups.map((group) => [group.properties.by.const, rowsOf(group, at, isRequired, engine)]));
  if (groups !== undefined) return groups.flatMap((group) => rowsOf(group, anyOf ? at : `${at}[]`, isRequired, engine));
  const what = `${whatOf(schema)}${schema['x-restart'] ? ' (a change needs a restart)' : ''}`;
  return [{ key: at, isRequired, engine, byDefault: schema.default, what }];
}

/** The rows of groups that `by` distinguishes: one for each key, with the groups that have it if not all do. */
function merged(groups) {
  const rows = new Map();
  for (const [name, own] of groups) {
    for (const row of own) {
      const isTag = row.key.endsWith('.by');
      const what = isTag ? row.what.replace(/^`[^`]*`: /, '') : row.what;
      const id = `${row.key} ${what}`;
      const known = rows.get(id) ?? { row: { ...row, what }, isTag, names: [] };
      rows.set(id, { ...known, names: [...known.names, name] });
    }
  }
  return [...rows.values()].map(({ row, isTag, names }) => {
    if (isTag) return { ...row, what: `${row.what}: ${names.map(code).join(', ')}` };
    return names.length === groups.length ? row : { ...row, what: `${names.map(code).join(', ')}: ${row.what}` };
  });
}

function whatOf({ description = '', anyOf, const: only }) {
  if (only !== undefined && only !== false) return `${code(only)}: ${description}`;
  const values = (anyOf ?? []).map((choice) => choice.const);
  if (values.length < 2 || values.some((value) => value === undefined)) return description;
  return `${description}: ${values.slice(0, -1).map(code).join(', ')} or ${code(values.at(-1))}`;
}

const keyTable = (rows) =>
  table(
    ['key', 'default', 'what it is'],
    rows.map(({ key, isRequired, byDefault, what }) => [
      code(key),
      isRequired
        ? ''
        : byDefault === undefined
          ? '–'
          : code(typeof byDefault === 'string' ? byDefault : JSON.stringify(byDefault)),
      what,
    ]),
  );

function commandSections(program) {
  const help = program.createHelp();
  const sections = [];
  const visit = (command, words) => {
    const children = help.visibleCommands(command).filter((child) => child.name() !== 'help');
    if (children.length > 0) return children.forEach((child) => visit(child, [...words, child.name()]));
    const values = command.registeredArguments.map((argument) => help.argumentTerm(argument) && termOf(argument));
    const rows = [
      ...command.registeredArguments.map((argument) => [code(termOf(argument)), help.argumentDescription(argument)]),
      ...help
        .visibleOptions(command)
        .filter(({ long }) => !['--help', '--config', '--json'].includes(long))
        .map((option) => [code(option.flags), help.optionDescription(option)]),
    ];
    const heading = `### tokenhouse ${[...words, ...values].join(' ')}`;
    const sentence = `${command.description().slice(0, 1).toUpperCase()}${command.description().slice(1)}.`;
    sections.push([heading, sentence, ...(rows.length === 0 ? [] : [table(['', ''], rows)])].join('\n\n'));
  };
  visit(program, []);
  return sections.join('\n\n');
}

/** The manual setup of a client: what `tokenhouse launch` writes into an empty file. */
function clientSections(clients) {
  const model = { id: 'your-model', contextLength: 131_072, tools: true, vision: false };
  const madeAt = '2026-01-01T00:00:00.000Z';
  const connection = { url: 'http://localhost:8080', key: 'tkh_…', madeAt, model, models: [model] };
  const places = { home: '~', directory: '/', platform: 'linux', variable: () => undefined };
  return Object.values(clients)
    .map(({ title, file, environment, then }) => {
      const parts = [`### ${title}`];
      if (file !== undefined) {
        const place = file.place(places).replace(/^\//, '');
        parts.push(`${code(place)}:`, fenced(path.extname(place).slice(1), file.change('', connection)));
      }
      const variables = Object.entries(environment(connection)).map(([name, value]) => `export ${name}=${value}`);
      if (variables.length > 0) parts.push(fenced('sh', variables.join('\n')));
      return [...parts, ...(then === undefined ? [] : [then])].join('\n\n');
    })
    .join('\n\n');
}

const fenced = (language, text) => `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;

const termOf = (argument) => {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
};

const code = (text) => `\`${text}\``;

function table(header, rows) {
  const line = (cells) =>
    `| ${cells.map((cell) => String(cell).replaceAll('|', '\\|')).join(' | ')} |`.replaceAll(/ +\|/g, ' |');
  return [line(header), `|${header.map(() => '-').join('|')}|`, ...rows.map(line)].join('\n');
}

if (isStarted(import.meta.url)) {
  setup();
  for (const [file, text] of Object.entries(await documents())) {
    if (fs.readFileSync(path.join(root, file), 'utf8') === text) continue;
    fs.writeFileSync(path.join(root, file), text);
    say(`docs     ${file}`);
  }
}

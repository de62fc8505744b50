import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline/promises';

import type { BudgetPeriod } from '../../store/budget.ts';
import { askForStatus } from '../../app/control/control-client.ts';
import { controlSocketPath } from '../../app/control/socket-path.ts';
import { runnable } from '../../config/environment.ts';
import { localUrl } from '../../config/public-url.ts';
import { generatesText } from '../../catalog/card-flags.ts';
import { inputOf } from '../budgets.ts';
import { CommandFailure } from '../command-failure.ts';
import { configuredModels } from '../configured-model.ts';
import type { Context } from '../context.ts';
import { writing } from '../database.ts';
import { exitCodes } from '../failure.ts';
import { quoted } from '../folder.ts';
import { clients } from './clients.ts';
import type { Client, ClientName, Connection, OfferedModel, Places } from './clients.ts';
import { diffLines } from '../../platform/diff.ts';
import { TextProblem } from './json-text.ts';
import { findFile, LaunchRecords, missingFolders, putBack, sha256, writeWhole } from './record.ts';
import type { FoundFile, LaunchRecord } from './record.ts';

export interface LaunchOptions {
  readonly model?: string;
  readonly account?: string;
  readonly budget: bigint;
  readonly budgetPer: BudgetPeriod;
  readonly url?: string;
  readonly yes?: boolean;
  /** false: `--no-start`. */
  readonly start: boolean;
  readonly print?: boolean;
  readonly restore?: boolean;
  readonly force?: boolean;
}

/** `tokenhouse launch`: sets up a client for the service of this folder and starts it, or undoes the setup. */
export async function launch(
  context: Context,
  options: LaunchOptions,
  name: ClientName,
  words: readonly string[],
): Promise<number> {
  if (options.restore === true) return await restore(context, name, options.force === true);
  const client: Client = clients[name];
  const { connection, isRunning } = await connectionOf(context, options);
  sayWhatIsMissing(context, client, connection.model, isRunning);
  const file = client.file === undefined ? undefined : findFile(client.file.place(placesOf(context)));
  if (options.print === true) return printSetup(context, name, connection, file);
  const environment = client.environment(await setUp(context, options, name, connection, file));
  const { program, then } = client;
  if (program !== undefined && options.start && isRunning && process.stdin.isTTY && process.stdout.isTTY)
    return await start(program, words, { ...context.environment.childVariables, ...environment });
  for (const line of exportLines(environment)) context.print.say(line);
  if (then !== undefined) context.print.say(then);
  if (program !== undefined) context.print.say(`Start it: ${[...program.words, ...words].map(quoted).join(' ')}`);
  return 0;
}

const exportLines = (environment: Readonly<Record<string, string>>): readonly string[] =>
  Object.entries(environment).map(([variable, value]) => `export ${variable}=${quoted(value)}`);

const placesOf = ({ around, environment }: Context): Places => ({
  home: environment.home,
  directory: around.directory,
  platform: process.platform,
  variable: environment.variable,
});

/** Stands for a key that does not exist yet, or should not be shown. */
const keyPlaceholder = 'tkh_…';

async function connectionOf(
  context: Context,
  { model, url }: LaunchOptions,
): Promise<{ readonly connection: Connection; readonly isRunning: boolean }> {
  const { config } = context;
  const models = config.models
    .filter(({ capabilities }) => generatesText(capabilities) && capabilities.chat.supported)
    .map(({ id, contextLength, capabilities }): OfferedModel => ({
      id,
      contextLength,
      tools: capabilities.chat.tools,
      vision: capabilities.vision,
    }));
  const [id] = model === undefined ? [models[0]?.id] : configuredModels(context, [model]);
  const chosen = models.find((one) => one.id === id);
  if (chosen === undefined)
    throw new CommandFailure({
      what: [id === undefined ? 'No model of this service chats.' : `${id} does not chat.`],
      why: 'a client needs a model that answers messages',
      repair: ['tokenhouse models list'],
      exitCode: exitCodes.refused,
    });
  const status = await askForStatus(controlSocketPath(config.storage.directory)).catch(() => undefined);
  const running = status === undefined || status === 'other' ? undefined : status.localUrl;
  const address = (url ?? running ?? localUrl(config.server.inference)).replace(/\/+(v1\/*)?$/, '');
  return {
    connection: { url: address, key: keyPlaceholder, madeAt: new Date().toISOString(), model: chosen, models },
    isRunning: running !== undefined || url !== undefined,
  };
}

function sayWhatIsMissing({ print }: Context, client: Client, model: OfferedModel, isRunning: boolean): void {
  if (client.needsTools && !model.tools)
    print.say(`note     ${client.title} works with tools, and ${model.id} calls none`);
  if (model.contextLength < client.contextMin)
    print.say(
      `note     ${client.title} needs a window of ${client.contextMin} tokens or more, and ${model.id} has ${model.contextLength}`,
    );
  if (!isRunning) print.say(runnable('note     no service runs here now; start it: npm start'));
}

/** Prints the setup; nothing is created or written. */
function printSetup(context: Context, name: ClientName, connection: Connection, found: FoundFile | undefined): number {
  const client: Client = clients[name];
  const environment = client.environment(connection);
  const text = found === undefined ? undefined : changedText(client, found, connection);
  context.print.result({ client: name, environment, file: found?.path ?? null, text: text ?? null }, [
    ...exportLines(environment),
    ...(found === undefined ? [] : [`# ${found.path}`, ...text!.trimEnd().split('\n')]),
  ]);
  context.print.say('Nothing was written, and no key was made: put one of your own in the place of tkh_…');
  return 0;
}

function changedText({ file, title }: Client, found: FoundFile, connection: Connection): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(found.bytes ?? Buffer.alloc(0));
    return file!.change(text, connection);
  } catch (error) {
    throw new CommandFailure({
      what: [
        `${found.path} cannot be changed: ${error instanceof TextProblem ? error.message : 'it is not UTF-8 text'}`,
      ],
      why: `${title} could not read it either, or it is written in a form that a program should not touch`,
      repair: [`correct the file, or move it away and start again`],
      exitCode: exitCodes.refused,
    });
  }
}

/** Asks, creates the key, and writes; resolves with the connection that has the key. */
async function setUp(
  context: Context,
  options: LaunchOptions,
  name: ClientName,
  connection: Connection,
  found: FoundFile | undefined,
): Promise<Connection> {
  const client: Client = clients[name];
  const records = new LaunchRecords(context.environment.userDataDirectory);
  const earlier = records.read(name);
  refuseOtherFile(name, earlier, found);
  if (found !== undefined) {
    const before = found.bytes?.toString('utf8') ?? '';
    const lines = diffLines(withoutKeys(before), withoutKeys(changedText(client, found, connection)));
    context.print.say(`${found.path}${found.bytes === undefined ? ' (new)' : ''}`);
    for (const line of lines) context.print.say(line);
  }
  await confirm(context, options, name);
  const made = await writing(context, {
    kind: 'create_key',
    accountId: options.account,
    name: `launch ${name}`,
    tags: [name],
    budget: inputOf(options.budget, options.budgetPer),
  });
  const full = { ...connection, key: made.key };
  try {
    const record = { client: name, keyId: made.keyId, service: context.config.storage.directory };
    if (found === undefined) records.write(record);
    else writeFile(client, found, changedText(client, found, full), earlier, record, records);
  } catch (error) {
    await writing(context, { kind: 'revoke_key', keyId: made.keyId });
    throw error;
  }
  if (earlier !== undefined) await revoke(context, earlier);
  context.print.result(
    { client: name, file: found?.path ?? null, key: made.keyId, model: connection.model.id, url: connection.url },
    [],
  );
  if (!context.print.json)
    context.print.say(
      runnable(`${client.title} has a key of its own, ${made.keyId}. Undo: tokenhouse launch ${name} --restore`),
    );
  return full;
}

const withoutKeys = (text: string): string => text.replaceAll(/tkh_[0-9A-Za-z]+/g, keyPlaceholder);

function refuseOtherFile(name: ClientName, earlier: LaunchRecord | undefined, found: FoundFile | undefined): void {
  if (earlier?.file === undefined || found === undefined || earlier.file.path === found.path) return;
  throw new CommandFailure({
    what: [`${name} has been set up already, in ${earlier.file.path}.`],
    why: 'only one file at a time can be put back',
    repair: [`tokenhouse launch ${name} --restore`],
    exitCode: exitCodes.refused,
  });
}

async function confirm({ print }: Context, { yes }: LaunchOptions, name: ClientName): Promise<void> {
  if (yes === true) return;
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new CommandFailure({
      what: ['Nothing was written.'],
      why: 'nobody can be asked, because this is no terminal',
      repair: [`tokenhouse launch ${name} --yes`],
      exitCode: exitCodes.usage,
    });
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await lines.question('Make a key and write this? [y/N] ').finally(() => lines.close());
  if (/^y(es)?$/i.test(answer.trim())) return;
  print.say('Nothing was written.');
  throw new CommandFailure({
    what: ['You said no.'],
    why: 'nothing is changed without a yes',
    repair: [`tokenhouse launch ${name} --print`],
    exitCode: exitCodes.refused,
  });
}

/** Writes the record first, so that after any failure it says what has to be put back. */
function writeFile(
  client: Client,
  found: FoundFile,
  text: string,
  earlier: LaunchRecord | undefined,
  record: Omit<LaunchRecord, 'file'>,
  records: LaunchRecords,
): void {
  const mode = client.file!.hasKey ? 0o600 : (found.mode ?? 0o644);
  const shaNow = sha256(found.bytes ?? '');
  const first = earlier?.file;
  const file =
    first === undefined
      ? {
          path: found.path,
          mode: found.mode,
          folders: missingFolders(found.path),
          sha256Before: shaNow,
          isEdited: false,
        }
      : { ...first, isEdited: first.isEdited || (shaNow !== first.sha256After && shaNow !== first.sha256Before) };
  records.write(
    { ...record, file: { ...file, sha256After: sha256(text) } },
    first === undefined ? found.bytes : undefined,
  );
  writeWhole(found.path, Buffer.from(text), mode);
}

/** Puts the file back byte for byte, and revokes the key. */
async function restore(context: Context, name: ClientName, isForced: boolean): Promise<number> {
  const records = new LaunchRecords(context.environment.userDataDirectory);
  const record = records.read(name);
  if (record === undefined)
    throw new CommandFailure({
      what: [`Nothing has been set up for ${name}.`],
      why: 'there is no record of it in your data folder',
      repair: [`tokenhouse launch ${name}`],
      exitCode: exitCodes.refused,
    });
  const { file } = record;
  if (file !== undefined) {
    const now = findFile(file.path);
    const original = findFile(records.originalFile(name)).bytes;
    const isOurs = sha256(now.bytes ?? '') === file.sha256After && !file.isEdited;
    const isOld = sha256(now.bytes ?? '') === file.sha256Before;
    const mayGo = isForced || (clients[name] as Client).file?.isClientsOwn === true;
    if (!isOurs && !isOld && !mayGo) throw changedSince(name, file.path, records.originalFile(name));
    if (!isOurs && !isOld && now.bytes !== undefined) {
      writeWhole(records.changedFile(name), now.bytes, 0o600);
      context.print.say(`The file as it was until now is in ${records.changedFile(name)}.`);
    }
    putBack(file, original);
    context.print.say(original === undefined ? `${file.path} is gone, as before.` : `${file.path} is as before.`);
  }
  const isRevoked = await revoke(context, record);
  records.remove(name);
  context.print.result({ client: name, file: file?.path ?? null, key: record.keyId, revoked: isRevoked }, []);
  return isRevoked ? 0 : exitCodes.refused;
}

const changedSince = (name: ClientName, file: string, original: string): CommandFailure =>
  new CommandFailure({
    what: [`${file} has been changed since; nothing was done.`],
    why: 'the old file would take these changes away',
    repair: [`tokenhouse launch ${name} --restore --force`, `take it from ${quoted(original)} by hand`],
    exitCode: exitCodes.refused,
  });

/** Returns whether it worked: the key may belong to another service. */
async function revoke(context: Context, { keyId, service }: LaunchRecord): Promise<boolean> {
  try {
    await writing(context, { kind: 'revoke_key', keyId });
    context.print.say(`The key ${keyId} is revoked.`);
    return true;
  } catch (error) {
    const where = service === context.config.storage.directory ? '' : ` in ${quoted(path.dirname(service))}`;
    context.print.say(
      `The key ${keyId} could not be revoked (${(error as Error).message}); do it${where}: tokenhouse keys revoke ${keyId}`,
    );
    return false;
  }
}

/** Runs the client in this terminal, without secrets of the service, and returns its exit code. */
async function start(
  { words, install }: NonNullable<Client['program']>,
  more: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<number> {
  const [command, ...first] = words;
  const child = spawn(command, [...first, ...more], {
    stdio: 'inherit',
    env: environment,
    shell: process.platform === 'win32',
  });
  // The terminal sends them to the client as well, which handles them.
  const ignored = (): void => {};
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, ignored);
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve(code ?? 1));
    });
  } catch {
    throw new CommandFailure({
      what: [`${command} is not installed here.`],
      why: 'its configuration is ready, and only the program is missing',
      repair: [install],
      exitCode: exitCodes.unavailable,
    });
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, ignored);
  }
}

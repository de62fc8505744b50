import { Argument, Option } from 'commander';

import type { OperationAnswer, OperationKind, OperationRequest } from '../accounts/operations.ts';
import type { Config } from '../config/config.ts';
import type { Reader } from './database.ts';
import type { Context } from './context.ts';
import type { ApiList, Elsewhere } from './elsewhere.ts';
import { serviceUrl, wholeNumber } from './option.ts';
import { table } from './output.ts';
import type { Cell } from './output.ts';

/**
 * A command as data: what it takes, and what it does. Rows are loaded before any command runs, so what they need from the database
 * or the account API is loaded when they run.
 */
export interface CommandRow {
  readonly name: string;
  readonly about: string;
  /** Arguments and options, in the order of the help text. */
  readonly takes: readonly (Argument | Option)[];
  readonly run: (context: Context, options: never, ...words: never[]) => Promise<number>;
}

type Described = Pick<CommandRow, 'name' | 'about' | 'takes'>;

/** What a command prints about what it has done. */
export interface Done {
  /** Printed with `--json`. */
  readonly json: object;
  /** Printed without it, on standard output. */
  readonly lines: readonly string[];
  /** Also on standard error: what a person should know and a pipe should not get. */
  readonly notes?: readonly string[];
}

/** A command that makes one change: the operation, and how its answer is printed. */
export const changes = <
  const Kind extends OperationKind,
  Options = object,
  Words extends readonly unknown[] = readonly [string],
>(
  row: Described & {
    readonly ask: (
      options: Options,
      words: Words,
      context: Context,
    ) => OperationRequest<Kind> | Promise<OperationRequest<Kind>>;
    readonly done: (
      answer: OperationAnswer<Kind>,
      options: Options,
      words: Words,
      context: Context,
    ) => Done | Promise<Done>;
  },
): CommandRow => ({
  ...row,
  run: async (context: Context, options: Options, ...given: readonly unknown[]) => {
    // Commander has parsed them as the row declares.
    const words = given as readonly unknown[] as Words;
    const { writing } = await import('./database.ts');
    const answer = await writing(context, await row.ask(options, words, context));
    printDone(context, await row.done(answer, options, words, context));
    return 0;
  },
});

export function printDone({ print }: Context, { json, lines, notes = [] }: Done): void {
  print.result(json, lines);
  if (!print.json) notes.forEach(print.say);
}

/**
 * A command that prints a list: objects as in the account API, or columns of them. With `api` the list can also come from a service
 * on another machine, whose configuration is unknown here.
 */
export const lists = <Row extends object, Options = object>(
  row: Described & {
    readonly api?: (options: Options) => ApiList;
    readonly read: (reader: Reader, options: Options) => Promise<readonly Row[]>;
    readonly columns: Readonly<Record<string, (row: Row, config: Config | undefined) => Cell | undefined>>;
    /** Rows that a person sees above those, of the configuration: the list itself is that of the account API. */
    readonly above?: (config: Config, options: Options) => readonly Row[];
  },
): CommandRow => ({
  name: row.name,
  about: row.about,
  takes: row.api === undefined ? row.takes : [...row.takes, ...elsewhereOptions],
  run: async (context: Context, options: Options & Partial<Elsewhere>) => {
    const rows =
      options.at !== undefined && row.api !== undefined
        ? await (
            await import('./elsewhere.ts')
          ).listElsewhere<Row>(context, { ...options, at: options.at }, row.api(options))
        : await (await import('./database.ts')).reading(context, (reader) => row.read(reader, options));
    const config = options.at === undefined ? context.config : undefined;
    const cells = Object.values(row.columns);
    context.print.result(
      rows,
      table(
        Object.keys(row.columns),
        [...(config === undefined ? [] : (row.above?.(config, options) ?? [])), ...rows].map((each) =>
          cells.map((cellOf) => {
            const cell = cellOf(each, config);
            return cell === undefined ? '-' : cell;
          }),
        ),
      ),
    );
    return 0;
  },
});

/** A command in a separate module. */
export const loads = (
  name: string,
  about: string,
  takes: CommandRow['takes'],
  load: () => Promise<CommandRow['run']>,
): CommandRow => ({
  name,
  about,
  takes,
  run: async (context, options, ...words) => (await load())(context, options, ...words),
});

/** An argument: `<required>` or `[optional]`. */
export function word(flags: string, about: string, read?: (text: string) => unknown): Argument {
  const argument = new Argument(flags, about);
  return read === undefined ? argument : argument.argParser(read);
}

export function option<Value>(
  flags: string,
  about: string,
  read?: (text: string, earlier: Value) => Value,
  otherwise?: Value,
): Option {
  const made = new Option(flags, about).default(otherwise);
  return read === undefined ? made : made.argParser(read as (text: string, earlier: unknown) => Value);
}

export const onlyAccount = option('--account <account-id>', 'only this account');
export const meantAccount = option('--account <account-id>', 'the account (default: the only one)');
/** What a list of the newest of something takes. */
export interface Listing {
  readonly account?: string;
  readonly limit: number;
}

/** The same as repositories take it. */
export const filterOf = ({ account: accountId, limit }: Listing) => ({
  limit,
  ...(accountId === undefined ? {} : { accountId }),
});

export const accountWord = word('<account-id>', 'id of the account, from accounts list');
export const keyWord = word('<key-id>', 'id of the key, from keys list');
export const limitOption = (most: number, otherwise: number, about = 'how many'): Option =>
  option('--limit <number>', about, wholeNumber(1, most), otherwise);

const elsewhereOptions = [
  option('--at <url>', 'address of the account host of a service on another machine', serviceUrl),
  option(
    '--key <key>',
    'management key for it; others can see it in the list of processes, so rather set TOKENHOUSE_KEY',
  ),
] as const;

import { Command, CommanderError, InvalidArgumentError } from 'commander';

import { loadConfig } from '../config/load.ts';
import { readEnvironment } from '../config/environment.ts';
import { scriptSchema } from '../engines/scripted/script-schema.ts';
import type { Context } from './context.ts';
import { centsToMicrocents, grantCredit, showCredits } from './credits.ts';
import { exitCodeOf, explain } from './failure.ts';
import { createKey, listKeys, revokeKey } from './keys.ts';
import { verify } from './ledger.ts';
import { listModels, pullModel } from './models.ts';
import { outliveReaders, printer } from './output.ts';
import { serveCommand } from './serve.ts';
import { showUsage } from './usage.ts';
import { version } from './version.ts';

interface CommonOptions {
  readonly config?: string;
  readonly json?: boolean;
}

/**
 * `tokenhouse …`: reads the arguments, runs one command, resolves with the exit code: 0 done; 1 refused, or a difference
 * was found; 64 wrong usage; 69 something that is needed is not available; 78 the configuration is wrong.
 */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  outliveReaders();
  let exitCode = 0;
  const program = new Command('tokenhouse')
    .description('The inference service that anyone can run.')
    .version(version, '-V, --version')
    .showSuggestionAfterError()
    .showHelpAfterError('(tokenhouse --help lists the commands)')
    .exitOverride();

  /** A command with the options that all have; its action returns an exit code. */
  const command = (parent: Command, name: string, description: string): Command =>
    parent
      .command(name)
      .description(description)
      .option('-c, --config <file>', 'the configuration (default: ./tokenhouse.yaml, else built-in defaults)')
      .option('--json', 'print JSON on standard output')
      .exitOverride();
  const action =
    <Options>(run: (context: Context, options: Options, ...words: string[]) => Promise<number>) =>
    async (...given: unknown[]): Promise<void> => {
      const words = given.slice(0, -2) as string[];
      // Commander has checked them against the declarations below.
      const options = given.at(-2) as Options & CommonOptions;
      const environment = readEnvironment();
      const config = loadConfig({ environment, path: options.config, directory: process.cwd(), scriptSchema });
      exitCode = await run({ config, environment, print: printer(options.json === true) }, options, ...words);
    };

  command(program, 'serve', 'run the service')
    .option('--no-key', 'do not print the first key')
    .action(action(serveCommand));

  const keys = program.command('keys').description('API keys');
  command(keys, 'create', 'make a key; it is shown once')
    .option('--account <id>', 'whose key (default: the only account)')
    .option('--name <name>', 'what it is for', 'unnamed')
    .option('--expires <duration>', 'for example 12h or 30d', duration)
    .action(action(createKey));
  command(keys, 'list', 'list keys').option('--account <id>', 'of one account').action(action(listKeys));
  command(keys, 'revoke <id>', 'revoke a key at once; what runs on it is cut').action(
    action((context, _options, id) => revokeKey(context, id ?? '')),
  );

  const credits = program.command('credits').description('balances');
  command(credits, 'show', 'list accounts with their balances').action(action(showCredits));
  command(credits, 'grant', 'add credit to an account')
    .requiredOption('--cents <amount>', 'how much, in cents, for example 500 or 0.25', centsToMicrocents)
    .option('--account <id>', 'to whom (default: the only account)')
    .option('--reason <text>', 'kept with the transfer')
    .option('--idempotency-key <key>', 'the same key twice adds the credit once')
    .action(action(grantCredit));

  command(program, 'usage', 'list the newest requests with their cost, and the balance')
    .option('--account <id>', 'of one account')
    .option('--limit <n>', 'how many requests', wholeNumber, 20)
    .action(action(showUsage));

  const models = program.command('models').description('models and their files');
  command(models, 'list', 'list the models of the configuration').action(action(listModels));
  command(
    models,
    'pull [id-or-source]',
    'fetch a model file: of a configured model (default: all), or any source such as hf:owner/repository:Q8_0',
  )
    .option('--sha256 <hex>', 'what the file must have, for a source')
    .action(action(pullModel));

  const ledger = program.command('ledger').description('the ledger');
  command(ledger, 'verify', 'derive every balance again from its rows; exit 1 on any difference').action(
    action(verify),
  );

  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 64;
    explain(error, printer(args.includes('--json')));
    return exitCodeOf(error);
  }
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 1000)
    throw new InvalidArgumentError('use a whole number from 1 to 1000');
  return value;
}

/** Milliseconds. */
function duration(text: string): number {
  const [, digits, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const unitMs = { m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? ''];
  if (digits === undefined || unitMs === undefined || Number(digits) === 0)
    throw new InvalidArgumentError('use minutes, hours or days: 30m, 12h, 30d');
  return Number(digits) * unitMs;
}

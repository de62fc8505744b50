import { Argument, Command, CommanderError, Option } from 'commander';

import type { Role } from '../accounts/role.ts';
import { demoOutcomes } from '../billing/payments/demo-outcomes.ts';
import type { Override } from '../config/overrides.ts';
import { flavorNames } from '../generation/flavor-names.ts';
import type { InstallableKind } from '../inference/engine-builds/builds.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { TaxStatus } from '../tax/tax.ts';
import type { BudgetOptions } from './budgets.ts';
import type { Shell } from './completion.ts';
import type { BareContext, Context } from './context.ts';
import type { KeyLimitOptions } from './keys.ts';
import type { ClientName } from './launch/clients.ts';
import type { LaunchOptions } from './launch/launch.ts';
import {
  centsToMicrocents,
  centsToMicrocentsOrNone,
  collected,
  decimalNumber,
  dollarsToMicrocents,
  duration,
  durationOrNever,
  moment,
  movedDollars,
  pricePerMillion,
  serviceUrl,
  signedCentsToMicrocents,
  signedDollars,
  wholeNumber,
  wholeNumberOrNone,
} from './option.ts';
import { outliveReaders, printer } from './output.ts';
import { surroundingsOfProcess } from './surroundings.ts';
import type { Surroundings } from './surroundings.ts';
import { version } from './version.ts';

interface CommonOptions {
  readonly config?: string;
  readonly json?: boolean;
}

interface MoveOptions {
  readonly dollars?: bigint;
  readonly cents?: bigint;
  readonly account?: string;
  readonly reason?: string;
  readonly idempotencyKey?: string;
}

type Run<Options> = (context: Context, options: Options, ...words: (string | undefined)[]) => Promise<number>;
type BareRun<Options> = (context: BareContext, options: Options, ...words: (string | undefined)[]) => Promise<number>;

/** Written again, because only declarations are loaded before a command runs. */
const taxStatuses: readonly TaxStatus[] = ['standard', 'exempt', 'reverse_charge'];
const keyRoles: readonly Role[] = ['owner', 'admin', 'billing', 'developer', 'viewer'];
const launchable: readonly ClientName[] = [
  'claude',
  'codex',
  'opencode',
  'cline',
  'zed',
  'continue',
  'open-webui',
  'librechat',
];
const engineKinds: readonly InstallableKind[] = ['cuda', 'vulkan'];
/** The periods of a budget. */
const budgetPeriods: readonly BudgetPeriod[] = ['day', 'week', 'month', 'total'];

const periodOption = (flags: string): Option =>
  new Option(flags, 'the period; weeks begin on Monday, all periods at midnight UTC')
    .choices(budgetPeriods)
    .default('month');

const exitCodeHelp = `
Exit codes: 0 success; 1 refused, or problems were found; 64 wrong usage; 69 something that is needed is not
available; 70 internal error; 78 invalid configuration; 130 interrupted.
Results go to standard output, messages to standard error.`;

/**
 * `tokenhouse …`: reads the arguments, runs one command, resolves with its exit code. Each command is imported when it
 * runs, so that help and completion do not wait for a database. `inside`: of a program that runs commands inside itself.
 */
export async function runCommandLine(args: readonly string[], inside?: Surroundings): Promise<number> {
  const around = inside ?? surroundingsOfProcess();
  if (inside === undefined) outliveReaders();
  let exitCode = 0;
  const program = commandProgram((code) => (exitCode = code), around);
  if (args[0] === '__complete') return await complete(program, args.slice(1), around);
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 64;
    const { explain, failureOf } = await import('./failure.ts');
    const failure = await failureOf(error, around.directory);
    explain(failure, printer(args.includes('--json'), around));
    return failure.exitCode;
  }
}

/** For the scripts of the shells. */
async function complete(program: Command, words: readonly string[], around: Surroundings): Promise<number> {
  const { candidatesFor } = await import('./completion.ts');
  for (const [word, about] of await candidatesFor(program, words, around.directory))
    around.stdout.write(about === '' ? `${word}\n` : `${word}\t${about}\n`);
  return 0;
}

/**
 * The commands, with everything that help, completion and documentation are printed from. For the completion, the name of a value
 * determines what may be entered: `file`, `model`, `key-id`, `account-id`.
 */
export function commandProgram(exit: (code: number) => void = () => {}, around = surroundingsOfProcess()): Command {
  const program = new Command('tokenhouse')
    .configureOutput({
      writeOut: (text) => void around.stdout.write(text),
      writeErr: (text) => void around.stderr.write(text),
    })
    .description('The inference service that anyone can run.')
    .version(version, '-V, --version')
    .showSuggestionAfterError()
    .showHelpAfterError('(tokenhouse --help lists the commands)')
    .addHelpText('after', exitCodeHelp)
    .exitOverride();

  /** A command with the common options; its action returns an exit code. `isDefault`: what its group does alone. */
  const command = (parent: Command, name: string, description: string, isDefault = false): Command =>
    parent
      .command(name, { isDefault })
      .description(description)
      .option('-c, --config <file>', 'the configuration (default: ./tokenhouse.yaml, else built-in defaults)')
      .option('--json', 'print JSON on standard output')
      .exitOverride();
  const group = (name: string, description: string): Command => program.command(name).description(description);
  const bare =
    <Options>(load: () => Promise<BareRun<Options>>) =>
    async (...given: unknown[]): Promise<void> => {
      const words = given.slice(0, -2) as (string | undefined)[];
      // Commander has checked them against the declarations below.
      const options = given.at(-2) as Options & CommonOptions;
      const run = await load();
      exit(
        await run(
          { configPath: options.config, print: printer(options.json === true, around), around },
          options,
          ...words,
        ),
      );
    };
  /** For commands that work on the configuration that a service here would have, and that options may change. */
  const action = <Options>(
    load: () => Promise<Run<Options>>,
    loadOverrides?: () => Promise<(options: Options) => readonly Override[]>,
  ) =>
    bare<Options>(async () => {
      const [run, { readContext }] = await Promise.all([load(), import('./read-context.ts')]);
      const overridesOf = await loadOverrides?.();
      return async ({ configPath, print }, options, ...words) => {
        const { config, environment } = readContext(configPath, around.directory, undefined, overridesOf?.(options));
        try {
          return await run({ around, config, environment, print }, options, ...words);
        } catch (error) {
          const { explain, failureOf } = await import('./failure.ts');
          const failure = await failureOf(error, around.directory, config);
          explain(failure, print);
          return failure.exitCode;
        }
      };
    });

  /** For commands that load so much at once that a low limit of open files would end them with a stack. */
  const enoughFilesFor =
    (run: (...given: unknown[]) => Promise<void>) =>
    async (...given: unknown[]): Promise<void> => {
      const { tooFewToStart } = await import('./open-files.ts');
      const tooFew = tooFewToStart();
      if (tooFew === undefined) return await run(...given);
      tooFew.forEach(printer(false, around).say);
      exit(69);
    };

  command(program, 'serve', 'run the service')
    .option('--no-key', 'do not print the first key')
    .option('--host <address>', 'address of the inference host; 0.0.0.0 listens on every network interface')
    .option('--port <number>', 'port of the inference host, instead of the configured one', wholeNumber(0, 65_535))
    .option('--account-host <address>', 'address of the account host, instead of the configured one')
    .option(
      '--account-port <number>',
      'port of the account host, instead of the configured one',
      wholeNumber(0, 65_535),
    )
    .action(
      enoughFilesFor(
        action(
          () => import('./serve.ts').then(({ serveCommand }) => serveCommand),
          () => import('./serve.ts').then(({ listenOverrides }) => listenOverrides),
        ),
      ),
    );

  command(program, 'reload', 'make the running service load the changed configuration').action(
    action(() => import('./reload.ts').then(({ reloadService }) => reloadService)),
  );

  command(program, 'init', 'write a commented tokenhouse.yaml with all defaults, and its schema for editors')
    .argument('[file]', 'target file (default: ./tokenhouse.yaml)')
    .option('--force', 'overwrite an existing file')
    .action(bare(() => import('./init.ts').then(({ writeConfiguration }) => writeConfiguration)));

  const config = group('config', 'the configuration');
  command(config, 'check', 'report every problem of a configuration, as the service would at its start')
    .argument('[file]', 'the file to check (default: ./tokenhouse.yaml)')
    .action(bare(() => import('./config.ts').then(({ checkConfiguration }) => checkConfiguration)));
  command(config, 'show', 'list the settings in force, and where each comes from; secrets are masked').action(
    bare(() => import('./config.ts').then(({ showConfiguration }) => showConfiguration)),
  );
  command(config, 'schema', 'print the JSON Schema of tokenhouse.yaml').action(
    bare(() => import('./config.ts').then(({ printSchema }) => printSchema)),
  );

  command(program, 'chat', 'talk to a model of the running service')
    .argument('[model]', 'id of the model (default: the first one of the service)')
    .argument('[prompt...]', 'the question (default: standard input, or a conversation)')
    .option('--url <url>', 'the service (default: TOKENHOUSE_URL, else the one that runs here)', serviceUrl)
    .option(
      '--key <key>',
      'API key; others can see it in the list of processes, so rather set TOKENHOUSE_KEY (default: a temporary key of the first account, on the computer of the service)',
    )
    .option('--max-tokens <number>', 'longest answer', wholeNumber(1, 100_000_000))
    .option(
      '--temperature <number>',
      'from 0 (the likeliest words) to 2 (default: the default of the model)',
      decimalNumber(0, 2),
    )
    .option('--system <text>', 'the system message')
    .action(bare(() => import('./chat.ts').then(({ chat }) => chat)));

  command(program, 'doctor', 'check everything that a service needs here, and suggest repairs')
    .option('--claims', 'ask each server with small requests whether it does what the card of its model says')
    .option('--write', 'do that, and correct the configuration by what was found')
    .action(bare(() => import('./doctor/doctor.ts').then(({ doctor }) => doctor)));

  command(program, 'launch', 'set up a client for this service, with a key and a budget of its own, and start it')
    .addArgument(new Argument('<client>', 'which one').choices(launchable))
    .argument('[words...]', 'arguments of the client, after --')
    .option('--model <model>', 'model that it uses (default: the first one that chats)')
    .option('--account <account-id>', 'account that pays (default: the only account)')
    .addOption(
      new Option('--budget <dollars>', 'budget of its key for a period')
        .argParser(dollarsToMicrocents)
        .default(500_000_000n, '5.00'),
    )
    .addOption(periodOption('--budget-per <period>'))
    .option('--url <url>', 'address of the service for the client (default: that on this computer)', serviceUrl)
    .option('-y, --yes', 'do not ask before anything is written')
    .option('--no-start', 'only set it up')
    .option('--print', 'print the environment and the file, and write nothing')
    .option('--restore', 'put its file back as it was, and revoke the key')
    .option('--force', 'with --restore: also when the file has been changed since')
    .action(
      action<LaunchOptions>(async () => {
        const { launch } = await import('./launch/launch.ts');
        return (context, options, client, words) =>
          // Commander has read them as declared above.
          launch(context, options, client as ClientName, words as unknown as readonly string[]);
      }),
    );

  const keys = group('keys', 'API keys');
  command(keys, 'create', 'create a key; it is shown only once')
    .option('--account <account-id>', 'account of the key (default: the only account)')
    .option('--name <name>', 'name of the key', 'unnamed')
    .option('--user <name>', 'user that the key belongs to; only keys of users can upload files')
    .option('--expires <duration>', 'for example 12h or 30d', duration)
    .option('--model <model>', 'allowed model; repeatable (default: all)', collected)
    .option('--endpoint <path>', 'allowed path, such as /v1/messages; repeatable (default: all)', collected)
    .option('--ip <range>', 'allowed client address or range; repeatable (default: all)', collected)
    .option('--zdr-only', 'only for requests with Service-ZDR: required')
    .option('--tag <tag>', 'tag of all its requests; repeatable', collected)
    .addOption(new Option('--role <role>', 'create a management key with this role').choices(keyRoles))
    .option('--operator', 'create a management key that may also do what the operator of the server may')
    .option('--plan', "requests are paid by the account's plan, and count against its included requests")
    .option('--concurrency <number>', 'maximum of concurrent requests', wholeNumber(1, 1e6))
    .option('--requests-per-minute <number>', 'maximum of requests per minute', wholeNumber(1, 1e9))
    .option(
      '--tokens-per-minute <number>',
      'maximum of tokens per minute, in prompts and answers',
      wholeNumber(1, 1e12),
    )
    .option('--budget <dollars>', 'budget for a period, for example 10.00 (default: no budget)', dollarsToMicrocents)
    .addOption(periodOption('--budget-per <period>'))
    .action(action(() => import('./keys.ts').then(({ createKey }) => createKey)));
  command(keys, 'list', 'list keys')
    .option('--account <account-id>', 'only this account')
    .action(action(() => import('./keys.ts').then(({ listKeys }) => listKeys)));
  command(keys, 'revoke', 'revoke a key at once; its running requests are cut')
    .argument('<key-id>', 'id of the key, from keys list')
    .action(
      action(async () => {
        const { revokeKey } = await import('./keys.ts');
        return (context, _options, id) => revokeKey(context, id ?? '');
      }),
    );

  command(keys, 'rotate', 'rotate the secret of a key; the new one is shown only once, and the key keeps its id')
    .argument('<key-id>', 'id of the key, from keys list')
    .option(
      '--overlap <duration>',
      'how long the earlier secret stays valid, at most 7d (default: not at all)',
      duration,
    )
    .action(
      action<{ readonly overlap?: number }>(async () => {
        const { rotateKey } = await import('./keys.ts');
        return (context, options, id) => rotateKey(context, options, id ?? '');
      }),
    );
  for (const [name, isPaused, about] of [
    ['pause', true, 'refuse a key until it is resumed; its running requests are cut'],
    ['resume', false, 'accept a paused key again'],
  ] as const) {
    command(keys, name, about)
      .argument('<key-id>', 'id of the key, from keys list')
      .action(
        action(async () => {
          const { pauseKey } = await import('./keys.ts');
          return (context, _options, id) => pauseKey(context, isPaused, id ?? '');
        }),
      );
  }

  command(keys, 'allow', 'set the models that a key may use, among those of its account')
    .argument('<key-id>', 'id of the key, from keys list')
    .option('--model <model>', 'an allowed model; repeatable', collected)
    .option('--all', 'allow all models')
    .action(
      action<{ readonly model?: readonly string[]; readonly all?: boolean }>(async () => {
        const { allowKey } = await import('./allow.ts');
        return (context, options, id) => allowKey(context, options, id ?? '');
      }),
    );

  command(keys, 'limit', 'change the limits of a key, in addition to those of its account; none removes a limit')
    .argument('<key-id>', 'id of the key, from keys list')
    .option('--concurrency <number>', 'maximum of concurrent requests', wholeNumberOrNone(1, 1e6))
    .option('--requests-per-minute <number>', 'maximum of requests per minute', wholeNumberOrNone(1, 1e9))
    .option(
      '--tokens-per-minute <number>',
      'maximum of tokens per minute, in prompts and answers',
      wholeNumberOrNone(1, 1e12),
    )
    .option('--endpoint <path>', 'allowed path, replacing the earlier ones; repeatable; none allows all', collected)
    .option(
      '--ip <range>',
      'allowed client address or range, replacing the earlier ones; repeatable; none allows all',
      collected,
    )
    .option('--zdr-only', 'only for requests with Service-ZDR: required')
    .option('--no-zdr-only', 'for requests with any header')
    .option('--plan', "paid by the account's plan")
    .option('--no-plan', 'paid from credit')
    .action(
      action<KeyLimitOptions>(async () => {
        const { limitKey } = await import('./keys.ts');
        return (context, options, id) => limitKey(context, options, id ?? '');
      }),
    );
  command(keys, 'edit', 'rename a key, or change its expiry or its tags')
    .argument('<key-id>', 'id of the key, from keys list')
    .option('--name <name>', 'name of the key')
    .option('--expires <duration>', 'time from now, for example 12h or 30d, or never', durationOrNever)
    .option('--tag <tag>', 'tag, replacing the earlier ones; repeatable; none removes all', collected)
    .action(
      action<{ readonly name?: string; readonly expires?: number | 'never'; readonly tag?: readonly string[] }>(
        async () => {
          const { editKey } = await import('./keys.ts');
          return (context, options, id) => editKey(context, options, id ?? '');
        },
      ),
    );

  const budget = (parent: Command, of: 'key' | 'account', about: string): Command =>
    command(parent, 'budget', about)
      .argument(`<${of}-id>`, `id of the ${of}, from ${of}s list`)
      .argument('[dollars]', 'the amount, for example 10.00', dollarsToMicrocents)
      .addOption(periodOption('--per <period>'))
      .option('--none', 'no budget')
      .action(
        action<BudgetOptions>(async () => {
          const { setBudget } = await import('./budgets.ts');
          return (context, options, id, dollars) =>
            // Commander has read it as declared above.
            setBudget(context, options, of, id ?? '', dollars as unknown as bigint | undefined);
        }),
      );
  budget(keys, 'key', 'set the budget of a key for a period');

  const accounts = group('accounts', 'accounts');
  command(accounts, 'list', 'list accounts with their plans and limits').action(
    action(() => import('./accounts.ts').then(({ listAccounts }) => listAccounts)),
  );
  command(accounts, 'create', 'create an account, optionally with owner, credit and key; all of it or nothing')
    .argument('[name]', 'name of the account')
    .option('--name <name>', 'the same')
    .option('--owner <address>', 'invite its owner; the link is printed, and mailed if mail is configured')
    .option('--credit <dollars>', 'free credit, for example 20.00', movedDollars)
    .option('--key [name]', 'create a key; it is shown only once')
    .action(action(() => import('./accounts.ts').then(({ createAccount }) => createAccount)));
  for (const [name, kind, about] of [
    ['suspend', 'suspend_account', 'refuse all keys of an account at once; their running requests are cut'],
    ['revive', 'revive_account', 'accept the keys of a suspended account again'],
  ] as const) {
    command(accounts, name, about)
      .argument('<account-id>', 'id of the account, from accounts list')
      .option('--reason <text>', 'reason, for the audit log')
      .action(
        action<{ readonly reason?: string }>(async () => {
          const { setAccountStatus } = await import('./accounts.ts');
          return (context, options, id) => setAccountStatus(context, kind, id ?? '', options.reason);
        }),
      );
  }
  command(accounts, 'export', 'print all data of an account, as JSON')
    .argument('<account-id>', 'id of the account, from accounts list')
    .action(
      action(async () => {
        const { exportAccountData } = await import('./accounts.ts');
        return (context, _options, id) => exportAccountData(context, id ?? '');
      }),
    );
  command(accounts, 'delete', 'delete an account for good: its keys, people, files and names; the ledger stays')
    .argument('<account-id>', 'id of the account, from accounts list')
    .option('--forfeit-credit', 'let its remaining credit expire')
    .action(
      action<{ readonly forfeitCredit?: boolean }>(async () => {
        const { deleteAccount } = await import('./accounts.ts');
        return (context, options, id) => deleteAccount(context, options, id ?? '');
      }),
    );
  command(accounts, 'plan', 'set the plan of an account')
    .argument('[plan]', 'which plan')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--none', 'no plan')
    .action(
      action<{ readonly account?: string; readonly none?: boolean }>(async () => {
        const { planAccount } = await import('./accounts.ts');
        return (context, options, plan) => planAccount(context, options, plan);
      }),
    );
  command(accounts, 'limit', 'set how many requests of an account may run at the same time')
    .option('--account <account-id>', 'the account (default: the only one)')
    .requiredOption(
      '--concurrency <number>',
      'the number; none: the limit of its plan, or of the configuration',
      wholeNumberOrNone(1, 1e6),
    )
    .action(action(() => import('./accounts.ts').then(({ limitAccount }) => limitAccount)));
  command(accounts, 'zdr', 'make every request of an account one with zero data retention')
    .addArgument(
      new Argument('<whether>', 'required: of every request; optional: of those that ask for it').choices([
        'required',
        'optional',
      ]),
    )
    .option('--account <account-id>', 'the account (default: the only one)')
    .action(
      action<{ readonly account?: string }>(async () => {
        const { requireZdr } = await import('./accounts.ts');
        return (context, options, whether) => requireZdr(context, options, whether === 'required');
      }),
    );
  command(accounts, 'billing', 'show or change the recipient and the tax of an account’s invoices')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--name <name>', 'legal name; none: the name of the account')
    .option('--address-line <line>', 'a line of the address; repeatable; none: no address', collected)
    .option('--country <code>', 'ISO 3166-1 code, for example DE, which sets the tax rate; none: unknown')
    .option('--tax-id <id>', 'tax number of the customer; none: unknown')
    .addOption(
      new Option('--tax-status <status>', 'how it is taxed: exempt needs a proof that you have checked').choices(
        taxStatuses,
      ),
    )
    .option('--email <address>', 'address for invoices and receipts; none: they are not sent')
    .action(action(() => import('./billing.ts').then(({ setBilling }) => setBilling)));
  budget(accounts, 'account', 'set the budget of an account for a period, for all its keys together').option(
    '--member <address>',
    'instead of one of its members, by address or id, for all keys in their name together',
  );
  command(accounts, 'allow', 'set the models that the keys of an account may use')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--model <model>', 'an allowed model; repeatable', collected)
    .option('--all', 'allow all models')
    .action(action(() => import('./allow.ts').then(({ allowAccount }) => allowAccount)));

  const prices = group('prices', 'account-specific rates, instead of the list prices');
  command(prices, 'set', 'set an account’s rates for a model')
    .argument('<model>', 'which model')
    .requiredOption(
      '--input <price>',
      'price of a million prompt tokens: cents, or dollars with a $, for example $0.125',
      pricePerMillion,
    )
    .requiredOption('--output <price>', 'price of a million generated tokens', pricePerMillion)
    .option('--cache-read <price>', 'price of a million cached prompt tokens (default: as --input)', pricePerMillion)
    .option('--account <account-id>', 'account of the rates (default: the only account)')
    .option('--from <time>', 'when they start, in UTC (default: now)', moment)
    .option('--to <time>', 'when they end, in UTC (default: never)', moment)
    .action(
      action(async () => {
        const { setPrice } = await import('./prices.ts');
        return (context, options: Parameters<typeof setPrice>[1], model) => setPrice(context, options, model ?? '');
      }),
    );
  command(prices, 'list', 'list present and future rates')
    .option('--account <account-id>', 'only this account')
    .action(action(() => import('./prices.ts').then(({ listPrices }) => listPrices)));
  command(prices, 'remove', "end an account's rates for a model; the list prices apply again")
    .argument('<model>', 'which model')
    .option('--account <account-id>', 'account of the rates (default: the only account)')
    .action(
      action(async () => {
        const { removePrice } = await import('./prices.ts');
        return (context, options: { readonly account?: string }, model) => removePrice(context, options, model ?? '');
      }),
    );

  const credits = group('credits', 'balances');
  const amount = (
    parent: Command,
    about: string,
    dollars: (text: string) => bigint,
    cents: (text: string) => bigint,
  ): Command =>
    parent
      .addOption(new Option('--dollars <amount>', about).argParser(dollars))
      .addOption(
        new Option('--cents <amount>', 'the amount in cents, instead of dollars').argParser(cents).conflicts('dollars'),
      );
  command(credits, 'show', 'list accounts with their balances').action(
    action(() => import('./credits.ts').then(({ showCredits }) => showCredits)),
  );
  for (const [movement, about] of [
    ['grant', 'add free credit to an account'],
    ['topup', 'record a payment that has arrived'],
    ['payback', 'record a payment that was refunded to its payer'],
    ['chargeback', 'record a payment that the bank has charged back'],
    ['expire', 'let unused promotional credit expire'],
  ] as const) {
    const move = amount(
      command(credits, movement, about),
      'the amount, for example 5.00',
      movedDollars,
      centsToMicrocents,
    )
      .option('--account <account-id>', 'the account (default: the only one)')
      .option('--reason <text>', 'note that is kept with the transfer')
      .option('--idempotency-key <key>', 'idempotency key: the same key twice moves credit only once');
    if (movement === 'grant')
      move.option('--expires <duration>', 'unused credit expires after this time, for example 30d', duration);
    if (movement === 'payback' || movement === 'chargeback')
      move.option('--receipt <number>', 'number or id of the receipt of the payment, which gets a credit note');
    move.action(
      action<MoveOptions>(async () => {
        const { moveCredit } = await import('./credits.ts');
        return (context, options) => moveCredit(context, movement, options);
      }),
    );
  }
  amount(
    command(credits, 'adjust', 'correct a balance, up or down'),
    'the amount, for example 5.00 or -0.25',
    signedDollars,
    signedCentsToMicrocents,
  )
    .requiredOption('--reason <text>', 'note that is kept with the transfer')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--idempotency-key <key>', 'idempotency key: the same key twice moves credit only once')
    .action(action(() => import('./credits.ts').then(({ adjustCredit }) => adjustCredit)));
  amount(
    command(credits, 'refund', 'refund the cost of a request, or a part of it; possible once').argument(
      '<request-id>',
      'id of the request, from usage or x-request-id',
    ),
    'the amount (default: the whole cost)',
    movedDollars,
    centsToMicrocents,
  )
    .option('--account <account-id>', 'account of the request (default: the only one)')
    .option('--reason <text>', 'note that is kept with the transfer')
    .action(
      action<Pick<MoveOptions, 'account' | 'reason' | 'dollars' | 'cents'>>(async () => {
        const { refundRequest } = await import('./credits.ts');
        return (context, options, id) => refundRequest(context, options, id ?? '');
      }),
    );
  amount(
    command(credits, 'limit', 'set how far below zero the balance of an account may go; 0 is prepaid'),
    'the limit, for example 100.00',
    dollarsToMicrocents,
    centsToMicrocentsOrNone,
  )
    .option('--account <account-id>', 'the account (default: the only one)')
    .action(action(() => import('./credits.ts').then(({ limitCredit }) => limitCredit)));
  command(credits, 'history', 'list movements of credit other than charges of requests, newest first')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--limit <number>', 'how many', wholeNumber(1, 1000), 20)
    .action(action(() => import('./credits.ts').then(({ listMovements }) => listMovements)));
  command(credits, 'topups', 'list requested payments, newest first')
    .option('--account <account-id>', 'the account (default: the only one)')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./credits.ts').then(({ listTopups }) => listTopups)));

  const pay = group('pay', 'payments at the built-in payment provider');
  command(pay, 'simulate', 'play a payment at the built-in payment provider')
    .argument('<topup-id>', 'id of the top-up, from credits topups')
    .addOption(new Option('--outcome <what>', 'outcome of the payment').choices(demoOutcomes).default('success'))
    .action(action(() => import('./pay.ts').then(({ simulatePayment }) => simulatePayment)));

  const owner = group('owner', 'the owner of the server');
  command(
    owner,
    'link',
    'print a link that makes its user the owner: works once, for 30 minutes; earlier links end',
  ).action(action(() => import('./owner.ts').then(({ printOwnerLink }) => printOwnerLink)));
  command(owner, 'create', 'create the owner, or set a new password for them; it is shown only once')
    .requiredOption('--email <address>', 'e-mail address to sign in with')
    .option('--name <name>', 'name, as others see it', 'Owner')
    .action(action(() => import('./owner.ts').then(({ createOwner }) => createOwner)));

  const users = group('people', 'people who sign in');
  command(
    users,
    'release',
    'remove the second factors and passkeys of a person who has lost them; they then sign in with their password',
  )
    .argument('<email>', 'their address')
    .action(
      action(async () => {
        const { releasePerson } = await import('./people.ts');
        return (context, _options, email) => releasePerson(context, email ?? '');
      }),
    );

  const invoices = group('invoices', 'monthly statements and credit notes');
  command(invoices, 'list', 'list them, newest first')
    .option('--account <account-id>', 'only this account')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./invoices.ts').then(({ listInvoices }) => listInvoices)));
  command(invoices, 'show', 'show one with all its contents')
    .argument('<number>', 'its number or its id')
    .option('--pdf <file>', 'write it to this file too')
    .action(action(() => import('./invoices.ts').then(({ showInvoice }) => showInvoice)));
  command(invoices, 'issue', 'make the running service close past months now').action(
    action(() => import('./invoices.ts').then(({ issueInvoices }) => issueInvoices)),
  );

  const receipts = group('receipts', 'receipts of payments, and their corrections');
  command(receipts, 'list', 'list them, newest first')
    .option('--account <account-id>', 'only this account')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./invoices.ts').then(({ listReceipts }) => listReceipts)));
  command(receipts, 'show', 'show one with all its contents')
    .argument('<number>', 'its number or its id')
    .option('--pdf <file>', 'write it to this file too')
    .action(action(() => import('./invoices.ts').then(({ showReceiptOfPayment }) => showReceiptOfPayment)));

  const webhooks = group('webhooks', 'webhook endpoints of customers, and their deliveries');
  command(webhooks, 'list', 'list endpoints with their newest deliveries')
    .option('--account <account-id>', 'only this account')
    .option('--limit <number>', 'maximum of endpoints', wholeNumber(1, 100), 20)
    .action(action(() => import('./webhooks.ts').then(({ listWebhooks }) => listWebhooks)));
  command(webhooks, 'test', 'send a ping to an endpoint')
    .argument('<endpoint-id>', 'id from webhooks list')
    .action(action(() => import('./webhooks.ts').then(({ testWebhook }) => testWebhook)));
  command(webhooks, 'replay', 'send a delivery again')
    .argument('<delivery-id>', 'id from webhooks list')
    .action(action(() => import('./webhooks.ts').then(({ replayWebhook }) => replayWebhook)));

  const mail = group('mail', 'the outbox');
  command(mail, 'list', 'list the newest mails and their state')
    .option('--limit <number>', 'maximum of mails', wholeNumber(1, 100), 20)
    .action(action(() => import('./mail.ts').then(({ listMail }) => listMail)));
  command(mail, 'show', 'show a mail that was not sent, with its text')
    .argument('<mail-id>', 'id of the mail, from mail list')
    .action(action(() => import('./mail.ts').then(({ showMail }) => showMail)));

  command(program, 'usage', 'list the newest requests with their cost, and the balance')
    .option('--account <account-id>', 'only this account')
    .option('--tag <tag>', 'only requests with this tag, to a dedicated model')
    .option('--limit <number>', 'maximum of requests', wholeNumber(1, 1000), 20)
    .option('--csv', 'print all requests as CSV, without a limit')
    .action(action(() => import('./usage.ts').then(({ showUsage }) => showUsage)));
  command(program, 'costs', 'sum the usage and cost of requests')
    .addOption(
      new Option('--by <what>', 'group by').choices(['model', 'key', 'account', 'day', 'tag']).default('model'),
    )
    .option('--account <account-id>', 'only this account')
    .option('--days <number>', 'how many days back', wholeNumber(1, 3660), 30)
    .action(action(() => import('./costs.ts').then(({ showCosts }) => showCosts)));

  const models = group('models', 'models and their files');
  command(models, 'list', 'list the models of the configuration').action(
    action(() => import('./models.ts').then(({ listModels }) => listModels)),
  );
  command(models, 'show', 'show a model of the configuration and its defaults')
    .argument('<model>', 'its id')
    .action(action(() => import('./models.ts').then(({ showModel }) => showModel)));
  command(models, 'add', 'pin, fetch and check a model, and write it into the configuration')
    .argument('<source>', 'hf:owner/repository[:QUANT], a URL, or a .gguf file')
    .option('--id <id>', 'its id (default: the name of the file)')
    .action(action(() => import('./model-add.ts').then(({ addModel }) => addModel)));
  command(models, 'remove', 'remove a model from the configuration')
    .argument('<model>', 'its id')
    .action(action(() => import('./model-add.ts').then(({ removeModel }) => removeModel)));
  command(models, 'pull', 'fetch the file of a model')
    .argument('[model]', 'a configured model (default: all), or any source such as hf:owner/repository:Q8_0')
    .option('--sha256 <hex>', 'expected SHA-256 of the file, for a source')
    .action(action(() => import('./models.ts').then(({ pullModel }) => pullModel)));

  const engine = group('engine', 'builds of the embedded engine, for GPUs');
  command(engine, 'list', 'list what is installed, and the GPUs that it sees', true).action(
    action(() => import('./engine.ts').then(({ listEngines }) => listEngines)),
  );
  command(engine, 'install', 'fetch a build for GPUs from the npm registry')
    .addArgument(new Argument('<kind>', 'which one').choices(engineKinds))
    .action(action(() => import('./engine.ts').then(({ installEngine }) => installEngine)));
  command(engine, 'remove', 'remove a build for GPUs')
    .addArgument(new Argument('<kind>', 'which one').choices(engineKinds))
    .action(action(() => import('./engine.ts').then(({ removeEngine }) => removeEngine)));

  const backends = group('backends', 'servers behind the models');
  command(backends, 'add', 'ask a model server what it serves, and write it into the configuration')
    .argument('<url>', 'its address, for example http://10.0.0.5:8000/v1')
    .option('--model <name>', 'the model on that server (default: the only one)')
    .option(
      '--id <id>',
      'id of the model here; one that is there already gets another backend (default: its name there)',
    )
    .option('--name <name>', 'name of the backend in logs and usage')
    .addOption(
      new Option('--flavor <flavor>', 'what kind of server it is (default: what it looks like)').choices(flavorNames),
    )
    .option('--context-length <tokens>', 'its window, where the server does not say it', wholeNumber(1, 1e9))
    .option('--api-key-env <variable>', 'environment variable that holds the key for that server')
    .action(action(() => import('./backend-add.ts').then(({ addBackend }) => addBackend)));

  const ledger = group('ledger', 'the ledger');
  command(ledger, 'verify', 'recompute every balance from its ledger rows; exit 1 on any difference').action(
    action(() => import('./ledger.ts').then(({ verify }) => verify)),
  );

  const audit = group('audit', 'the audit log');
  command(audit, 'list', 'list all changes, newest first')
    .option('--account <account-id>', 'only this account')
    .option('--limit <number>', 'how many', wholeNumber(1, 1000), 50)
    .action(action(() => import('./audit.ts').then(({ listAudit }) => listAudit)));

  const db = group('db', 'the database');
  command(db, 'status', 'show what it contains, and whether a service is using it').action(
    action(() => import('./db.ts').then(({ showDatabase }) => showDatabase)),
  );
  command(db, 'migrate', 'make or update its tables as a start does, and start nothing').action(
    action(() => import('./db.ts').then(({ migrateDatabase }) => migrateDatabase)),
  );
  command(db, 'backup', 'copy it, even while the service is running, and verify the copy')
    .argument('<file>', 'where to; `s3://bucket/folder`: there, named by the time')
    .option('--force', 'overwrite the file')
    .option('--keep <number>', 'remove older backups of the folder in the bucket', wholeNumber(1, 10_000))
    .option('--no-secret', 'do not copy the secret of the keys')
    .action(action(() => import('./db.ts').then(({ backUpDatabase }) => backUpDatabase)));
  command(db, 'restore', 'replace it by a verified backup; the service must be stopped, a PostgreSQL database empty')
    .argument('<file>', 'the backup; `s3://bucket/folder`: the newest one there')
    .option('--force', 'replace an existing database; it is kept under another name')
    .action(action(() => import('./db.ts').then(({ restoreDatabase }) => restoreDatabase)));

  command(db, 'copy', 'copy it into an empty database of the other kind, and compare both; the service must be stopped')
    .requiredOption(
      '--to <address>',
      'postgres://user@host/database, sqlite:FILE, or env:NAME for a variable with either',
    )
    .option('--final', 'stop the running service first; its running requests end')
    .action(action(() => import('./db-copy.ts').then(({ copyDatabaseTo }) => copyDatabaseTo)));

  command(db, 'prune', 'show which details of requests are old, and remove them; their sums stay')
    .option('--keep <days>', 'keep the details of this many days', wholeNumber(1, 36_500))
    .option('--before <date>', 'remove those from before this day, in UTC')
    .option('--yes', 'do it; else it is only shown')
    .action(action(() => import('./db-prune.ts').then(({ pruneDatabase }) => pruneDatabase)));

  const explainCode = bare(() => import('./explain.ts').then(({ explainCode }) => explainCode));
  const explainRequest = action(() => import('./receipt.ts').then(({ showReceipt }) => showReceipt));
  command(program, 'explain', 'explain an error code and its remedy, or the cost of a request')
    .argument(
      '[code]',
      'value of error.code; or the id of a request: req_…, client_…, or its ledger id (default: list all codes)',
    )
    .option('--account <account-id>', 'account of the request (default: the only one)')
    .action((...given: unknown[]) => (isRequestId(given[0]) ? explainRequest : explainCode)(...given));

  program
    .command('completion')
    .description('print the shell completion of commands, options, models and keys')
    .exitOverride()
    .addHelpText(
      'after',
      `
bash:  eval "$(tokenhouse completion bash)"                    in ~/.bashrc
zsh:   eval "$(tokenhouse completion zsh)"                     in ~/.zshrc, after compinit
fish:  tokenhouse completion fish > ~/.config/fish/completions/tokenhouse.fish`,
    )
    .addArgument(new Argument('<shell>', 'which one').choices(['bash', 'zsh', 'fish'] satisfies readonly Shell[]))
    .action(
      bare(async () => {
        const { completionScripts } = await import('./completion.ts');
        return async ({ print }, _options, shell) => {
          print.result(undefined, [completionScripts[shell as Shell]]);
          return 0;
        };
      }),
    );

  return program;
}

const isRequestId = (word: unknown): boolean =>
  typeof word === 'string' && /^(req_|client_|[0-9a-f]{8}-[0-9a-f]{4}-)/i.test(word);

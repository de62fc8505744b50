import { Argument, Command, CommanderError, Option } from 'commander';

import type { Role } from '../accounts/role.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { TaxStatus } from '../tax/tax.ts';
import type { BudgetOptions } from './budgets.ts';
import type { BareContext, Context } from './context.ts';
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

interface KeyLimitOptions {
  readonly concurrency?: number | 'none';
  readonly requestsPerMinute?: number | 'none';
  readonly tokensPerMinute?: number | 'none';
  readonly endpoint?: readonly string[];
  readonly ip?: readonly string[];
  readonly zdrOnly?: boolean;
  readonly plan?: boolean;
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
/** The periods of a budget. */
const budgetPeriods: readonly BudgetPeriod[] = ['day', 'week', 'month', 'total'];

const periodOption = (flags: string): Option =>
  new Option(flags, 'of how long; weeks begin on Monday, all at midnight UTC').choices(budgetPeriods).default('month');

const exitCodeHelp = `
Exit codes: 0 done; 1 refused, or something was found wrong; 64 wrong usage; 69 something that is needed is not
available; 70 a fault in the service itself; 78 the configuration is wrong; 130 interrupted.
Results go to standard output, talk to standard error.`;

/**
 * `tokenhouse …`: reads the arguments, runs one command, resolves with its exit code. Each command is imported when it
 * runs, so that help and completion do not wait for a database. `inside`: of a program that runs commands inside itself.
 */
export async function runCommandLine(args: readonly string[], inside?: Surroundings): Promise<number> {
  const around = inside ?? surroundingsOfProcess();
  if (inside === undefined) outliveReaders();
  let exitCode = 0;
  const program = commandProgram((code) => (exitCode = code), around);
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

  /** A command with the common options; its action returns an exit code. */
  const command = (parent: Command, name: string, description: string): Command =>
    parent
      .command(name)
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
  /** For commands that work on the configuration that a service here would have. */
  const action = <Options>(load: () => Promise<Run<Options>>) =>
    bare<Options>(async () => {
      const [run, { readContext }] = await Promise.all([load(), import('./read-context.ts')]);
      return async ({ configPath, print }, options, ...words) => {
        const { config, environment } = readContext(configPath, around.directory);
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
    .option('--port <number>', 'port of the inference host, instead of the configured one', wholeNumber(0, 65_535))
    .option(
      '--account-port <number>',
      'port of the account host, instead of the configured one',
      wholeNumber(0, 65_535),
    )
    .action(enoughFilesFor(action(() => import('./serve.ts').then(({ serveCommand }) => serveCommand))));

  command(program, 'reload', 'have the running service take over the changed configuration').action(
    action(() => import('./reload.ts').then(({ reloadService }) => reloadService)),
  );

  command(program, 'init', 'write a commented tokenhouse.yaml that says the defaults, and its schema for editors')
    .argument('[file]', 'where to (default: ./tokenhouse.yaml)')
    .option('--force', 'overwrite what is there')
    .action(bare(() => import('./init.ts').then(({ writeConfiguration }) => writeConfiguration)));

  const config = group('config', 'the configuration');
  command(config, 'check', 'say everything that is wrong with a configuration, as the start of the service would')
    .argument('[file]', 'which one (default: ./tokenhouse.yaml)')
    .action(bare(() => import('./config.ts').then(({ checkConfiguration }) => checkConfiguration)));
  command(config, 'show', 'list the settings in force, and where each comes from; secrets are masked').action(
    bare(() => import('./config.ts').then(({ showConfiguration }) => showConfiguration)),
  );
  command(config, 'schema', 'print the JSON Schema of tokenhouse.yaml').action(
    bare(() => import('./config.ts').then(({ printSchema }) => printSchema)),
  );

  command(program, 'chat', 'talk to a model of the running service')
    .argument('[model]', 'id of the model (default: the first one of the service)')
    .argument('[prompt...]', 'what to ask (default: from standard input, or a conversation)')
    .option('--url <url>', 'the service (default: TOKENHOUSE_URL, else the one that runs here)', serviceUrl)
    .option(
      '--key <key>',
      'API key; others can see it in the list of processes, so rather set TOKENHOUSE_KEY (default: a key of the first account for the while, where the service runs)',
    )
    .option('--max-tokens <number>', 'longest answer', wholeNumber(1, 100_000_000))
    .option(
      '--temperature <number>',
      'from 0, the likeliest words, to 2 (default: that of the model)',
      decimalNumber(0, 2),
    )
    .option('--system <text>', 'a system message')
    .action(bare(() => import('./chat.ts').then(({ chat }) => chat)));

  command(program, 'doctor', 'look at everything a service here needs, and say what repairs what is wrong').action(
    bare(() => import('./doctor/doctor.ts').then(({ doctor }) => doctor)),
  );

  const keys = group('keys', 'API keys');
  command(keys, 'create', 'make a key; it is shown once')
    .option('--account <account-id>', 'whose key (default: the only account)')
    .option('--name <name>', 'what it is for', 'unnamed')
    .option('--user <name>', 'whose it is; only the keys of a user can upload files')
    .option('--expires <duration>', 'for example 12h or 30d', duration)
    .option('--model <model>', 'a model that it may use; several times for several (default: all)', collected)
    .option(
      '--endpoint <path>',
      'a path that it may use, such as /v1/messages; several times for several (default: all)',
      collected,
    )
    .option(
      '--ip <range>',
      'an address or range that it may be used from; several times for several (default: all)',
      collected,
    )
    .option('--zdr-only', 'only for requests with Service-ZDR: required')
    .option('--tag <tag>', 'a label of all of its requests; several times for several', collected)
    .addOption(new Option('--role <role>', 'a management key, which may do what this role may').choices(keyRoles))
    .option('--operator', 'a management key that also does what whoever runs the server may')
    .option('--plan', "paid by the account's plan, and counted against the requests it includes")
    .option('--concurrency <number>', 'requests that may run at the same time', wholeNumber(1, 1e6))
    .option('--requests-per-minute <number>', 'requests in a minute', wholeNumber(1, 1e9))
    .option('--tokens-per-minute <number>', 'tokens of prompts and answers in a minute', wholeNumber(1, 1e12))
    .option(
      '--budget <dollars>',
      'what it may spend in a period, for example 10.00 (default: any)',
      dollarsToMicrocents,
    )
    .addOption(periodOption('--budget-per <period>'))
    .action(action(() => import('./keys.ts').then(({ createKey }) => createKey)));
  command(keys, 'list', 'list keys')
    .option('--account <account-id>', 'of one account')
    .action(action(() => import('./keys.ts').then(({ listKeys }) => listKeys)));
  command(keys, 'revoke', 'revoke a key at once; what runs on it is cut')
    .argument('<key-id>', 'as keys list shows it')
    .action(
      action(async () => {
        const { revokeKey } = await import('./keys.ts');
        return (context, _options, id) => revokeKey(context, id ?? '');
      }),
    );

  command(keys, 'rotate', 'give a key another secret; it is shown once, and the key keeps its id')
    .argument('<key-id>', 'as keys list shows it')
    .option('--overlap <duration>', 'so long the earlier secret works on, at most 7d (default: not at all)', duration)
    .action(
      action<{ readonly overlap?: number }>(async () => {
        const { rotateKey } = await import('./keys.ts');
        return (context, options, id) => rotateKey(context, options, id ?? '');
      }),
    );
  for (const [name, isPaused, about] of [
    ['pause', true, 'refuse a key until it is resumed; what runs on it is cut'],
    ['resume', false, 'take a paused key again'],
  ] as const) {
    command(keys, name, about)
      .argument('<key-id>', 'as keys list shows it')
      .action(
        action(async () => {
          const { pauseKey } = await import('./keys.ts');
          return (context, _options, id) => pauseKey(context, isPaused, id ?? '');
        }),
      );
  }

  command(keys, 'allow', 'say which models a key may use, of those that its account may')
    .argument('<key-id>', 'as keys list shows it')
    .option('--model <model>', 'one of them; several times for several', collected)
    .option('--all', 'all of them')
    .action(
      action<{ readonly model?: readonly string[]; readonly all?: boolean }>(async () => {
        const { allowKey } = await import('./allow.ts');
        return (context, options, id) => allowKey(context, options, id ?? '');
      }),
    );

  command(keys, 'limit', 'change what a key is kept to, beside its account; none takes a limit away')
    .argument('<key-id>', 'as keys list shows it')
    .option('--concurrency <number>', 'requests that may run at the same time', wholeNumberOrNone(1, 1e6))
    .option('--requests-per-minute <number>', 'requests in a minute', wholeNumberOrNone(1, 1e9))
    .option('--tokens-per-minute <number>', 'tokens of prompts and answers in a minute', wholeNumberOrNone(1, 1e12))
    .option(
      '--endpoint <path>',
      'a path that it may use, in place of those before; several times for several, none for all',
      collected,
    )
    .option(
      '--ip <range>',
      'where it may be used from, in place of those before; several times for several, none for everywhere',
      collected,
    )
    .option('--zdr-only', 'only for requests with Service-ZDR: required')
    .option('--no-zdr-only', 'for all requests')
    .option('--plan', "paid by the account's plan")
    .option('--no-plan', 'paid from credit')
    .action(
      action<KeyLimitOptions>(async () => {
        const { limitKey } = await import('./keys.ts');
        return (context, options, id) => limitKey(context, options, id ?? '');
      }),
    );
  command(keys, 'edit', 'name a key anew, move its end, or change its tags')
    .argument('<key-id>', 'as keys list shows it')
    .option('--name <name>', 'what it is for')
    .option('--expires <duration>', 'from now on, for example 12h or 30d, or never', durationOrNever)
    .option('--tag <tag>', 'in place of those before; several times for several, none for none', collected)
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
      .argument(`<${of}-id>`, `as ${of}s list shows it`)
      .argument('[dollars]', 'how much, for example 10.00', dollarsToMicrocents)
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
  budget(keys, 'key', 'say what a key may spend in a period');

  const accounts = group('accounts', 'accounts');
  command(accounts, 'list', 'list accounts with their plans and limits').action(
    action(() => import('./accounts.ts').then(({ listAccounts }) => listAccounts)),
  );
  command(
    accounts,
    'create',
    'make an account, with its owner, credit and key where they are wished: all of it or nothing',
  )
    .argument('[name]', 'whose it is')
    .option('--name <name>', 'the same')
    .option('--owner <address>', 'invite somebody to own it; the link is printed, and mailed where mail is configured')
    .option('--credit <dollars>', 'credit, as a present, for example 20.00', movedDollars)
    .option('--key [name]', 'make a key; it is shown once')
    .action(action(() => import('./accounts.ts').then(({ createAccount }) => createAccount)));
  for (const [name, kind, about] of [
    ['suspend', 'suspend_account', 'refuse all keys of an account at once; what runs on them is cut'],
    ['revive', 'revive_account', 'take the keys of a suspended account again'],
  ] as const) {
    command(accounts, name, about)
      .argument('<account-id>', 'as accounts list shows it')
      .option('--reason <text>', 'for the audit log')
      .action(
        action<{ readonly reason?: string }>(async () => {
          const { setAccountStatus } = await import('./accounts.ts');
          return (context, options, id) => setAccountStatus(context, kind, id ?? '', options.reason);
        }),
      );
  }
  command(accounts, 'export', 'print everything that the service has of an account, as JSON')
    .argument('<account-id>', 'as accounts list shows it')
    .action(
      action(async () => {
        const { exportAccountData } = await import('./accounts.ts');
        return (context, _options, id) => exportAccountData(context, id ?? '');
      }),
    );
  command(accounts, 'delete', 'delete an account for good: its keys, people, files and names; the ledger stays')
    .argument('<account-id>', 'as accounts list shows it')
    .option('--forfeit-credit', 'what is left of its credit expires')
    .action(
      action<{ readonly forfeitCredit?: boolean }>(async () => {
        const { deleteAccount } = await import('./accounts.ts');
        return (context, options, id) => deleteAccount(context, options, id ?? '');
      }),
    );
  command(accounts, 'plan', 'give an account a plan of the configuration')
    .argument('[plan]', 'which plan')
    .option('--account <account-id>', 'whose (default: the only account)')
    .option('--none', 'no plan')
    .action(
      action<{ readonly account?: string; readonly none?: boolean }>(async () => {
        const { planAccount } = await import('./accounts.ts');
        return (context, options, plan) => planAccount(context, options, plan);
      }),
    );
  command(accounts, 'limit', 'say how many requests of an account may run at the same time')
    .option('--account <account-id>', 'whose (default: the only account)')
    .requiredOption(
      '--concurrency <number>',
      'how many; none: as many as its plan or the configuration says',
      wholeNumberOrNone(1, 1e6),
    )
    .action(action(() => import('./accounts.ts').then(({ limitAccount }) => limitAccount)));
  command(accounts, 'billing', 'show to whom documents of an account are made out and how it is taxed, or change it')
    .option('--account <account-id>', 'which (default: the only account)')
    .option('--name <name>', 'legal name; none: that of the account')
    .option('--address-line <line>', 'a line of the address; several times for several; none: no address', collected)
    .option('--country <code>', 'ISO 3166-1, for example DE; its rate of tax holds; none: not known')
    .option('--tax-id <id>', 'number by which the tax office knows the customer; none: not known')
    .addOption(
      new Option('--tax-status <status>', 'how it is taxed: exempt with a proof that you have seen').choices(
        taxStatuses,
      ),
    )
    .option('--email <address>', 'where invoices and receipts are sent; none: nowhere')
    .action(action(() => import('./billing.ts').then(({ setBilling }) => setBilling)));
  budget(accounts, 'account', 'say what an account may spend in a period with all of its keys');
  command(accounts, 'allow', 'say which models the keys of an account may use')
    .option('--account <account-id>', 'which (default: the only account)')
    .option('--model <model>', 'one of them; several times for several', collected)
    .option('--all', 'all of them')
    .action(action(() => import('./allow.ts').then(({ allowAccount }) => allowAccount)));

  const prices = group('prices', 'what accounts pay instead of the list prices');
  command(prices, 'set', 'give an account rates of its own for a model')
    .argument('<model>', 'which model')
    .requiredOption(
      '--input <price>',
      'for a million prompt tokens: cents, or dollars with a $, for example $0.125',
      pricePerMillion,
    )
    .requiredOption('--output <price>', 'for a million generated tokens', pricePerMillion)
    .option('--cache-read <price>', 'for a million cached prompt tokens (default: as --input)', pricePerMillion)
    .option('--account <account-id>', 'whose rates (default: the only account)')
    .option('--from <time>', 'when they begin, in UTC (default: now)', moment)
    .option('--to <time>', 'when they end, in UTC (default: never)', moment)
    .action(
      action(async () => {
        const { setPrice } = await import('./prices.ts');
        return (context, options: Parameters<typeof setPrice>[1], model) => setPrice(context, options, model ?? '');
      }),
    );
  command(prices, 'list', 'list rates that hold now or will')
    .option('--account <account-id>', 'of one account')
    .action(action(() => import('./prices.ts').then(({ listPrices }) => listPrices)));
  command(prices, 'remove', "end an account's rates for a model; the list prices hold again")
    .argument('<model>', 'which model')
    .option('--account <account-id>', 'whose rates (default: the only account)')
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
      .addOption(new Option('--cents <amount>', 'the same in cents, instead').argParser(cents).conflicts('dollars'));
  command(credits, 'show', 'list accounts with their balances').action(
    action(() => import('./credits.ts').then(({ showCredits }) => showCredits)),
  );
  for (const [movement, about] of [
    ['grant', 'add credit to an account, as a present'],
    ['topup', 'record a payment that has arrived'],
    ['payback', 'record a payment that was returned to its payer'],
    ['chargeback', 'record a payment that the bank has taken back'],
    ['expire', 'end promotional credit that was not used'],
  ] as const) {
    const move = amount(
      command(credits, movement, about),
      'how much, for example 5.00',
      movedDollars,
      centsToMicrocents,
    )
      .option('--account <account-id>', 'whose (default: the only account)')
      .option('--reason <text>', 'kept with the transfer')
      .option('--idempotency-key <key>', 'the same key twice does it once');
    if (movement === 'grant')
      move.option('--expires <duration>', 'what is not used until then is taken back, for example 30d', duration);
    move.action(
      action<MoveOptions>(async () => {
        const { moveCredit } = await import('./credits.ts');
        return (context, options) => moveCredit(context, movement, options);
      }),
    );
  }
  amount(
    command(credits, 'adjust', 'correct a balance, up or down'),
    'how much, for example 5.00 or -0.25',
    signedDollars,
    signedCentsToMicrocents,
  )
    .requiredOption('--reason <text>', 'kept with the transfer')
    .option('--account <account-id>', 'whose (default: the only account)')
    .option('--idempotency-key <key>', 'the same key twice does it once')
    .action(action(() => import('./credits.ts').then(({ adjustCredit }) => adjustCredit)));
  amount(
    command(credits, 'refund', 'give back what a request has cost, or a part of it; once').argument(
      '<request-id>',
      'as usage lists it, or x-request-id said it',
    ),
    'how much of it (default: all)',
    movedDollars,
    centsToMicrocents,
  )
    .option('--account <account-id>', 'whose request (default: of the only account)')
    .option('--reason <text>', 'kept with the transfer')
    .action(
      action<Pick<MoveOptions, 'account' | 'reason' | 'dollars' | 'cents'>>(async () => {
        const { refundRequest } = await import('./credits.ts');
        return (context, options, id) => refundRequest(context, options, id ?? '');
      }),
    );
  amount(
    command(credits, 'limit', 'say how far below zero an account may go; 0 is prepaid'),
    'how far, for example 100.00',
    dollarsToMicrocents,
    centsToMicrocentsOrNone,
  )
    .option('--account <account-id>', 'whose (default: the only account)')
    .action(action(() => import('./credits.ts').then(({ limitCredit }) => limitCredit)));
  command(credits, 'history', 'list what moved besides the charges of requests, the newest first')
    .option('--account <account-id>', 'whose (default: of the only account)')
    .option('--limit <number>', 'how many', wholeNumber(1, 1000), 20)
    .action(action(() => import('./credits.ts').then(({ listMovements }) => listMovements)));
  command(credits, 'topups', 'list payments that were asked for, the newest first')
    .option('--account <account-id>', 'whose (default: of the only account)')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./credits.ts').then(({ listTopups }) => listTopups)));

  const pay = group('pay', 'payments at the built-in provider');
  command(pay, 'simulate', 'play a payment at the built-in provider')
    .argument('<topup-id>', 'as credits topups lists it')
    .addOption(
      new Option('--outcome <what>', 'what happens to it')
        .choices([
          'success',
          'duplicate',
          'delay',
          'failure',
          'expire',
          'refund',
          'refund_failure',
          'dispute',
          'win',
          'lose',
        ])
        .default('success'),
    )
    .action(action(() => import('./pay.ts').then(({ simulatePayment }) => simulatePayment)));

  const owner = group('owner', 'who runs the server');
  command(
    owner,
    'link',
    'print a link that makes the owner: one use, 30 minutes; an earlier one no longer works',
  ).action(action(() => import('./owner.ts').then(({ printOwnerLink }) => printOwnerLink)));
  command(owner, 'create', 'make the owner, or give them a new password; it is shown once')
    .requiredOption('--email <address>', 'whom to sign in as')
    .option('--name <name>', 'as others read it', 'Owner')
    .action(action(() => import('./owner.ts').then(({ createOwner }) => createOwner)));

  const users = group('people', 'whoever signs in');
  command(
    users,
    'release',
    'remove the codes and passkeys of a person who has lost them; they sign in with their password',
  )
    .argument('<email>', 'their address')
    .action(
      action(async () => {
        const { releasePerson } = await import('./people.ts');
        return (context, _options, email) => releasePerson(context, email ?? '');
      }),
    );

  const invoices = group('invoices', 'monthly statements and credit notes');
  command(invoices, 'list', 'list what was issued, the newest first')
    .option('--account <account-id>', 'only of this account')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./invoices.ts').then(({ listInvoices }) => listInvoices)));
  command(invoices, 'show', 'show one with all that it says')
    .argument('<number>', 'its number or its id')
    .option('--pdf <file>', 'write it to this file too')
    .action(action(() => import('./invoices.ts').then(({ showInvoice }) => showInvoice)));
  command(invoices, 'issue', 'have the running service close the months that are over, now').action(
    action(() => import('./invoices.ts').then(({ issueInvoices }) => issueInvoices)),
  );

  const receipts = group('receipts', 'receipts of payments, and what corrects them');
  command(receipts, 'list', 'list what was issued, the newest first')
    .option('--account <account-id>', 'only of this account')
    .option('--limit <number>', 'how many', wholeNumber(1, 100), 20)
    .action(action(() => import('./invoices.ts').then(({ listReceipts }) => listReceipts)));
  command(receipts, 'show', 'show one with all that it says')
    .argument('<number>', 'its number or its id')
    .option('--pdf <file>', 'write it to this file too')
    .action(action(() => import('./invoices.ts').then(({ showReceiptOfPayment }) => showReceiptOfPayment)));

  const webhooks = group('webhooks', 'endpoints of customers, and what is sent there');
  command(webhooks, 'list', 'list endpoints with their newest deliveries')
    .option('--account <account-id>', 'only of this account')
    .option('--limit <number>', 'how many endpoints', wholeNumber(1, 100), 20)
    .action(action(() => import('./webhooks.ts').then(({ listWebhooks }) => listWebhooks)));
  command(webhooks, 'test', 'send a ping to an endpoint')
    .argument('<endpoint-id>', 'as webhooks list shows it')
    .action(action(() => import('./webhooks.ts').then(({ testWebhook }) => testWebhook)));
  command(webhooks, 'replay', 'send a delivery again')
    .argument('<delivery-id>', 'as webhooks list shows it')
    .action(action(() => import('./webhooks.ts').then(({ replayWebhook }) => replayWebhook)));

  const mail = group('mail', 'the outbox');
  command(mail, 'list', 'list the newest mails, and whether they were sent')
    .option('--limit <number>', 'how many mails', wholeNumber(1, 100), 20)
    .action(action(() => import('./mail.ts').then(({ listMail }) => listMail)));
  command(mail, 'show', 'show a mail that was not sent, with its text')
    .argument('<mail-id>', 'as mail list shows it')
    .action(action(() => import('./mail.ts').then(({ showMail }) => showMail)));

  command(program, 'usage', 'list the newest requests with their cost, and the balance')
    .option('--account <account-id>', 'of one account')
    .option('--tag <tag>', 'of requests with this label, to a model that is dedicated')
    .option('--limit <number>', 'how many requests', wholeNumber(1, 1000), 20)
    .option('--csv', 'print CSV, all requests without a limit')
    .action(action(() => import('./usage.ts').then(({ showUsage }) => showUsage)));
  command(program, 'costs', 'add up what requests took and cost')
    .addOption(
      new Option('--by <what>', 'a line for each').choices(['model', 'key', 'account', 'day', 'tag']).default('model'),
    )
    .option('--account <account-id>', 'of one account')
    .option('--days <number>', 'of so many days until now', wholeNumber(1, 3660), 30)
    .action(action(() => import('./costs.ts').then(({ showCosts }) => showCosts)));

  const models = group('models', 'models and their files');
  command(models, 'list', 'list the models of the configuration').action(
    action(() => import('./models.ts').then(({ listModels }) => listModels)),
  );
  command(models, 'pull', 'fetch the file of a model')
    .argument('[model]', 'a configured one (default: all), or any source such as hf:owner/repository:Q8_0')
    .option('--sha256 <hex>', 'what the file must have, for a source')
    .action(action(() => import('./models.ts').then(({ pullModel }) => pullModel)));

  const ledger = group('ledger', 'the ledger');
  command(ledger, 'verify', 'derive every balance again from its rows; exit 1 on any difference').action(
    action(() => import('./ledger.ts').then(({ verify }) => verify)),
  );

  const audit = group('audit', 'who changed what');
  command(audit, 'list', 'list changes, newest first, whoever made them')
    .option('--account <account-id>', 'of one account')
    .option('--limit <number>', 'how many', wholeNumber(1, 1000), 50)
    .action(action(() => import('./audit.ts').then(({ listAudit }) => listAudit)));

  const db = group('db', 'the database');
  command(db, 'status', 'what is in it, and whether a service runs on it').action(
    action(() => import('./db.ts').then(({ showDatabase }) => showDatabase)),
  );
  command(db, 'backup', 'copy it, also while the service runs, and verify the copy')
    .argument('<file>', 'where to')
    .option('--force', 'overwrite the file')
    .option('--no-secret', 'do not copy the secret of the keys beside it')
    .action(action(() => import('./db.ts').then(({ backUpDatabase }) => backUpDatabase)));
  command(db, 'restore', 'put a verified backup in its place; the service must not run')
    .argument('<file>', 'the backup')
    .option('--force', 'replace the database that is there; it is kept under another name')
    .action(action(() => import('./db.ts').then(({ restoreDatabase }) => restoreDatabase)));

  const explainCode = bare(() => import('./explain.ts').then(({ explainCode }) => explainCode));
  const explainRequest = action(() => import('./receipt.ts').then(({ showReceipt }) => showReceipt));
  command(program, 'explain', 'tell what an error code means and what to do about it, or what a request cost and why')
    .argument(
      '[code]',
      'as error.code has it; or the id of a request: req_…, client_…, or that of the ledger (default: list all codes)',
    )
    .option('--account <account-id>', 'whose request (default: of the only account)')
    .action((...given: unknown[]) => (isRequestId(given[0]) ? explainRequest : explainCode)(...given));

  program
    .command('completion')
    .description('print what makes a shell complete commands, options, models and keys')
    .exitOverride()
    .addHelpText(
      'after',
      `
bash:  eval "$(tokenhouse completion bash)"                    in ~/.bashrc
zsh:   eval "$(tokenhouse completion zsh)"                     in ~/.zshrc, after compinit
fish:  tokenhouse completion fish > ~/.config/fish/completions/tokenhouse.fish`,
    )
    .addArgument(new Argument('<shell>', 'which one').choices(['bash', 'zsh', 'fish']))
    .action(
      bare(async () => {
        const { completionScript } = await import('./completion.ts');
        return async ({ print }, _options, shell) => {
          print.result(undefined, [completionScript(program, shell as 'bash' | 'zsh' | 'fish')]);
          return 0;
        };
      }),
    );
  // For the scripts above.
  program
    .command('complete-values', { hidden: true })
    .option('-c, --config <file>')
    .argument('<kind>')
    .exitOverride()
    .action(bare(() => import('./completion-values.ts').then(({ printValues }) => printValues)));

  return program;
}

const isRequestId = (word: unknown): boolean =>
  typeof word === 'string' && /^(req_|client_|[0-9a-f]{8}-[0-9a-f]{4}-)/i.test(word);

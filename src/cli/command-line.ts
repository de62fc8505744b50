import { Argument, Command, CommanderError, Option } from 'commander';

import type { Override } from '../config/overrides.ts';
import { flavorNames } from '../generation/flavor-names.ts';
import type { InstallableKind } from '../inference/engine-builds/builds.ts';
import type { Shell } from './completion.ts';
import type { BareContext, Context } from './context.ts';
import { periodOption } from './budgets.ts';
import type { CommandRow } from './command-row.ts';
import { accountCommands } from './nouns/accounts.ts';
import { batchCommands } from './nouns/batches.ts';
import { creditCommands, payCommands } from './nouns/credits.ts';
import { keyCommands } from './nouns/keys.ts';
import { invoiceCommands, receiptCommands } from './nouns/papers.ts';
import { ownerCommands, peopleCommands } from './nouns/people.ts';
import { priceCommands } from './nouns/prices.ts';
import { auditCommands, mailCommands, usageCommands, webhookCommands } from './nouns/records.ts';
import { trafficCommands } from './nouns/traffic.ts';
import type { ClientName } from './launch/clients.ts';
import type { LaunchOptions } from './launch/launch.ts';
import { collected, decimalNumber, dollarsToMicrocents, pricesOption, serviceUrl, wholeNumber } from './option.ts';
import { outliveReaders, printer } from './output.ts';
import type { AdapterName } from '../prove/adapters.ts';
import { checkNames } from '../prove/check-names.ts';
import { surroundingsOfProcess } from './surroundings.ts';
import type { Surroundings } from './surroundings.ts';
import { version } from './version.ts';

interface CommonOptions {
  readonly config?: string;
  readonly json?: boolean;
}

type Run<Options> = (context: Context, options: Options, ...words: (string | undefined)[]) => Promise<number>;
type BareRun<Options> = (context: BareContext, options: Options, ...words: (string | undefined)[]) => Promise<number>;

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
const gatewayNames: readonly AdapterName[] = ['tokenhouse', 'litellm', 'new-api', 'bifrost', 'none'];
const engineKinds: readonly InstallableKind[] = ['cuda', 'vulkan'];

const priceOption = (): Option =>
  new Option('--price <input/output>', 'dollars per million input and output tokens, for example 0.10/0.40').argParser(
    pricesOption,
  );
const freeOption = (): Option => new Option('--free', 'price 0, for every account').conflicts('price');

const exitCodeHelp = `
Exit codes: 0 success; 1 refused, or problems were found; 64 wrong usage; 69 something that is needed is not
available; 70 internal error; 78 invalid configuration; 130 interrupted.
Results go to standard output, messages to standard error.`;

/**
 * `tokenhouse …`: reads the arguments, runs one command, resolves with its exit code. Each command is imported when it runs, so
 * that help and completion do not wait for a database. `inside`: the surroundings of a program that runs commands in its own
 * process.
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

/** Prints candidates for the shells' completion scripts. */
async function complete(program: Command, words: readonly string[], around: Surroundings): Promise<number> {
  const { candidatesFor } = await import('./completion.ts');
  for (const [word, about] of await candidatesFor(program, words, around.directory))
    around.stdout.write(about === '' ? `${word}\n` : `${word}\t${about}\n`);
  return 0;
}

/**
 * The commands, with everything that help, completion and documentation are printed from. For completion, the name of a value
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

  /** A command with the common options; its action returns an exit code. `isDefault`: it runs when its group is given alone. */
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
  /** Runs a command on the configuration that a service here would have, which options may change. */
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

  const rows = (parent: Command, commands: readonly CommandRow[]): void => {
    for (const { name, about, takes, run } of commands) {
      const declared = command(parent, name, about).action(action(() => Promise.resolve(run as Run<object>)));
      for (const each of takes) {
        if (each instanceof Argument) declared.addArgument(each);
        else declared.addOption(each);
      }
    }
  };

  /** For commands that load enough files to fail with a stack trace under a low limit of open files. */
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
          // Commander has parsed them as declared above.
          launch(context, options, client as ClientName, words as unknown as readonly string[]);
      }),
    );

  rows(group('keys', 'API keys'), keyCommands);

  rows(group('accounts', 'accounts'), accountCommands);

  rows(group('prices', 'account-specific rates, instead of the list prices'), priceCommands);
  rows(group('credits', 'balances'), creditCommands);
  rows(group('pay', 'payments at the built-in payment provider'), payCommands);
  rows(group('owner', 'the owner of the server'), ownerCommands);
  rows(group('people', 'people who sign in'), peopleCommands);
  rows(group('batches', 'files of requests that run while nobody waits, asked with a key'), batchCommands);
  rows(group('invoices', 'monthly statements and credit notes'), invoiceCommands);
  rows(group('receipts', 'receipts of payments, and their corrections'), receiptCommands);
  rows(group('webhooks', 'webhook endpoints of customers, and their deliveries'), webhookCommands);
  rows(group('mail', 'the outbox'), mailCommands);
  rows(program, usageCommands);

  const models = group('models', 'models and their files');
  command(models, 'list', 'list the models of the configuration').action(
    action(() => import('./models.ts').then(({ listModels }) => listModels)),
  );
  command(models, 'show', 'show a model of the configuration and its defaults')
    .argument('<model>', 'its id')
    .action(action(() => import('./models.ts').then(({ showModel }) => showModel)));
  command(models, 'add', 'pin, fetch and check a model, and write it into the configuration')
    .argument(
      '<source>',
      'hf:owner/repository[:QUANT], a URL, a .gguf file, or a folder with a model for vLLM or SGLang',
    )
    .option('--id <id>', 'its id (default: the name of the file)')
    .option(
      '--adapter-of <model>',
      'the file is an adapter (LoRA) of this embedded model; its price is that of the model',
    )
    .addOption(priceOption())
    .addOption(freeOption())
    .action(action(() => import('./model-add.ts').then(({ addModel }) => addModel)));
  command(models, 'sell', 'set the list price of a model, and open it to every account')
    .argument('<model>', 'its id')
    .addOption(priceOption())
    .addOption(freeOption())
    .action(action(() => import('./terms.ts').then(({ sellModel }) => sellModel)));
  command(models, 'set', 'change settings of a model in the configuration, as on its page in the console')
    .argument('<model>', 'its id')
    .argument('<settings...>', 'name=value as in the file, such as deprecation_date=2027-06-30; name= removes one')
    .action(
      action<{ readonly config?: string }>(async () => {
        const { setModel } = await import('./model-settings.ts');
        return (context, options, model, settings) =>
          setModel(context, options, model, settings as unknown as readonly string[]);
      }),
    );
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
    .addOption(priceOption())
    .addOption(freeOption())
    .action(action(() => import('./backend-add.ts').then(({ addBackend }) => addBackend)));

  for (const [verb, words] of [
    ['disable', 'give a backend no more requests, as during maintenance'],
    ['enable', 'give it requests again'],
  ] as const)
    command(backends, verb, words)
      .argument('<model>', 'id of the model')
      .argument('<backend>', 'its name, as in `models list`')
      .action(
        action(() => import('./model-settings.ts').then(({ switchBackend }) => switchBackend(verb === 'disable'))),
      );

  rows(group('traffic', 'recordings of the traffic for simulations'), trafficCommands);

  const ledger = group('ledger', 'the ledger');
  command(ledger, 'verify', 'recompute every balance from its ledger rows; exit 1 on any difference').action(
    action(() => import('./ledger.ts').then(({ verify }) => verify)),
  );

  rows(group('audit', 'the audit log'), auditCommands);

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

  command(
    program,
    'prove',
    'check whether a gateway, this service or another one, charges what is true whatever breaks',
  )
    .argument('<url>', 'its address, for example http://localhost:8080', serviceUrl)
    .addOption(new Option('--gateway <name>', 'which one it is').choices(gatewayNames).default('tokenhouse'))
    .addOption(priceOption().makeOptionMandatory())
    .option('--model <name>', 'a model of the gateway whose only upstream is the one that this command starts', 'prove')
    .option('--key <key>', 'a key that pays; rather set PROVE_KEY')
    .option('--second-key <key>', 'another one, whose limits are changed; rather set PROVE_SECOND_KEY')
    .option('--admin-url <url>', 'where its administration answers (default: the same address)', serviceUrl)
    .option('--admin-key <key>', 'a key for its administration; rather set PROVE_ADMIN_KEY')
    .option('--upstream-host <address>', 'address of the upstream', '127.0.0.1')
    .option('--upstream-port <number>', 'port of the upstream', wholeNumber(1, 65_535), 9100)
    .option('--only <check>', `only this check, may be repeated: ${checkNames.join(', ')}`, collected)
    .option('--rate <number>', 'the limit of requests a minute that is tried', wholeNumber(1, 1000), 10)
    .addOption(
      new Option('--budget <dollars>', 'the budget that is tried')
        .argParser(dollarsToMicrocents)
        .default(1_000_000n, '0.01'),
    )
    .option('--settle-seconds <number>', 'how long a charge may take to be seen', wholeNumber(1, 600))
    .option(
      '--restart-command <command>',
      'kills the gateway with SIGKILL and starts it again; without it that is not tried',
    )
    .action(bare(() => import('./prove.ts').then(({ proveGateway }) => proveGateway)));

  command(
    group('verify', 'what this service has signed'),
    'receipt',
    'check the proof of a request, without any service',
  )
    .argument('<file>', 'the proof, from `receipts proof` or GET /v1/generation/proof')
    .option('--key <file>', 'keys that may have signed it, from GET /v1/heads')
    .option('--head <file>', 'heads that it must agree with, from GET /v1/heads')
    .action(bare(() => import('./proofs.ts').then(({ verifyReceipt }) => verifyReceipt)));

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

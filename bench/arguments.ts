import { parseArgs } from 'node:util';

export interface Arguments {
  readonly rounds: number;
  readonly isQuick: boolean;
  readonly only: readonly string[] | undefined;
  readonly scenarios: readonly string[] | undefined;
  readonly gateways: readonly string[];
  readonly withPeers: boolean;
  /** The major version of Node that what runs on Node is measured on; undefined: the one that runs this. */
  readonly nodeMajor: string | undefined;
  /** The folder of another revision, built. */
  readonly beside: string | undefined;
  readonly upstreamPort: number | undefined;
  readonly folder: string | undefined;
  readonly rawFile: string | undefined;
  readonly writes: boolean;
  readonly profiles: boolean;
  readonly comparesFamilies: boolean;
  readonly sendsLarge: boolean;
  readonly isMicro: boolean;
  readonly settles: boolean;
  readonly reports: boolean;
  readonly keepsLedger: boolean;
  readonly visitsConsole: boolean;
  readonly rows: number;
  readonly accounts: number;
  readonly stores: readonly ('sqlite' | 'postgres')[];
  readonly isHelp: boolean;
}

export const usage = `npm run bench -- [options]

  --rounds N             rounds, interleaved (default 3)
  --quick                one round at a third of the time: shows that everything works
  --peers                beside what others make: nginx, a prototype without money, SMG and the core of Bifrost, each installed
                         once among the caches; with ratios to SMG and the prototype
  --node MAJOR           measure on the newest Node of that major version, which is fetched once (default: the one that runs this)
  --only NAMES           of direct, nginx, tokenhouse and those of --peers and --gateway; separated by commas
  --scenarios NAMES      some of them, separated by commas (bench/README.md lists them)
  --gateway 'name|port|command|key|model'
                         measure another program too; it has to forward to 127.0.0.1:9100/v1 (--upstream-port)
  --beside DIR           measure another revision of this repository too, as 'before': its folder, built (npm run build)
  --upstream-port PORT   default: any free one, 9100 with --gateway
  --folder DIR           where databases and logs go while it runs (default: the system's temporary folder)
  --write                put the table into bench/results.md
  --raw FILE             add the rounds to FILE, one JSON line each
  --profile              one scenario (default whole-sse) under the profiler of Node: where tokenhouse spends its time
  --families             what the other API families cost beside chat: ends with 1 when one is above 1.25 times
  --large                what small requests of others wait for beside texts of 40 MB
  --micro                single functions, in this process
  --settle               the ledger alone, on SQLite and on PostgreSQL: how many settlements, and what one costs
  --reports              reports on many rows of usage (--rows, default 10000000), on SQLite and on PostgreSQL,
                         or on one of them (--store sqlite, --store postgres)
  --ledger               what many rows of usage (--rows, default 100000000) of many accounts (--accounts, default 1000000) cost whoever keeps
                         them, on PostgreSQL: reports, settlements, export, retention, verification
  --console              every page of the console on that many rows of usage (--rows), in a real Chromium
`;

/** Words that the command does not understand; it ends with 64. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export function readArguments(args: readonly string[]): Arguments {
  try {
    return parsed(args);
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

function parsed(args: readonly string[]): Arguments {
  const { values } = parseArgs({
    args: [...args],
    options: {
      rounds: { type: 'string' },
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      scenarios: { type: 'string' },
      gateway: { type: 'string', multiple: true, default: [] },
      peers: { type: 'boolean', default: false },
      node: { type: 'string' },
      beside: { type: 'string' },
      'upstream-port': { type: 'string' },
      folder: { type: 'string' },
      write: { type: 'boolean', default: false },
      raw: { type: 'string' },
      profile: { type: 'boolean', default: false },
      families: { type: 'boolean', default: false },
      large: { type: 'boolean', default: false },
      micro: { type: 'boolean', default: false },
      settle: { type: 'boolean', default: false },
      reports: { type: 'boolean', default: false },
      ledger: { type: 'boolean', default: false },
      console: { type: 'boolean', default: false },
      rows: { type: 'string' },
      accounts: { type: 'string' },
      store: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const upstreamPort =
    values['upstream-port'] === undefined ? undefined : wholeNumber('--upstream-port', values['upstream-port'], 65_535);
  return {
    rounds: values.rounds === undefined ? (values.quick ? 1 : 3) : wholeNumber('--rounds', values.rounds, 100),
    isQuick: values.quick,
    only: values.only?.split(','),
    scenarios: values.scenarios?.split(','),
    gateways: values.gateway,
    withPeers: values.peers,
    nodeMajor: values.node === undefined ? undefined : String(wholeNumber('--node', values.node, 99)),
    beside: values.beside,
    upstreamPort: upstreamPort ?? (values.gateway.length > 0 ? 9100 : undefined),
    folder: values.folder,
    rawFile: values.raw,
    writes: values.write,
    profiles: values.profile,
    comparesFamilies: values.families,
    sendsLarge: values.large,
    isMicro: values.micro,
    settles: values.settle,
    reports: values.reports,
    keepsLedger: values.ledger,
    visitsConsole: values.console,
    rows:
      values.rows === undefined
        ? values.ledger
          ? 100_000_000
          : 10_000_000
        : wholeNumber('--rows', values.rows, 1_000_000_000),
    accounts: values.accounts === undefined ? 1_000_000 : wholeNumber('--accounts', values.accounts, 10_000_000),
    stores: values.store === undefined ? ['sqlite', 'postgres'] : [storeNamed(values.store)],
    isHelp: values.help,
  };
}

function storeNamed(name: string): 'sqlite' | 'postgres' {
  if (name !== 'sqlite' && name !== 'postgres') throw new Error('--store is sqlite or postgres');
  return name;
}

function wholeNumber(name: string, text: string, most: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > most)
    throw new Error(`${name} takes a whole number from 1 to ${most}`);
  return value;
}

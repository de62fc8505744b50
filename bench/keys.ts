/**
 * `node scripts/run.mjs bench/keys.ts`: what many keys cost a process: time to ready, memory, and a request with a key that is in
 * memory, one that is not, and one that does not exist; see bench/README.md.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get } from 'node:http';
import os from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { sql } from 'kysely';
import { hashKey, newKey, type KeyText } from '../src/accounts/key.ts';
import { openSecret, type Secret } from '../src/accounts/secret.ts';
import { migrate } from '../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../src/store/postgres/dialect.ts';
import { openConnection } from '../src/store/sqlite/connection.ts';
import { kyselyOn } from '../src/store/sqlite/dialect.ts';
import { root } from '../tests/support/repository.ts';
import { UsageError } from './arguments.ts';
import { runCommand, say } from './command.ts';
import { freePort } from './contender.ts';
import { revision } from './machine.ts';
import { startPostgres } from './postgres.ts';
import { Processes, processorSeconds, raisePriority, residentMegabytes } from './processes.ts';
import { writeSection } from './results.ts';

const usage = `node scripts/run.mjs bench/keys.ts [options]

  --keys N          keys in the database, five of each account (default 1000000)
  --store NAME      sqlite or postgres (default sqlite)
  --beside DIR      measure another revision on the same database too, as 'before': its folder, built (npm run build)
  --folder DIR      where the database goes while it runs (default: the system's temporary folder); 10 million take 5 GB
  --write           put the table into bench/results.md
`;

/** Keys whose text is known; the others are in the database only. */
const ownKeys = 20_000;
const keysOfAccount = 5;
const startTimeoutMs = 600_000;
const filterTimeoutMs = 300_000;

interface Options {
  readonly keys: number;
  readonly store: 'sqlite' | 'postgres';
  readonly beside: string | undefined;
  readonly folder: string;
  readonly writes: boolean;
}

interface Measured {
  readonly name: string;
  readonly cells: readonly string[];
}

async function main(args: readonly string[]): Promise<void> {
  const options = readOptions(args);
  if (options === undefined) return say(usage);
  const folder = mkdtempSync(join(options.folder, 'tokenhouse-keys-'));
  const secret = openSecret({ fromEnvironment: undefined, dataFolder: join(folder, 'data'), warn: say });
  const processes = new Processes();
  raisePriority();
  const postgres = options.store === 'postgres' ? await startPostgres(root) : undefined;
  try {
    const url = await postgres?.createDatabase();
    const begunMs = performance.now();
    const texts =
      url === undefined
        ? await fillSqlite(join(folder, 'data', 'tokenhouse.db'), options.keys, secret)
        : await fillPostgres(url, options.keys, secret);
    say(`${options.keys.toLocaleString('en')} keys made in ${seconds(performance.now() - begunMs)}`);
    const storage = url ?? 'sqlite:./data/tokenhouse.db';
    const measured: Measured[] = [];
    for (const [name, of] of [
      ['before', options.beside],
      ['after', root],
    ] as const)
      if (of !== undefined) measured.push(await measure(name, of, folder, storage, texts, processes));
    print(options, measured);
  } finally {
    await postgres?.dispose();
    rmSync(folder, { recursive: true, force: true });
  }
}

const columns = [
  'ready',
  'memory, ready',
  'memory, at the end',
  'filter of all keys',
  'known key',
  'cold key',
  'unknown key while the filter is read',
  'unknown key',
  'cold key beside 64 senders of unknown ones',
];

function print({ keys, store, writes }: Options, measured: readonly Measured[]): void {
  const table = [
    `| | ${columns.join(' | ')} |`,
    `|-|${columns.map(() => '-:|').join('')}`,
    ...measured.map(({ name, cells }) => `| ${name} | ${cells.join(' | ')} |`),
  ].join('\n');
  say(`\n${table}`);
  if (!writes) return;
  const title = `${new Date().toISOString().slice(0, 10)}, ${revision(root)}, \`node scripts/run.mjs bench/keys.ts --keys ${keys} --store ${store}\``;
  const text = `Requests are \`GET /v1/models\` with the key, over kept connections, one after the other where nothing else is said: median, 99th percentile, and processor time of all threads and of the database where it is in the process.\n\n${table}`;
  writeSection(join(root, 'bench/results.md'), title, text);
}

function readOptions(args: readonly string[]): Options | undefined {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        keys: { type: 'string', default: '1000000' },
        store: { type: 'string', default: 'sqlite' },
        beside: { type: 'string' },
        folder: { type: 'string', default: os.tmpdir() },
        write: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    const { store, beside, folder } = values;
    const keys = Number(values.keys);
    if (values.help) return undefined;
    if (!Number.isInteger(keys) || keys < 2 * ownKeys) throw new UsageError(`--keys must be at least ${2 * ownKeys}`);
    if (store !== 'sqlite' && store !== 'postgres') throw new UsageError('--store is sqlite or postgres');
    return { keys, store, beside, folder, writes: values.write };
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError((error as Error).message);
  }
}

/**
 * Keys get their ids in the order of their hashes: so all indexes are written from one end to the other, which is many times as
 * fast, and what is looked for is as random as ever.
 */
async function fillSqlite(file: string, keys: number, secret: Secret): Promise<readonly KeyText[]> {
  mkdirSync(join(file, '..'), { recursive: true });
  const connection = openConnection(file);
  await migrate(kyselyOn(connection), 'sqlite');
  for (const pragma of [
    'journal_mode = delete',
    'journal_mode = off',
    'synchronous = off',
    'foreign_keys = off',
    'cache_size = -262144',
  ])
    connection.exec(`pragma ${pragma}`);
  const numbers = (last: number) =>
    `with recursive numbers(n) as (select 0 union all select n + 1 from numbers where n < ${last})`;
  const texts = Array.from({ length: ownKeys }, () => newKey());
  connection.exec('create temp table made (hash blob)');
  const own = connection.prepare('insert into made values (?)');
  connection.exec('begin');
  for (const text of texts) own.run(hashKey(text, secret));
  for (const statement of [
    `insert into made ${numbers(keys - ownKeys - 1)} select randomblob(32) from numbers`,
    'create temp table sorted as select hash from made order by hash',
    `insert into account (id, kind, name, status, available, credit_limit, version, created_at)
       ${numbers(Math.ceil(keys / keysOfAccount))}
       select printf('acct_%012d', n), 0, 'bench', 'active', 0, 0, 1, 0 from numbers`,
    `insert into api_key (id, account_id, name, display, hash, pepper_id, status, created_at)
       select printf('key_%012d', rowid), printf('acct_%012d', rowid / ${keysOfAccount}), 'bench', 'tkh_…', hash,
         '${secret.id}', 'active', 0 from sorted order by rowid`,
    'commit',
  ])
    connection.exec(statement);
  connection.close();
  return texts;
}

async function fillPostgres(url: string, keys: number, secret: Secret): Promise<readonly KeyText[]> {
  const db = kyselyOnPostgres({ url, password: undefined }, 1);
  try {
    await migrate(db, 'postgres');
    const texts = Array.from({ length: ownKeys }, () => newKey());
    await sql`create table made (hash bytea)`.execute(db);
    const own = texts.map((text) => Buffer.from(hashKey(text, secret)).toString('hex')).join(',');
    for (const statement of [
      `insert into made select decode(hash, 'hex') from unnest(string_to_array('${own}', ',')) as hash`,
      `insert into made select decode(md5(random()::text) || md5(random()::text), 'hex') from generate_series(1, ${keys - ownKeys})`,
      `insert into account (id, kind, name, status, available, credit_limit, version, created_at)
         select 'acct_' || lpad(n::text, 12, '0'), 0, 'bench', 'active', 0, 0, 1, 0
         from generate_series(0, ${Math.ceil(keys / keysOfAccount)}) as n`,
      `insert into api_key (id, account_id, name, display, hash, pepper_id, status, created_at)
         select 'key_' || lpad(n::text, 12, '0'), 'acct_' || lpad((n / ${keysOfAccount})::text, 12, '0'), 'bench', 'tkh_…', hash,
           '${secret.id}', 'active', 0
         from (select hash, row_number() over (order by hash) as n from made) as made order by n`,
      'drop table made',
      'vacuum analyze api_key, account',
    ])
      await sql.raw(statement).execute(db);
    return texts;
  } finally {
    await db.destroy();
  }
}

async function measure(
  name: string,
  program: string,
  folder: string,
  storage: string,
  texts: readonly KeyText[],
  processes: Processes,
): Promise<Measured> {
  const port = await freePort();
  const config = join(folder, 'tokenhouse.yaml');
  writeFileSync(config, configuration(port, storage));
  const logFile = join(folder, `${name}.log`);
  const begunMs = performance.now();
  const service = processes.start({
    command: [process.execPath, join(program, 'dist', 'main.js'), 'serve', '--config', config],
    core: undefined,
    cwd: folder,
    logFile,
  });
  const says = (event: string): boolean => readFileSync(logFile, 'utf8').includes(`"event":"${event}"`);
  const sender = new Sender(port);
  try {
    const isReady = () =>
      sender.status('/readyz').then(
        (status) => status === 200,
        () => false,
      );
    if (!(await until(isReady, startTimeoutMs))) throw new Error(readFileSync(logFile, 'utf8').slice(-2_000));
    const readyMs = performance.now() - begunMs;
    const readyMb = residentMegabytes(service.pid);
    say(`${name}: ready after ${seconds(readyMs)}, ${readyMb.toFixed(0)} MB`);
    let next = 0;
    const cold = (): KeyText => texts[next++ % texts.length]!;
    const hot = texts.at(-1)!;
    const cost = async (of: () => string, expected: number, requests: number): Promise<string> => {
      const before = processorSeconds(service.pid);
      const times = await sender.send(of, expected, requests);
      const microseconds = ((processorSeconds(service.pid) - before) / requests) * 1e6;
      return `${inMs(times)}, ${microseconds.toFixed(0)} µs`;
    };
    const unfiltered = says('key_filter') ? '–' : await cost(newKey, 401, 1_000);
    const isFiltered = await until(() => Promise.resolve(says('key_filter')), name === 'before' ? 1 : filterTimeoutMs);
    const filter = isFiltered
      ? `${/"event":"key_filter".*?"seconds":([\d.]+)/.exec(readFileSync(logFile, 'utf8'))?.[1]} s`
      : '–';
    await sender.send(() => hot, 200, 1_000);
    const known = await cost(() => hot, 200, 3_000);
    const read = await cost(cold, 200, 3_000);
    const unknown = await cost(newKey, 401, 3_000);
    let isFlooding = true;
    const floods = Array.from({ length: 64 }, async () => {
      while (isFlooding) await sender.send(newKey, 401, 10);
    });
    const beside = await sender.send(cold, 200, 300);
    isFlooding = false;
    await Promise.all(floods);
    const endMb = residentMegabytes(service.pid);
    const cells = [
      seconds(readyMs),
      `${readyMb.toFixed(0)} MB`,
      `${endMb.toFixed(0)} MB`,
      ...[filter, known, read, unfiltered, unknown, inMs(beside)],
    ];
    say(`${name}: ${cells.join(' | ')}`);
    return { name, cells };
  } finally {
    sender.close();
    await processes.stop(service);
  }
}

/** Requests over kept connections. */
class Sender {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #port: number;

  constructor(port: number) {
    this.#port = port;
  }

  status(path: string, headers: Readonly<Record<string, string>> = {}): Promise<number> {
    return new Promise((resolve, reject) => {
      const request = get({ agent: this.#agent, host: '127.0.0.1', port: this.#port, path, headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      });
      request.on('error', reject);
    });
  }

  /** One after the other; how long each took, in milliseconds. Another status ends the run. */
  async send(key: () => string, expected: number, requests: number): Promise<readonly number[]> {
    const times: number[] = [];
    for (let request = 0; request < requests; request++) {
      const headers = { authorization: `Bearer ${key()}` };
      const begunMs = performance.now();
      const status = await this.status('/v1/models', headers);
      times.push(performance.now() - begunMs);
      if (status !== expected) throw new Error(`status ${status} instead of ${expected}`);
    }
    return times;
  }

  close(): void {
    this.#agent.destroy();
  }
}

async function until(condition: () => Promise<boolean>, timeoutMs: number): Promise<boolean> {
  for (const endMs = performance.now() + timeoutMs; performance.now() < endMs;) {
    if (await condition()) return true;
    await sleep(20);
  }
  return false;
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

function inMs(times: readonly number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number): string => sorted[Math.floor(share * (sorted.length - 1))]!.toFixed(1);
  return `${at(0.5)} ms, ${at(0.99)} ms`;
}

const configuration = (port: number, storage: string): string => `
server:
  inference: { host: 127.0.0.1, port: ${port} }
  account: { host: 127.0.0.1, port: 0 }
  limits: { requests_per_connection_max: 1000000 }
storage: ${storage}
models:
  - id: bench
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [{ engine: scripted, scripts: [{ say: [{ text: hello }] }] }]
`;

await runCommand(main, usage);

import path from 'node:path';
import { Secret } from '../secret.ts';
import type { Path } from '../document.ts';
import {
  flag,
  group,
  integer,
  hidden,
  number,
  partUntilRestart,
  textLike,
  type Reading,
  type Setting,
} from '../setting.ts';
import { serverUrl } from './server-url.ts';

/** For one process, which owns the file. */
export interface SqliteStorageConfig {
  readonly type: 'sqlite';
  /** Absolute path of the database file. */
  readonly path: string;
  /** Absolute path of the folder that holds it, and the generated secret beside it. */
  readonly directory: string;
}

/** For one or several processes, which are replicas. */
export interface PostgresStorageConfig {
  readonly type: 'postgres';
  readonly url: Secret;
  /** The password, if it is not in the URL. */
  readonly password: Secret | undefined;
  /** The address without user, password and options, for messages. */
  readonly shown: string;
  /** Absolute path of the folder of this replica's control socket and, if generated, its secret. */
  readonly directory: string;
}

export type StorageConfig = SqliteStorageConfig | PostgresStorageConfig;

/** The place of the storage, for messages, without secrets. */
export const shownPlace = (storage: StorageConfig): string =>
  storage.type === 'sqlite' ? storage.path : storage.shown;

const address = textLike(
  '^(sqlite:.+|postgres(ql)?://.+|env:[A-Za-z_][A-Za-z0-9_]*)$',
  'where accounts, keys and usage are kept: a file (a relative path counts from this one), `postgres://user@host/database`, or `env:NAME` for a variable with either',
  { default: 'sqlite:./data/tokenhouse.db' },
);

export const storage: Setting<StorageConfig> = {
  ...hidden(partUntilRestart(address)),
  read: (written, at, reading) => {
    const given = address.read(written, at, reading);
    const variable = /^env:(.+)$/.exec(given)?.[1];
    const inUse = variable === undefined ? given : variableWithAddress(variable, at, reading);
    const config = /^postgres(ql)?:/.test(inUse)
      ? postgresOf(inUse, variable !== undefined || !reading.isInFile(at), at, reading)
      : sqliteOf(inUse, reading);
    reading.show(at, config.type === 'sqlite' ? `sqlite:${config.path}` : config.shown);
    reading.fix(at, config.type === 'sqlite' ? config.path : config.url);
    return config;
  },
};

/** Reads a storage address given to a command, by the rules of the setting. `report` does not return. */
export function storageAt(
  given: string,
  { directory, environment, report }: Pick<Reading, 'directory' | 'environment'> & { report(what: string): never },
): StorageConfig {
  const reading = { directory, environment, report: (_at: Path, what: string) => report(what) };
  const variable = /^env:(.+)$/.exec(given)?.[1];
  const inUse = variable === undefined ? given : variableWithAddress(variable, [], reading);
  if (/^postgres(ql)?:\/\//.test(inUse)) return postgresOf(inUse, variable !== undefined, [], reading);
  if (/^sqlite:./.test(inUse)) return sqliteOf(inUse, reading);
  return report('not an address of a database: write sqlite:FILE, postgres://user@host/database, or env:NAME');
}

type Given = Pick<Reading, 'directory' | 'environment' | 'report'>;

function variableWithAddress(variable: string, at: Path, { environment, report }: Given): string {
  const value = environment.variable(variable) ?? '';
  if (!/^(sqlite:.|postgres(ql)?:\/\/)/.test(value)) {
    const state = value === '' ? 'is not set' : 'is neither sqlite:… nor postgres://…';
    report(at, `the environment variable ${variable} ${state}, so the storage is unknown`);
  }
  return value;
}

function sqliteOf(address: string, { directory }: Pick<Reading, 'directory'>): SqliteStorageConfig {
  const absolute = path.resolve(directory, address.slice('sqlite:'.length));
  return { type: 'sqlite', path: absolute, directory: path.dirname(absolute) };
}

function postgresOf(
  address: string,
  isFromVariable: boolean,
  at: Path,
  { directory, environment, report }: Given,
): PostgresStorageConfig {
  const parsed = URL.canParse(address) ? new URL(address) : undefined;
  // The URL may hold a password, so it is not repeated.
  if (parsed === undefined || parsed.host === '' || parsed.pathname.length < 2)
    report(at, 'not the address of a PostgreSQL database; write postgres://user@host:5432/database');
  else if (parsed.password !== '' && !isFromVariable)
    report(
      at,
      'a password here ends up in backups, logs and lists of processes; put it into the environment variable ' +
        'TOKENHOUSE_POSTGRES_PASSWORD or the PostgreSQL password file (~/.pgpass), or the whole URL into a variable: storage: env:DATABASE_URL',
    );
  return {
    type: 'postgres',
    url: new Secret(address),
    password: environment.postgresPassword,
    shown: parsed === undefined ? '' : `postgres://${parsed.host}${parsed.pathname}`,
    directory: path.resolve(directory, 'data'),
  };
}

export const items = group('stored items of /v1/responses, which later requests may reference by id', {
  // Contracts decision 2.
  keep_days: integer(
    0,
    365,
    'how many days they are kept, unless a request has store: false or requires zero data retention; 0: never',
    { default: 30 },
  ),
});

export const retention = group('what the service removes by itself when it is old', {
  // The minimum that reports need: `keptDaysMin` of the store.
  details_days: integer(
    31,
    36_500,
    'how many days details of requests are kept: receipts, and their lines in lists and exports; sums of usage stay; when left out, all are kept',
    { example: 400 },
  ),
});

export const files = group(
  'files that clients upload',
  {
    files_per_account_max: integer(0, 1e6, 'maximum of files per account', { default: 1000 }),
    bytes_per_account_max: integer(0, 1e15, 'maximum of bytes of all files of an account', { default: 10_737_418_240 }),
    bucket: partUntilRestart(
      textLike(
        '^[A-Za-z0-9._-]{3,255}$',
        'S3-compatible bucket for their bytes, instead of the folder beside the database; credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY',
        { example: 'tokenhouse-files' },
      ),
    ),
    endpoint: partUntilRestart(
      serverUrl('URL of the S3 service; when left out, Amazon S3', 'https://s3.example.lan:9000'),
    ),
    region: partUntilRestart(textLike('^[A-Za-z0-9-]{1,64}$', 'region of the bucket', { default: 'us-east-1' })),
    prefix: partUntilRestart(
      textLike('^[A-Za-z0-9._/-]{0,200}$', 'prefix of object names; services that share a bucket need different ones', {
        default: 'tokenhouse/',
      }),
    ),
    path_style: partUntilRestart(
      flag('put the bucket name into the path of the URL; when left out, true with an endpoint', {
        example: true,
      }),
    ),
  },
  ({ filesPerAccountMax: perAccountMax, bytesPerAccountMax, bucket: name, ...place }, at, reading) => {
    if (name !== undefined && reading.environment.bucketKeys === undefined)
      reading.report(
        [...at, 'bucket'],
        'nobody could sign in there; set the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY',
      );
    const { prefix, ...rest } = place;
    const service = serviceOf(rest);
    const bucket = name === undefined ? undefined : bucketOf(name, prefix, service);
    // Without a bucket, its place has no effect.
    reading.fix([...at, 'bucket'], bucket);
    return { perAccountMax, bytesPerAccountMax, bucket, service };
  },
);

export const batches = group('batches: files of requests that run while nobody else wants the capacity', {
  lines_max: integer(1, 1e6, 'maximum of lines of the file of a batch', { default: 50_000 }),
  file_bytes_max: integer(1024, 1e10, 'maximum of bytes of a file with the purpose `batch`', { default: 209_715_200 }),
  open_per_account_max: integer(1, 1e5, 'maximum of batches of an account that are not over', { default: 100 }),
  lines_running_max: integer(1, 1e5, 'maximum of lines that one process runs at the same time', { default: 256 }),
  window_seconds: number(
    { minimum: 1, maximum: 604_800 },
    'how long after its creation the lines of a batch may begin; clients call it `24h`',
    { default: 86_400 },
    (written) => Math.round(written * 1000),
  ),
});

interface ServicePlace {
  readonly endpoint: string | undefined;
  readonly region: string;
  readonly pathStyle: boolean | undefined;
}

/** The S3 service, which backups use too, with or without a bucket for files. */
const serviceOf = ({ endpoint, region, pathStyle }: ServicePlace) => ({
  endpoint,
  region,
  pathStyle: pathStyle ?? endpoint !== undefined,
});

/** The prefix ends with a slash unless it is empty. */
const bucketOf = (name: string, prefix: string, service: ReturnType<typeof serviceOf>) => ({
  name,
  ...service,
  prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`,
});

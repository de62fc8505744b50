import { readFileSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ConfigError, type Problem } from './problem.ts';
import { Secret } from './secret.ts';

/** The settings of the environment. Only this file reads the variables of the process. */
export interface Environment {
  /** Pepper of the key hashes; `undefined`: the generated one in the data folder. */
  readonly secret: Secret | undefined;
  /** Token that gives access to the metrics from elsewhere; `undefined`: only this computer may read them. */
  readonly metricsToken: Secret | undefined;
  /** Password of the PostgreSQL user, if `storage` has a user without a password. */
  readonly postgresPassword: Secret | undefined;
  /** Password of `mail.smtp.user`. */
  readonly smtpPassword: Secret | undefined;
  /** Our key at Stripe, and the secret that signs its webhook calls. */
  readonly stripe: { readonly secretKey: Secret | undefined; readonly webhookSecret: Secret | undefined };
  /** Path from `TOKENHOUSE_CONFIG`. */
  readonly configFile: string | undefined;
  /** Absolute folder of the model files, shared by all installations of this user. */
  readonly modelDirectory: string;
  /** The user's home folder. */
  readonly home: string;
  /** Absolute folder for data that programs keep for this user. */
  readonly userDataDirectory: string;
  /** Absolute folder for data and configuration if the current folder has no service; `undefined`: the current folder. */
  readonly dataDirectory: string | undefined;
  readonly hub: { readonly endpoint: string | undefined; readonly token: Secret | undefined };
  /** Our credentials for the buckets of files and backups; `undefined`: not given. */
  readonly bucketKeys:
    | { readonly accessKeyId: string; readonly secretAccessKey: Secret; readonly sessionToken: Secret | undefined }
    | undefined;
  /** pip's settings; read only where pip itself is missing. */
  readonly packages: { readonly indexUrl: string | undefined; readonly configurationFiles: readonly string[] };
  readonly proxy: {
    readonly http: string | undefined;
    readonly https: string | undefined;
    readonly except: string | undefined;
  };
  /** OpenTelemetry's variables, for what `telemetry` leaves out. */
  readonly otel: OtelVariables;
  /** false: `NO_COLOR` requests plain text. */
  readonly color: boolean;
  /** The variables for other programs that we start: everything except the secrets above. */
  readonly childVariables: Readonly<Record<string, string>>;
  /** A variable that the configuration names, such as `api_key_env`; its value may be in the file that `<name>_FILE` names. */
  variable(name: string): string | undefined;
  /** The variables that give settings of the configuration, and any others with the same prefix (`overridesOf`). */
  readonly settings: readonly SettingVariable[];
}

export interface OtelVariables {
  readonly isDisabled: boolean;
  readonly endpoint: string | undefined;
  readonly protocol: string | undefined;
  readonly headers: Secret | undefined;
  readonly serviceName: string | undefined;
  readonly resourceAttributes: string | undefined;
}

export interface SettingVariable {
  readonly name: string;
  readonly text: string;
  /** The content of the file that the value names. */
  textOfFile(): TextOfFile;
}

type TextOfFile = { readonly text: string } | { readonly problem: string };

/** Reads the variables once. Throws `ConfigError` if one cannot be used. */
export function readEnvironment(variables: Readonly<Record<string, string | undefined>> = process.env): Environment {
  const { get, problems: ofFiles } = withFiles(variables);
  const problems = [...ofFiles, ...secretProblems(get), ...endpointProblems(get)];
  if (problems.length > 0) throw new ConfigError(problems);
  const home = get('HOME') ?? get('USERPROFILE') ?? homeOfUser();
  const userDataDirectory = path.join(dataHome(get, home), 'tokenhouse');
  return Object.freeze({
    secret: secretOf(get('TOKENHOUSE_SECRET')),
    metricsToken: secretOf(get('TOKENHOUSE_METRICS_TOKEN')),
    postgresPassword: secretOf(get('TOKENHOUSE_POSTGRES_PASSWORD')),
    smtpPassword: secretOf(get('TOKENHOUSE_SMTP_PASSWORD')),
    stripe: {
      secretKey: secretOf(get('TOKENHOUSE_STRIPE_SECRET_KEY')),
      webhookSecret: secretOf(get('TOKENHOUSE_STRIPE_WEBHOOK_SECRET')),
    },
    configFile: get('TOKENHOUSE_CONFIG'),
    modelDirectory: path.resolve(
      get('TOKENHOUSE_MODEL_DIR') ??
        path.join(get('XDG_CACHE_HOME') ?? path.join(home, '.cache'), 'tokenhouse', 'models'),
    ),
    home,
    userDataDirectory,
    dataDirectory: isPackage ? userDataDirectory : undefined,
    hub: {
      endpoint: get('HF_ENDPOINT')?.replace(/\/+$/, ''),
      token: secretOf(get('HF_TOKEN')),
    },
    bucketKeys: bucketKeysOf(get),
    packages: {
      indexUrl: get('PIP_INDEX_URL') ?? get('UV_DEFAULT_INDEX') ?? get('UV_INDEX_URL'),
      configurationFiles: pipFiles(get, home),
    },
    proxy: {
      http: get('http_proxy') ?? get('HTTP_PROXY'),
      https: get('https_proxy') ?? get('HTTPS_PROXY'),
      except: get('no_proxy') ?? get('NO_PROXY'),
    },
    otel: {
      isDisabled: get('OTEL_SDK_DISABLED')?.toLowerCase() === 'true',
      endpoint: get('OTEL_EXPORTER_OTLP_ENDPOINT'),
      protocol: get('OTEL_EXPORTER_OTLP_PROTOCOL'),
      headers: secretOf(get('OTEL_EXPORTER_OTLP_HEADERS')),
      serviceName: get('OTEL_SERVICE_NAME'),
      resourceAttributes: get('OTEL_RESOURCE_ATTRIBUTES'),
    },
    color: get('NO_COLOR') === undefined,
    childVariables: Object.freeze(withoutSecrets(variables)),
    variable: (name: string) => {
      if (isKnown(name) || get(`${name}_FILE`) === undefined) return get(name);
      const found = secretText(name, variables);
      if (found !== undefined && 'problem' in found)
        throw new ConfigError([{ where: `${name}_FILE`, what: found.problem }]);
      return found?.text;
    },
    settings: settingVariables(variables),
  });
}

/**
 * Every variable that has an effect, our own and others, for the documentation and to detect misspellings. Settings of the
 * configuration have variables too, named after them (`overridesOf`).
 */
export const environmentVariables = {
  TOKENHOUSE_SECRET:
    'secret that API keys are hashed with, at least 32 characters; when unset, a generated one in `data/secret`',
  TOKENHOUSE_CONFIG: 'path of the configuration, when `--config` does not name it',
  TOKENHOUSE_POSTGRES_PASSWORD: 'password of the database in `storage: postgres://…`',
  TOKENHOUSE_SMTP_PASSWORD: 'password of `mail.smtp.user`',
  TOKENHOUSE_METRICS_TOKEN: 'bearer token for `/metrics` from other computers, at least 32 characters',
  TOKENHOUSE_MODEL_DIR: 'folder of the model files; default `~/.cache/tokenhouse/models`',
  TOKENHOUSE_STRIPE_SECRET_KEY: 'Stripe API key (`sk_…` or `rk_…`), for `payments.provider: stripe`',
  TOKENHOUSE_STRIPE_WEBHOOK_SECRET: 'signing secret of Stripe for `/v1/webhooks/payments` (`whsec_…`)',
  TOKENHOUSE_KEY: 'API key for `tokenhouse chat`; a management key for lists with `--at`',
  TOKENHOUSE_URL: 'address of the service for `tokenhouse chat`; default: the service on this computer',
  HF_ENDPOINT: 'address of another model hub',
  HF_TOKEN: 'token for the model hub',
  AWS_ACCESS_KEY_ID: 'access key id for `files.bucket` and for backups in `s3://…`',
  AWS_SECRET_ACCESS_KEY: 'secret access key that goes with it',
  AWS_SESSION_TOKEN: 'session token, when the two are temporary',
  OTEL_EXPORTER_OTLP_ENDPOINT:
    'URL of a collector, when `telemetry.endpoint` names none: traces and metrics are sent there',
  OTEL_EXPORTER_OTLP_HEADERS: 'headers for the collector, when `telemetry.headers` has none: `name=value,name=value`',
  OTEL_EXPORTER_OTLP_PROTOCOL: '`http/protobuf`, which is what is sent; `grpc` is refused',
  OTEL_SERVICE_NAME: 'name of this service, when `telemetry.service_name` has none',
  OTEL_RESOURCE_ATTRIBUTES: 'further attributes, when `telemetry.resource_attributes` has none',
  OTEL_SDK_DISABLED: '`true`: the other variables of OpenTelemetry count for nothing',
} as const;

const isKnown = (name: string): boolean => Object.hasOwn(environmentVariables, name);

/** Never shown; each may be in a file that `<name>_FILE` names, as container platforms provide secrets. */
export const secretVariables: readonly string[] = [
  'TOKENHOUSE_SECRET',
  'TOKENHOUSE_POSTGRES_PASSWORD',
  'TOKENHOUSE_SMTP_PASSWORD',
  'TOKENHOUSE_METRICS_TOKEN',
  'TOKENHOUSE_STRIPE_SECRET_KEY',
  'TOKENHOUSE_STRIPE_WEBHOOK_SECRET',
  'TOKENHOUSE_KEY',
  'HF_TOKEN',
  'AWS_SECRET_ACCESS_KEY',
  'AWS_SESSION_TOKEN',
  'OTEL_EXPORTER_OTLP_HEADERS',
] satisfies (keyof typeof environmentVariables)[];

/** Whether a variable is the service's own: a key for something else, or a setting, which may be the address of its database. */
export const isOfService = (name: string): boolean =>
  /^TOKENHOUSE_/i.test(name) || secretVariables.includes(name.toUpperCase());

/** Adapts commands to how this program was installed and started: printed commands can then be run as printed. */
export function runnable(
  text: string,
  variables: Readonly<Record<string, string | undefined>> = process.env,
  from = installedFrom(import.meta.url),
): string {
  const there = insteadOfClone[from].reduce((said, [of, by]) => said.replaceAll(of, by), text);
  if (variables['npm_command'] === undefined) return there;
  return there.replaceAll(/(?<!npx )\btokenhouse (?=[a-z-])/g, 'npx tokenhouse ');
}

type Installation = 'clone' | 'npm' | 'debian';

/** Commands for a clone, and their equivalents for the packages. */
const insteadOfClone: Readonly<Record<Installation, readonly (readonly [string, string])[]>> = {
  clone: [],
  npm: [
    ['npm ci --ignore-scripts && npm run build', 'npm install --include=optional tokenhouse@latest'],
    ['git pull && npm start', 'npm install tokenhouse@latest && npm start'],
    ['npm start', 'tokenhouse serve'],
  ],
  debian: [
    ['npm ci --ignore-scripts && npm run build', 'apt install --reinstall ./tokenhouse_VERSION_ARCHITECTURE.deb'],
    ['git pull && npm start', 'apt install ./tokenhouse_VERSION_ARCHITECTURE.deb'],
    ['npm start', 'systemctl start tokenhouse'],
  ],
};

/** Determined by the location of a file of the program. scripts/package-deb.mjs installs the Debian package there. */
export function installedFrom(url: string): Installation {
  if (url.startsWith('file:///usr/lib/tokenhouse/')) return 'debian';
  return url.includes('/node_modules/') ? 'npm' : 'clone';
}

const secretOf = (text: string | undefined): Secret | undefined => (text === undefined ? undefined : new Secret(text));

function bucketKeysOf(get: (name: string) => string | undefined): Environment['bucketKeys'] {
  const [accessKeyId, secretAccessKey] = [get('AWS_ACCESS_KEY_ID'), get('AWS_SECRET_ACCESS_KEY')];
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  return {
    accessKeyId,
    secretAccessKey: new Secret(secretAccessKey),
    sessionToken: secretOf(get('AWS_SESSION_TOKEN')),
  };
}

const secretLengthMin = 32;

function secretProblems(get: (name: string) => string | undefined): Problem[] {
  return [
    { where: 'TOKENHOUSE_SECRET', threat: 'can forge keys' },
    { where: 'TOKENHOUSE_METRICS_TOKEN', threat: 'can read the metrics' },
  ].flatMap(({ where, threat }) => {
    const secret = get(where);
    if (secret === undefined || secret.length >= secretLengthMin) return [];
    const what = `has ${secret.length} characters, and anyone who guesses it ${threat}; use ${secretLengthMin} random ones or more, for example of: openssl rand -hex 32`;
    return [{ where, what }];
  });
}

function endpointProblems(get: (name: string) => string | undefined): Problem[] {
  const endpoint = get('HF_ENDPOINT');
  if (endpoint === undefined || (/^https?:\/\//.test(endpoint) && URL.canParse(endpoint))) return [];
  return [
    {
      where: 'HF_ENDPOINT',
      what: 'is not a URL, so models cannot be downloaded through it; write https://host, or unset it',
    },
  ];
}

/** The user's home from the system's own records, for a process without `HOME`. */
function homeOfUser(): string {
  try {
    return os.userInfo().homedir;
  } catch {
    return os.tmpdir();
  }
}

/** `npx tokenhouse` may be started in any folder, where it should not leave files. */
const isPackage = installedFrom(import.meta.url) !== 'clone';

/** The folder in which this user's programs keep their data on this platform. */
export function dataHome(
  get: (name: string) => string | undefined,
  home: string,
  platform: NodeJS.Platform = process.platform,
): string {
  if (platform === 'darwin') return path.join(home, 'Library', 'Application Support');
  if (platform === 'win32') return get('LOCALAPPDATA') ?? path.join(home, 'AppData', 'Local');
  return get('XDG_DATA_HOME') ?? path.join(home, '.local', 'share');
}

/** Pip's configuration files, highest precedence first. */
function pipFiles(get: (name: string) => string | undefined, home: string): string[] {
  const explicit = get('PIP_CONFIG_FILE');
  const environment = get('VIRTUAL_ENV');
  const roaming = get('APPDATA');
  return [
    ...(explicit === undefined ? [] : [explicit]),
    ...(environment === undefined ? [] : [path.join(environment, 'pip.conf'), path.join(environment, 'pip.ini')]),
    path.join(get('XDG_CONFIG_HOME') ?? path.join(home, '.config'), 'pip', 'pip.conf'),
    path.join(home, '.pip', 'pip.conf'),
    path.join(home, 'Library', 'Application Support', 'pip', 'pip.conf'),
    ...(roaming === undefined ? [] : [path.join(roaming, 'pip', 'pip.ini')]),
    '/etc/pip.conf',
  ];
}

function withoutSecrets(variables: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const secrets = /^(TOKENHOUSE_.*|HF_TOKEN|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN|OTEL_EXPORTER_OTLP_HEADERS)$/;
  const kept = Object.entries(variables).filter(([name]) => !secrets.test(name));
  return Object.fromEntries(kept.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

type Variables = Readonly<Record<string, string | undefined>>;

/** The variables, including secrets from files. A variable with an empty value counts as not set. */
function withFiles(variables: Variables): {
  readonly get: (name: string) => string | undefined;
  readonly problems: readonly Problem[];
} {
  const found = new Map(secretVariables.map((name) => [name, secretText(name, variables)]));
  const problems = [...found].flatMap(([name, text]) =>
    text !== undefined && 'problem' in text ? [{ where: `${name}_FILE`, what: text.problem }] : [],
  );
  const get = (name: string): string | undefined => {
    const text = found.get(name);
    return text !== undefined && 'text' in text ? text.text : variables[name] || undefined;
  };
  return { get, problems };
}

function secretText(name: string, variables: Variables): TextOfFile | undefined {
  const file = variables[`${name}_FILE`];
  if (!file) return undefined;
  if (variables[name]) return { problem: `${name} is set too, and only one of them can count; unset one` };
  return textOfFile(file);
}

const secretBytesMax = 65_536;

/** The content without the final newline, which editors and shells add. */
function textOfFile(file: string): TextOfFile {
  try {
    if (statSync(file).size > secretBytesMax)
      return { problem: `${file} has more than ${secretBytesMax} bytes; name the file that holds the secret alone` };
    const text = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
    return text === '' ? { problem: `${file} is empty; write the secret into it` } : { text };
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    return { problem: `${file} cannot be read (${code}); correct the path, or its owner and mode` };
  }
}

/** Read by our tests and benchmarks, and also present in the services that they start. */
const ofTests =
  /^TOKENHOUSE_(TEST_\w+|SCREENSHOTS|SOAK_\w+|MONTH_\w+|SEED|STEPS|TRIALS|CENSUS|HEAP_PROBE|(REPLICA_)?KILLS|STOPS|MANAGEMENT_KEY)$/;

/** Variables that Kubernetes sets in every container beside a Service called `tokenhouse` or `tokenhouse-…`. */
const isServiceLink = (name: string, text: string): boolean =>
  /_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$/.test(name) ||
  (name.endsWith('_PORT') && /^(tcp|udp|sctp):\/\//.test(text));

function settingVariables(variables: Variables): readonly SettingVariable[] {
  const isOther = (name: string): boolean =>
    isKnown(name) || ofTests.test(name) || secretVariables.some((secret) => name === `${secret}_FILE`);
  return Object.entries(variables).flatMap(([name, text]) =>
    !name.startsWith('TOKENHOUSE_') || !text || isOther(name) || isServiceLink(name, text)
      ? []
      : [{ name, text, textOfFile: () => textOfFile(text) }],
  );
}

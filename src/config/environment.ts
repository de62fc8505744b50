import os from 'node:os';
import path from 'node:path';
import { ConfigError, type Problem } from './problem.ts';
import { Secret } from './secret.ts';
import { suggestion } from './suggestion.ts';

/** The settings of the environment. Only this file reads the variables of the process. */
export interface Environment {
  /** Pepper of the key hashes; `undefined`: the generated one in the data folder. */
  readonly secret: Secret | undefined;
  /** Token that gives access to the metrics from elsewhere; `undefined`: only this computer may read them. */
  readonly metricsToken: Secret | undefined;
  /** Password of the PostgreSQL user, where `storage` names one without it. */
  readonly postgresPassword: Secret | undefined;
  /** Password of `mail.smtp.user`. */
  readonly smtpPassword: Secret | undefined;
  /** Our key at Stripe, and the secret that signs its webhook calls. */
  readonly stripe: { readonly secretKey: Secret | undefined; readonly webhookSecret: Secret | undefined };
  /** Path from `TOKENHOUSE_CONFIG`. */
  readonly configFile: string | undefined;
  /** Absolute folder of the model files, shared by all installations of this user. */
  readonly modelDirectory: string;
  readonly hub: { readonly endpoint: string | undefined; readonly token: Secret | undefined };
  /** Our credentials for the bucket of the files; `undefined`: not given. */
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
  /** false: `NO_COLOR` requests plain text. */
  readonly color: boolean;
  /** For child processes that are not ours: everything except the secrets above. */
  readonly childVariables: Readonly<Record<string, string>>;
  /** A variable that the configuration names, such as `api_key_env`. */
  variable(name: string): string | undefined;
  /** Oddities that prevent nothing. */
  readonly warnings: readonly Problem[];
}

/** Reads the variables once. Throws `ConfigError` when one cannot be used. */
export function readEnvironment(variables: Readonly<Record<string, string | undefined>> = process.env): Environment {
  // A variable with an empty value counts as not set.
  const get = (name: string): string | undefined => variables[name] || undefined;
  const problems = [...secretProblems(get), ...endpointProblems(get)];
  if (problems.length > 0) throw new ConfigError(problems);
  const home = get('HOME') ?? get('USERPROFILE') ?? homeOfUser();
  const secret = get('TOKENHOUSE_SECRET');
  const metricsToken = get('TOKENHOUSE_METRICS_TOKEN');
  const postgresPassword = get('TOKENHOUSE_POSTGRES_PASSWORD');
  const smtpPassword = get('TOKENHOUSE_SMTP_PASSWORD');
  const token = get('HF_TOKEN');
  return Object.freeze({
    secret: secret === undefined ? undefined : new Secret(secret),
    metricsToken: metricsToken === undefined ? undefined : new Secret(metricsToken),
    postgresPassword: postgresPassword === undefined ? undefined : new Secret(postgresPassword),
    smtpPassword: smtpPassword === undefined ? undefined : new Secret(smtpPassword),
    stripe: {
      secretKey: secretOf(get('TOKENHOUSE_STRIPE_SECRET_KEY')),
      webhookSecret: secretOf(get('TOKENHOUSE_STRIPE_WEBHOOK_SECRET')),
    },
    configFile: get('TOKENHOUSE_CONFIG'),
    modelDirectory: path.resolve(
      get('TOKENHOUSE_MODEL_DIR') ??
        path.join(get('XDG_CACHE_HOME') ?? path.join(home, '.cache'), 'tokenhouse', 'models'),
    ),
    hub: {
      endpoint: get('HF_ENDPOINT')?.replace(/\/+$/, ''),
      token: token === undefined ? undefined : new Secret(token),
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
    color: get('NO_COLOR') === undefined,
    childVariables: Object.freeze(withoutSecrets(variables)),
    variable: get,
    warnings: unknownVariables(variables),
  });
}

/** Every variable that decides something, ours and foreign, for the documentation and against misspellings. */
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
  TOKENHOUSE_KEY: 'API key for `tokenhouse chat`',
  TOKENHOUSE_URL: 'address of the service for `tokenhouse chat`; default: the service on this computer',
  HF_ENDPOINT: 'address of another model hub',
  HF_TOKEN: 'token for the model hub',
  AWS_ACCESS_KEY_ID: 'access key id for `files.bucket`',
  AWS_SECRET_ACCESS_KEY: 'secret access key for `files.bucket`',
  AWS_SESSION_TOKEN: 'session token, when the two are temporary',
} as const;

const knownVariables = Object.keys(environmentVariables).filter((name) => name.startsWith('TOKENHOUSE_'));

/** Adapts commands to npm having started this program, as in a clone: printed commands can then be run as they are. */
export function runnable(text: string, variables: Readonly<Record<string, string | undefined>> = process.env): string {
  if (variables['npm_command'] === undefined) return text;
  return text.replaceAll(/(?<!npx )\btokenhouse (?=[a-z-])/g, 'npx tokenhouse ');
}

const secretOf = (text: string | undefined): Secret | undefined => (text === undefined ? undefined : new Secret(text));

function bucketKeysOf(get: (name: string) => string | undefined): Environment['bucketKeys'] {
  const [accessKeyId, secretAccessKey] = [get('AWS_ACCESS_KEY_ID'), get('AWS_SECRET_ACCESS_KEY')];
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  const token = get('AWS_SESSION_TOKEN');
  return {
    accessKeyId,
    secretAccessKey: new Secret(secretAccessKey),
    sessionToken: token === undefined ? undefined : new Secret(token),
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

/** Where pip looks for its configuration, the strongest first. */
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
  const secrets = /^(TOKENHOUSE_.*|HF_TOKEN|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN)$/;
  const kept = Object.entries(variables).filter(([name]) => !secrets.test(name));
  return Object.fromEntries(kept.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

function unknownVariables(variables: Readonly<Record<string, string | undefined>>): Problem[] {
  const unknown = Object.keys(variables).filter(
    (name) => name.startsWith('TOKENHOUSE_') && !knownVariables.includes(name),
  );
  return unknown.map((name) => {
    const near = suggestion(name, knownVariables);
    const repair =
      near === undefined ? `the known variables are ${knownVariables.join(', ')}` : `did you mean ${near}?`;
    return { where: name, what: `this environment variable has no effect; ${repair}` };
  });
}

import os from 'node:os';
import path from 'node:path';
import { ConfigError, type Problem } from './problem.ts';
import { Secret } from './secret.ts';
import { suggestion } from './suggestion.ts';

/** What the environment decides. Only this file reads the variables of the process. */
export interface Environment {
  /** Pepper of the key hashes; `undefined`: the generated one in the data folder. */
  readonly secret: Secret | undefined;
  /** Path from `TOKENHOUSE_CONFIG`. */
  readonly configFile: string | undefined;
  /** Absolute folder of the model files, shared by all installations of this user. */
  readonly modelDirectory: string;
  readonly hub: { readonly endpoint: string | undefined; readonly token: Secret | undefined };
  /** What pip would use; read only where pip itself is missing. */
  readonly packages: { readonly indexUrl: string | undefined; readonly configurationFiles: readonly string[] };
  readonly proxy: {
    readonly http: string | undefined;
    readonly https: string | undefined;
    readonly except: string | undefined;
  };
  /** false: `NO_COLOR` asks for plain text. */
  readonly color: boolean;
  /** For child processes that are not ours: everything but the secrets above. */
  readonly childVariables: Readonly<Record<string, string>>;
  /** A variable that the configuration names, such as `api_key_env`. */
  variable(name: string): string | undefined;
  /** Oddities that stop nothing. */
  readonly warnings: readonly Problem[];
}

/** Reads the variables once. Throws `ConfigError` when one cannot be used. */
export function readEnvironment(variables: Readonly<Record<string, string | undefined>> = process.env): Environment {
  // A variable that is set to nothing counts as not set.
  const get = (name: string): string | undefined => variables[name] || undefined;
  const problems = [...secretProblems(get), ...endpointProblems(get)];
  if (problems.length > 0) throw new ConfigError(problems);
  const home = get('HOME') ?? get('USERPROFILE') ?? homeOfUser();
  const secret = get('TOKENHOUSE_SECRET');
  const token = get('HF_TOKEN');
  return Object.freeze({
    secret: secret === undefined ? undefined : new Secret(secret),
    configFile: get('TOKENHOUSE_CONFIG'),
    modelDirectory: path.resolve(
      get('TOKENHOUSE_MODEL_DIR') ??
        path.join(get('XDG_CACHE_HOME') ?? path.join(home, '.cache'), 'tokenhouse', 'models'),
    ),
    hub: {
      endpoint: get('HF_ENDPOINT')?.replace(/\/+$/, ''),
      token: token === undefined ? undefined : new Secret(token),
    },
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

/** `TOKENHOUSE_KEY` and `TOKENHOUSE_URL` are read by command lines that the documentation prints, not by the service. */
const knownVariables = [
  'TOKENHOUSE_SECRET',
  'TOKENHOUSE_CONFIG',
  'TOKENHOUSE_MODEL_DIR',
  'TOKENHOUSE_KEY',
  'TOKENHOUSE_URL',
];

const secretLengthMin = 32;

function secretProblems(get: (name: string) => string | undefined): Problem[] {
  const secret = get('TOKENHOUSE_SECRET');
  if (secret === undefined || secret.length >= secretLengthMin) return [];
  const what = `has ${secret.length} characters, and whoever guesses it can forge keys; use ${secretLengthMin} random ones or more, for example of: openssl rand -hex 32`;
  return [{ where: 'TOKENHOUSE_SECRET', what }];
}

function endpointProblems(get: (name: string) => string | undefined): Problem[] {
  const endpoint = get('HF_ENDPOINT');
  if (endpoint === undefined || (/^https?:\/\//.test(endpoint) && URL.canParse(endpoint))) return [];
  return [
    { where: 'HF_ENDPOINT', what: 'is no URL, so no model can be fetched through it; write https://host, or unset it' },
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
  const kept = Object.entries(variables).filter(([name]) => !name.startsWith('TOKENHOUSE_') && name !== 'HF_TOKEN');
  return Object.fromEntries(kept.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

function unknownVariables(variables: Readonly<Record<string, string | undefined>>): Problem[] {
  const unknown = Object.keys(variables).filter(
    (name) => name.startsWith('TOKENHOUSE_') && !knownVariables.includes(name),
  );
  return unknown.map((name) => {
    const near = suggestion(name, knownVariables);
    const repair = near === undefined ? `known are ${knownVariables.join(', ')}` : `did you mean ${near}?`;
    return { where: name, what: `nothing reads this environment variable; ${repair}` };
  });
}

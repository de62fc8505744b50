import { Resolver } from 'node:dns';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import type { TSchema } from 'typebox';
import { rangeOf } from '../platform/ip/ranges.ts';
import { isCountry } from '../tax/countries.ts';
import { defaultTaxNotes } from '../tax/tax.ts';
import { parseSource, type ModelFileSource } from './model-source.ts';
import { capabilitiesOf } from './capabilities.ts';
import { check, withoutFaults } from './check.ts';
import type {
  BackendConfig,
  BucketConfig,
  Config,
  FilesConfig,
  ImagesConfig,
  InvoicesConfig,
  LimitsConfig,
  ListenConfig,
  MailConfig,
  PaymentsConfig,
  ModelConfig,
  OidcConfig,
  PlanConfig,
  PricingConfig,
  ServerConfig,
  SheddingConfig,
  SignInConfig,
  StorageConfig,
  WebhooksConfig,
} from './config.ts';
import { scaledDecimal } from './decimal.ts';
import {
  defaultBucket,
  defaultFiles,
  defaultFirstCreditCents,
  defaultInvoices,
  defaultKeepDays,
  defaultLimits,
  defaultMail,
  defaultPayments,
  defaultModels,
  defaultQueue,
  defaultServer,
  defaultSignUp,
  defaultStorage,
  defaultWebhooks,
  workersMax,
} from './defaults.ts';
import { readYaml, type Path, type SourceDocument } from './document.ts';
import type { Environment } from './environment.ts';
import { ConfigError, type Problem } from './problem.ts';
import {
  configSchema,
  type BackendInFile,
  type ConfigFile,
  type ModelInFile,
  type PlanInFile,
  type ProviderInFile,
} from './schema.ts';
import { Secret } from './secret.ts';

export interface ReadOptions {
  /** Absolute path of the file; `undefined` when the text is not from a file. */
  readonly file?: string | undefined;
  /** The name of the file in messages. */
  readonly shownAs?: string | undefined;
  /** The base of relative paths. */
  readonly directory: string;
  readonly environment: Environment;
  readonly scriptSchema?: TSchema | undefined;
  /** See `LoadOptions`. */
  readonly running?: Config | undefined;
}

/**
 * The text of a `tokenhouse.yaml` as a complete, checked and frozen configuration. Throws `ConfigError` with everything that is
 * wrong, in the order of the file: faults of the YAML alone, because nothing after them can be trusted, else the faults of shape,
 * together with the faults of meaning in what has the right shape.
 */
export function readConfig(text: string, options: ReadOptions): Config {
  const document = readYaml(text);
  const shownAs = options.shownAs ?? 'tokenhouse.yaml';
  const problems: Problem[] = document.faults.map(({ place, what }) => ({
    where: `${shownAs}:${place.line}:${place.column}`,
    what,
  }));
  if (problems.length > 0) throw new ConfigError(problems);

  const where = (at: Path, of: 'key' | 'value' = 'value'): string => {
    const place = of === 'key' ? document.placeOfKey(at) : document.placeOf(at);
    return `${shownAs}:${place.line}:${place.column}`;
  };
  const schema = configSchema(options.scriptSchema);
  const value = document.value ?? {};
  const findings = check(schema, value);
  for (const { path: at, at: of, what } of findings) problems.push({ where: where(at, of), what });

  const file = (findings.length === 0 ? value : withoutFaults(schema, value)) as ConfigFile;
  const shapeFaults = new Set(problems.map((problem) => problem.where));
  // Ports and sizes are compared with each other; a comparison with a removed one would be wrong.
  const isServerWhole = !findings.some(({ path: at }) => at[0] === 'server');
  const reading: Reading = {
    document,
    options,
    report: (at, what) => {
      if (shapeFaults.has(where(at)) || (at[0] === 'server' && !isServerWhole)) return;
      problems.push({ where: where(at), what });
    },
  };
  const config: Config = {
    file: options.file,
    server: serverOf(file, reading),
    storage: storageOf(file, reading),
    accounts: {
      firstCreditMicrocents:
        amount(reading, ['accounts', 'first_credit_cents'], 6) ?? scaledDecimal(defaultFirstCreditCents, 6)!,
    },
    plans: plansOf(file.plans ?? [], reading),
    images: imagesOf(file, reading),
    items: { keepDays: file.items?.keep_days ?? defaultKeepDays },
    files: filesOf(file, reading),
    mail: mailOf(file, reading),
    payments: paymentsOf(file, reading),
    invoices: invoicesOf(file, reading),
    webhooks: webhooksOf(file, reading),
    signIn: signInOf(file, reading),
    models: file.models === undefined ? modelsOfDefaults(options) : modelsOf(file.models, reading),
  };
  refuseManyWorkers(config, file.server?.workers, reading);
  if (options.running !== undefined) refuseRestart(options.running, config, document.value, reading);
  if (problems.length > 0) throw new ConfigError(inOrderOfTheFile(problems));
  return deepFreeze(config);
}

/** Ports and storage are bound for the life of the process, so a file that moves them is refused as a whole (reliability S8). */
function refuseRestart(running: Config, next: Config, value: unknown, { report }: Reading): void {
  if (running.file !== undefined && value === null) {
    report([], 'the file is empty, and a running service does not go back to the defaults; restart to do so');
    return;
  }
  const needsRestart = (at: Path): void =>
    report(at, `${at.join('.')} cannot change while the service runs; restart it, or put the old value back`);
  for (const host of ['inference', 'account'] as const) {
    const [before, after] = [running.server[host], next.server[host]];
    if (before.host !== after.host) needsRestart(['server', host, 'host']);
    if (before.port !== after.port) needsRestart(['server', host, 'port']);
    if (before.publicUrl !== after.publicUrl) needsRestart(['server', host, 'public_url']);
  }
  if (running.server.workers !== next.server.workers) needsRestart(['server', 'workers']);
  for (const [name, key] of Object.entries(limitsOfTheProcess) as [keyof typeof limitsOfTheProcess, string][]) {
    if (running.server.limits[name] !== next.server.limits[name]) needsRestart(['server', 'limits', key]);
  }
  for (const [name, key] of Object.entries(sheddingOfTheProcess) as [keyof SheddingConfig, string][]) {
    if (running.server.limits.shedding[name] !== next.server.limits.shedding[name])
      needsRestart(['server', 'limits', key]);
  }
  if (!isSameStorage(running.storage, next.storage)) needsRestart(['storage']);
  const payer = ({ payments: { provider, currency, stripe } }: Config) =>
    JSON.stringify([provider, currency, stripe?.apiUrl ?? null, stripe?.automaticTax ?? false]);
  // The default payment provider follows from the addresses, which then have their own message.
  const isReachedAlike = (['inference', 'account'] as const).every(
    (host) =>
      running.server[host].host === next.server[host].host &&
      running.server[host].publicUrl === next.server[host].publicUrl,
  );
  if (isReachedAlike && payer(running) !== payer(next)) needsRestart(['payments']);
  const placeOf = (bucket: BucketConfig | undefined) => JSON.stringify(bucket ?? null);
  if (placeOf(running.files.bucket) !== placeOf(next.files.bucket)) needsRestart(['files', 'bucket']);
}

/** Limits that were given to the sockets and the memory of the process at its start. */
const limitsOfTheProcess = {
  connectionsMax: 'connections_max',
  requestsPerConnectionMax: 'requests_per_connection_max',
  headersTimeoutMs: 'headers_timeout_seconds',
  bodyTimeoutMs: 'body_timeout_seconds',
  bodyBytesPerSecondMin: 'body_bytes_per_second_min',
  keepAliveTimeoutMs: 'keep_alive_timeout_seconds',
  memoryBytesMax: 'memory_bytes_max',
  cacheBytesMax: 'cache_bytes_max',
} as const;
const sheddingOfTheProcess: Readonly<Record<keyof SheddingConfig, string>> = {
  largeBodiesLagMs: 'shed_large_bodies_lag_seconds',
  newWorkLagMs: 'shed_new_work_lag_seconds',
  newWorkMemoryShare: 'shed_new_work_memory_percent',
  idleConnectionsMemoryShare: 'shed_idle_connections_memory_percent',
};

/** State shared by the steps after the shape check. */
interface Reading {
  readonly document: SourceDocument;
  readonly options: ReadOptions;
  report(at: Path, what: string): void;
}

function inOrderOfTheFile(problems: readonly Problem[]): Problem[] {
  const place = (problem: Problem) => problem.where.split(':').slice(-2).map(Number) as [number, number];
  return problems.toSorted((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
}

function serverOf(file: ConfigFile, reading: Reading): ServerConfig {
  const inference = listenOf(file.server?.inference, defaultServer.inference);
  const account = listenOf(file.server?.account, defaultServer.account);
  if (inference.port === account.port && inference.port !== 0) {
    const at =
      file.server?.account?.port === undefined ? ['server', 'inference', 'port'] : ['server', 'account', 'port'];
    reading.report(
      at,
      `both hosts have port ${account.port}, and only one of them can listen there; give one of them another port`,
    );
  }
  return {
    inference,
    account,
    workers: workersOf(file.server?.workers),
    trustedProxies: trustedProxiesOf(file, reading),
    allowOrigins: (file.server?.inference?.allow_origins ?? []).map((origin) => origin.toLowerCase()),
    limits: limitsOf(file, reading),
  };
}

function trustedProxiesOf({ server }: ConfigFile, { report }: Reading): readonly string[] {
  return present(server?.trusted_proxies ?? []).map(([index, text]) => {
    const range = rangeOf(text);
    const at = ['server', 'trusted_proxies', index];
    if (range === undefined)
      report(at, 'neither an address nor a range of them; write for example 127.0.0.1, 10.0.0.0/24 or 2001:db8::/64');
    else if (range.prefix === 0)
      report(at, 'every address there is, so any client could say that it is another; name the proxies alone');
    return text;
  });
}

type WorkersInFile = NonNullable<ConfigFile['server']>['workers'];

const workersOf = (workers: WorkersInFile = defaultServer.workers): number =>
  workers === 'auto' ? Math.min(workersMax, Math.max(1, availableParallelism())) : workers;

/** Refuses what several processes cannot do: an embedded model, or a backend that takes fewer requests than there are workers. */
function refuseManyWorkers({ server, models }: Config, written: WorkersInFile, { report }: Reading): void {
  const { workers } = server;
  if (workers === 1) return;
  const here = written === 'auto' ? `${workers}, one for each processor of this computer` : String(workers);
  const embedded = models.find(({ backends }) => backends.some(({ engine }) => engine === 'llama'));
  if (embedded !== undefined)
    report(
      ['server', 'workers'],
      `workers is ${here}, and ${embedded.id} runs embedded (engine: llama), so each worker would load it and all would compete for ` +
        'the processors; write workers: 1, or run the model in a llama-server of its own and name that as a backend (engine: openai, flavor: llama-server)',
    );
  for (const [index, model] of models.entries()) {
    for (const [place, backend] of model.backends.entries()) {
      if (backend.engine !== 'openai' || (backend.concurrencyMax ?? workers) >= workers) continue;
      report(
        ['models', index, 'backends', place, 'max_concurrency'],
        `max_concurrency is ${backend.concurrencyMax} and workers is ${here}: the workers share it, and each has at least one request; raise it to ${workers}, or lower workers`,
      );
    }
  }
}

type ListenInFile = NonNullable<NonNullable<ConfigFile['server']>['account']>;

function listenOf(
  listen: ListenInFile | undefined,
  defaults: { readonly host: string; readonly port: number },
): ListenConfig {
  return {
    host: listen?.host ?? defaults.host,
    port: listen?.port ?? defaults.port,
    publicUrl: listen?.public_url?.replace(/\/+$/, ''),
  };
}

function limitsOf(file: ConfigFile, reading: Reading): LimitsConfig {
  const limits = { ...defaultLimits, ...file.server?.limits };
  const milliseconds = (seconds: number) => Math.max(1, Math.round(seconds * 1000));
  if (limits.bodies_in_flight_bytes_max < limits.body_bytes_max) {
    const key =
      file.server?.limits?.bodies_in_flight_bytes_max === undefined ? 'body_bytes_max' : 'bodies_in_flight_bytes_max';
    reading.report(
      ['server', 'limits', key],
      'bodies_in_flight_bytes_max is below body_bytes_max, so the largest allowed body could never be taken; raise the one or lower the other',
    );
  }
  if (limits.body_timeout_seconds < limits.headers_timeout_seconds) {
    const key =
      file.server?.limits?.body_timeout_seconds === undefined ? 'headers_timeout_seconds' : 'body_timeout_seconds';
    reading.report(
      ['server', 'limits', key],
      'body_timeout_seconds, which counts from the first byte of the headers, is below headers_timeout_seconds; raise the one or lower the other',
    );
  }
  return {
    bodyBytesMax: limits.body_bytes_max,
    bodiesInFlightBytesMax: limits.bodies_in_flight_bytes_max,
    firstTokenTimeoutMs: milliseconds(limits.first_token_timeout_seconds),
    streamIdleTimeoutMs: milliseconds(limits.stream_idle_timeout_seconds),
    requestTimeoutMs: milliseconds(limits.request_timeout_seconds),
    primeTimeoutMs: milliseconds(limits.prime_timeout_seconds),
    drainTimeoutMs: milliseconds(limits.drain_timeout_seconds),
    readerStallTimeoutMs: milliseconds(limits.reader_stall_timeout_seconds),
    concurrencyPerAccountMax: limits.concurrency_per_account_max,
    cacheBytesMax: file.server?.limits?.cache_bytes_max,
    connectionsMax: limits.connections_max,
    requestsPerConnectionMax: limits.requests_per_connection_max,
    headersTimeoutMs: milliseconds(limits.headers_timeout_seconds),
    bodyTimeoutMs: milliseconds(limits.body_timeout_seconds),
    bodyBytesPerSecondMin: limits.body_bytes_per_second_min,
    keepAliveTimeoutMs: milliseconds(limits.keep_alive_timeout_seconds),
    requestsRunningMax: limits.requests_running_max,
    memoryBytesMax: file.server?.limits?.memory_bytes_max,
    shedding: {
      largeBodiesLagMs: milliseconds(limits.shed_large_bodies_lag_seconds),
      newWorkLagMs: milliseconds(limits.shed_new_work_lag_seconds),
      newWorkMemoryShare: limits.shed_new_work_memory_percent / 100,
      idleConnectionsMemoryShare: limits.shed_idle_connections_memory_percent / 100,
    },
  };
}

function storageOf(file: ConfigFile, { options, report }: Reading): StorageConfig {
  const written = file.storage ?? defaultStorage;
  const variable = /^env:(.+)$/.exec(written)?.[1];
  const storage = variable === undefined ? written : (options.environment.variable(variable) ?? '');
  if (variable !== undefined && !/^(sqlite:.|postgres(ql)?:\/\/)/.test(storage)) {
    const state = storage === '' ? 'is not set' : 'is neither sqlite:… nor postgres://…';
    report(['storage'], `the environment variable ${variable} ${state}, so nothing could be stored`);
  }
  if (!/^postgres(ql)?:/.test(storage)) {
    const absolute = path.resolve(options.directory, storage.slice('sqlite:'.length));
    return { type: 'sqlite', path: absolute, directory: path.dirname(absolute) };
  }
  const url = URL.canParse(storage) ? new URL(storage) : undefined;
  // The URL may hold a password, so it is not repeated.
  if (url === undefined || url.host === '' || url.pathname.length < 2)
    report(['storage'], 'not the address of a PostgreSQL database; write postgres://user@host:5432/database');
  else if (url.password !== '' && variable === undefined)
    report(
      ['storage'],
      'a password in a file ends up in backups and logs; put it into the environment variable ' +
        'TOKENHOUSE_POSTGRES_PASSWORD or the PostgreSQL password file (~/.pgpass), or all of the URL into a variable: storage: env:DATABASE_URL',
    );
  return {
    type: 'postgres',
    url: new Secret(storage),
    password: options.environment.postgresPassword,
    shown: url === undefined ? '' : `postgres://${url.host}${url.pathname}`,
    directory: path.resolve(options.directory, 'data'),
  };
}

const isSameStorage = (one: StorageConfig, other: StorageConfig): boolean =>
  one.type === 'sqlite'
    ? other.type === 'sqlite' && one.path === other.path
    : other.type === 'postgres' && one.url.reveal() === other.url.reveal();

/** In the format of `URL.host`: lower case, and a port unless it is 443. */
function hostsOf(
  texts: readonly string[] | undefined,
  at: Path,
  example: string,
  { report }: Reading,
): readonly string[] {
  return present(texts ?? []).flatMap(([index, text]) => {
    const url = URL.canParse(`https://${text}/`) ? new URL(`https://${text}/`) : undefined;
    if (url !== undefined && /^[^/?#@\\]+$/.test(text)) return [url.host.replace(/\.(?=$|:\d+$)/, '')];
    report([...at, index], `not a host; write its name or address alone, such as ${example}`);
    return [];
  });
}

function invoicesOf({ invoices }: ConfigFile, { options, report }: Reading): InvoicesConfig {
  const { seller, tax, prefix = defaultInvoices.prefix, font } = invoices ?? {};
  for (const [index, { country }] of present(tax?.countries ?? [])) {
    const at = ['invoices', 'tax', 'countries', index, 'country'];
    if (!isCountry(country)) report(at, `${country} is no country of ISO 3166-1; Greece is GR, the United Kingdom GB`);
    else if (tax?.countries?.findIndex((other) => other.country === country) !== index)
      report(at, `${country} has a rate above already; leave one of them out`);
  }
  if (seller?.country !== undefined && !isCountry(seller.country))
    report(['invoices', 'seller', 'country'], `${seller.country} is no country of ISO 3166-1; write for example DE`);
  const file = font === undefined ? undefined : path.resolve(options.directory, font);
  if (file !== undefined && !existsSync(file))
    report(
      ['invoices', 'font'],
      `there is no such file; write the path of a TrueType or OpenType font, or leave it out`,
    );
  return {
    seller:
      seller === undefined
        ? undefined
        : { name: seller.name, address: seller.address ?? [], taxId: seller.tax_id, email: seller.email },
    tax: {
      sellerCountry: seller?.country ?? null,
      rate: tax === undefined ? null : { name: tax.name, ratePerMille: tax.rate_per_mille },
      byCountry: (tax?.countries ?? []).map(({ country, name = tax!.name, rate_per_mille: ratePerMille }) => ({
        country,
        name,
        ratePerMille,
      })),
      notes: {
        exempt: invoices?.exempt_note ?? defaultTaxNotes.exempt,
        reverseCharge: invoices?.reverse_charge_note ?? defaultTaxNotes.reverseCharge,
      },
    },
    prefix,
    font: file,
  };
}

function webhooksOf({ webhooks }: ConfigFile, reading: Reading): WebhooksConfig {
  const { allow_hosts: hosts, disable_after_days: days = defaultWebhooks.disable_after_days } = webhooks ?? {};
  return {
    allowedHosts: hostsOf(hosts, ['webhooks', 'allow_hosts'], '127.0.0.1:9000', reading),
    disableAfterMs: days * 86_400_000,
  };
}

function imagesOf({ images }: ConfigFile, reading: Reading): ImagesConfig {
  const { report } = reading;
  const allowedHosts = hostsOf(images?.allow_hosts, ['images', 'allow_hosts'], 'images.lan:8443', reading);
  const dnsServers = present(images?.dns_servers ?? []).map(([index, text]) => {
    try {
      new Resolver().setServers([text]);
    } catch {
      report(['images', 'dns_servers', index], 'not an address of a name server; write for example 192.0.2.53');
    }
    return text;
  });
  return { fetches: images?.fetch ?? true, allowedHosts, dnsServers };
}

function filesOf({ files }: ConfigFile, { options, report }: Reading): FilesConfig {
  const { bucket: name, endpoint, region = defaultBucket.region, prefix = defaultBucket.prefix } = files ?? {};
  if (name !== undefined && options.environment.bucketKeys === undefined) {
    const repair = 'set the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY';
    report(['files', 'bucket'], `nobody could sign in there; ${repair}`);
  }
  const url = endpoint === undefined ? undefined : backendUrl(endpoint, ['files', 'endpoint'], { report });
  const bucket: BucketConfig | undefined =
    name === undefined
      ? undefined
      : {
          name,
          endpoint: url,
          region,
          prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`,
          pathStyle: files?.path_style ?? url !== undefined,
        };
  return {
    perAccountMax: files?.files_per_account_max ?? defaultFiles.files_per_account_max,
    bytesPerAccountMax: files?.bytes_per_account_max ?? defaultFiles.bytes_per_account_max,
    bucket,
  };
}

/** The built-in provider gives credit for nothing: it must be requested explicitly where other computers' users can pay. */
function paymentsOf(file: ConfigFile, { options, report }: Reading): PaymentsConfig {
  const { payments, server } = file;
  const isReached =
    server?.account?.public_url !== undefined ||
    server?.inference?.public_url !== undefined ||
    !isLoopbackName(server?.account?.host ?? defaultServer.account.host);
  const provider = payments?.provider ?? (isReached ? 'none' : 'demo');
  const topupCentsMin = payments?.topup_cents_min ?? defaultPayments.topup_cents_min;
  const topupCentsMax = payments?.topup_cents_max ?? defaultPayments.topup_cents_max;
  if (topupCentsMin > topupCentsMax)
    report(['payments', 'topup_cents_min'], `the least is above the most, which is ${topupCentsMax}; lower it`);
  if (payments?.currency !== undefined && payments.currency !== defaultPayments.currency)
    report(
      ['payments', 'currency'],
      `prices, credit and invoices are in US dollars, and nothing is converted; leave it out, or set it to ${defaultPayments.currency}`,
    );
  const { secretKey, webhookSecret } = options.environment.stripe;
  const common = { provider, currency: payments?.currency ?? defaultPayments.currency, topupCentsMin, topupCentsMax };
  if (provider !== 'stripe') return { ...common, stripe: undefined };
  if (secretKey === undefined || webhookSecret === undefined) {
    const missing = secretKey === undefined ? 'TOKENHOUSE_STRIPE_SECRET_KEY' : 'TOKENHOUSE_STRIPE_WEBHOOK_SECRET';
    report(['payments', 'provider'], `Stripe would not know us; set the environment variable ${missing}`);
    return { ...common, stripe: undefined };
  }
  const { stripe_api_url: apiUrl, stripe_automatic_tax: automaticTax = false } = payments ?? {};
  return { ...common, stripe: { secretKey, webhookSecret, apiUrl, automaticTax } };
}

const isLoopbackName = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|::1|\[::1\])$/i.test(host);

function mailOf({ mail }: ConfigFile, { options, report }: Reading): MailConfig {
  const { from, smtp } = mail ?? {};
  if (smtp === undefined) return { from, smtp };
  if (from === undefined)
    report(['mail', 'smtp'], 'no server takes mail from nobody; write mail.from: Tokenhouse <tokenhouse@example.org>');
  const password = options.environment.smtpPassword;
  if (smtp.user !== undefined && password === undefined)
    report(
      ['mail', 'smtp', 'user'],
      'nobody could sign in there; set the environment variable TOKENHOUSE_SMTP_PASSWORD',
    );
  return {
    from,
    smtp: {
      host: smtp.host,
      port: smtp.port ?? defaultMail.port,
      secure: smtp.secure ?? defaultMail.secure,
      user: smtp.user,
      password: smtp.user === undefined ? undefined : password,
    },
  };
}

function signInOf({ sign_in: signIn }: ConfigFile, reading: Reading): SignInConfig {
  const seen = new Set<string>();
  const oidc = present(signIn?.oidc ?? []).map(([index, provider]) => {
    const at = ['sign_in', 'oidc', index];
    if (seen.has(provider.id)) reading.report([...at, 'id'], `another provider is called ${provider.id}; rename one`);
    seen.add(provider.id);
    return providerOf(provider, at, reading);
  });
  return { signUp: signIn?.sign_up ?? defaultSignUp, oidc };
}

function providerOf(provider: ProviderInFile, at: Path, { options, report }: Reading): OidcConfig {
  const { id, name = id, client_id: clientId, client_secret_env: variable } = provider;
  const issuer = provider.issuer.replace(/\/+$/, '');
  const { protocol, hostname } = URL.canParse(issuer) ? new URL(issuer) : { protocol: '', hostname: '' };
  if (protocol !== 'https:' && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname))
    report([...at, 'issuer'], 'whoever is on the way could sign in as anybody; write an https URL');
  const secret = variable === undefined ? undefined : options.environment.variable(variable);
  if (variable !== undefined && secret === undefined)
    report(
      [...at, 'client_secret_env'],
      `the environment variable ${variable} is not set; set it, or remove this line where the provider wants none`,
    );
  return {
    id,
    name,
    issuer,
    clientId,
    clientSecret: secret === undefined ? undefined : new Secret(secret),
    domains: provider.domains.map((domain) => domain.toLowerCase()),
  };
}

function plansOf(plans: readonly PlanInFile[], { report }: Reading): readonly PlanConfig[] {
  const seen = new Set<string>();
  return present(plans).map(([index, plan]) => {
    const { name, included_requests: requests, window_hours: hours } = plan;
    if (seen.has(name)) report(['plans', index, 'name'], `there are two plans ${name}; rename one`);
    seen.add(name);
    if ((requests === undefined) !== (hours === undefined)) {
      report(
        ['plans', index, requests === undefined ? 'window_hours' : 'included_requests'],
        'included_requests and window_hours belong together; write both, or neither',
      );
    }
    return {
      name,
      quota:
        requests === undefined || hours === undefined
          ? undefined
          : { requests, windowMs: Math.round(hours * 3_600_000) },
      requestsPerMinute: plan.requests_per_minute,
      tokensPerMinute: plan.tokens_per_minute,
      concurrencyMax: plan.max_concurrency,
    };
  });
}

function modelsOfDefaults(options: ReadOptions): readonly ModelConfig[] {
  return readConfig(defaultModels, { ...options, shownAs: 'defaults', file: undefined, running: undefined }).models;
}

function modelsOf(models: readonly ModelInFile[], reading: Reading): readonly ModelConfig[] {
  const seen = new Map<string, string>();
  return present(models).map(([index, model]) => {
    const at: Path = ['models', index];
    const earlier = seen.get(model.id.toLowerCase());
    if (earlier !== undefined) {
      reading.report(
        [...at, 'id'],
        `the id "${model.id}" is taken by "${earlier}" (upper and lower case are the same), so requests could mean either; rename one`,
      );
    }
    seen.set(model.id.toLowerCase(), model.id);
    return modelOf(model, at, reading);
  });
}

/** The entries of a list that `withoutFaults` has left, with their positions in the file. */
function present<Entry>(list: readonly Entry[]): readonly (readonly [number, Entry])[] {
  return [...list.entries()].filter(([, entry]) => entry !== undefined);
}

function modelOf(model: ModelInFile, at: Path, reading: Reading): ModelConfig {
  const maxOutputTokens = model.max_output_tokens ?? null;
  if (maxOutputTokens !== null && maxOutputTokens > model.context_length) {
    reading.report(
      [...at, 'max_output_tokens'],
      `max_output_tokens is above context_length (${model.context_length}), which no answer can reach; lower it, or write null`,
    );
  }
  const backends = backendsOf(model.backends, [...at, 'backends'], reading);
  return {
    id: model.id,
    displayName: model.display_name ?? model.id,
    description: model.description,
    ownedBy: model.owned_by ?? 'tokenhouse',
    tier: model.tier,
    deprecationDate: dayOf(model.deprecation_date, [...at, 'deprecation_date'], reading),
    dedicatedTo: model.dedicated_to ?? [],
    contextLength: model.context_length,
    maxOutputTokens,
    pricing: pricingOf(model, [...at, 'pricing'], reading),
    sampling: model.sampling ?? 'honor',
    ...capabilitiesOf(model, backends, (inside, what) => reading.report([...at, ...inside], what)),
    template: { defaultSystem: model.template?.default_system ?? 'template' },
    backends,
  };
}

/** The pattern of the schema accepts the 31st of February. */
function dayOf(text: string | undefined, at: Path, { report }: Reading): string | undefined {
  const time = Date.parse(`${text}T00:00:00Z`);
  if (text !== undefined && !(Number.isFinite(time) && new Date(time).toISOString().startsWith(text)))
    report(at, `there is no day ${text}, so the model would never be retired; write a date such as 2027-06-30`);
  return text;
}

/** The forms that a price may have in the file. */
const priceForms = {
  input: ['input_dollars_per_million', 'input_cents_per_million'],
  output: ['output_dollars_per_million', 'output_cents_per_million'],
  cacheRead: ['cache_read_dollars_per_million', 'cache_read_cents_per_million', 'cache_read_microcents_per_million'],
} as const;

function pricingOf(model: ModelInFile, at: Path, reading: Reading): PricingConfig {
  const given = (which: keyof typeof priceForms): readonly (keyof ModelInFile['pricing'])[] =>
    priceForms[which].filter((form) => model.pricing[form] !== undefined);
  const priceOf = (which: keyof typeof priceForms): bigint | undefined => {
    const [form, other] = given(which);
    if (form === undefined) return undefined;
    if (other !== undefined)
      reading.report([...at, other], `this price stands here twice, as ${form} too; keep one of the two`);
    return amount(reading, [...at, form], placesOf(form));
  };
  const isInCents = Object.keys(model.pricing).some((form) => form.includes('cents'));
  const needed = (which: 'input' | 'output'): bigint => {
    const price = priceOf(which);
    // An invalid price has been reported already.
    if (price === undefined && !priceForms[which].some((form) => reading.document.has([...at, form]))) {
      const [inDollars, inCents] = priceForms[which];
      const [form, example] = isInCents ? [inCents, 5] : [inDollars, 0.05];
      reading.report(
        at,
        `"${form}" is missing in models[${at[1]}].pricing; add it, for example ${form}: ${example}, or 0 to give these tokens away`,
      );
    }
    return price ?? 0n;
  };
  const input = needed('input');
  const output = needed('output');
  const cacheRead = priceOf('cacheRead') ?? input;
  if (cacheRead > input) {
    // A hold is taken at the input price, and a charge never exceeds its hold (reliability I2).
    reading.report(
      [...at, given('cacheRead')[0]!],
      'cached tokens would cost more than uncached ones, and no hold covers that; lower it to the input price or below',
    );
  }
  return {
    inputMicrocentsPerMillion: input,
    outputMicrocentsPerMillion: output,
    cacheReadMicrocentsPerMillion: cacheRead,
  };
}

/** Decimal places of a unit: a dollar has 10⁸ microcents, a cent 10⁶. */
const placesOf = (form: string): keyof typeof amountRules =>
  form.includes('dollars') ? 8 : form.includes('micro') ? 0 : 6;

/** Largest price and credit, in microcents: sums of them stay far inside 64 bits. */
const amountMax = 10n ** 15n;

const amountRules = {
  0: 'a whole number of microcents, for example 2500000',
  6: 'cents with at most six decimal places, for example 2.5',
  8: 'dollars with at most eight decimal places, for example 0.125',
} as const;

/** The amount at `path` in microcents, from its decimal text: `places` is 6 where it is written in cents, 8 in dollars. */
function amount({ document, report }: Reading, at: Path, places: keyof typeof amountRules): bigint | undefined {
  const text = document.textOf(at);
  if (text === undefined) return undefined;
  const microcents = scaledDecimal(text, places);
  if (microcents !== undefined && microcents <= amountMax) return microcents;
  const rule = amountRules[places];
  report(
    at,
    microcents === undefined
      ? `${String(at.at(-1))} is ${text.slice(0, 60)}, which cannot be counted exactly; write ${rule}`
      : `${String(at.at(-1))} is ${text.slice(0, 60)}, above the largest amount of ${amountMax} microcents; lower it`,
  );
  return 0n;
}

function backendsOf(backends: readonly BackendInFile[], at: Path, reading: Reading): readonly BackendConfig[] {
  const names = new Set<string>();
  return present(backends).map(([index, backend]) => {
    const name = backend.name ?? (backends.length === 1 ? backend.engine : `${backend.engine}-${index + 1}`);
    if (names.has(name))
      reading.report(
        [...at, index],
        `another backend of this model is called "${name}" too, so logs could not tell them apart; give it another name`,
      );
    names.add(name);
    return backendOf(backend, name, [...at, index], reading);
  });
}

function backendOf(backend: BackendInFile, name: string, at: Path, reading: Reading): BackendConfig {
  switch (backend.engine) {
    case 'llama':
      return {
        engine: 'llama',
        name,
        zdr: backend.zdr ?? false,
        sources: sourcesOf(backend.sources, [...at, 'sources'], reading),
        sha256: backend.sha256.toLowerCase(),
        bytes: backend.bytes,
        slots: backend.slots,
        queueMax: backend.queue ?? defaultQueue,
        threads: backend.threads,
        decodeThreads: backend.decode_threads,
        idleUnloadMs:
          backend.idle_unload_minutes === undefined
            ? undefined
            : Math.max(1, Math.round(backend.idle_unload_minutes * 60_000)),
        memoryBytesMax: backend.memory_bytes_max,
      };
    case 'openai':
      return {
        engine: 'openai',
        name,
        flavor: backend.flavor,
        url: backendUrl(backend.url, [...at, 'url'], reading),
        model: backend.model,
        apiKey: apiKeyOf(backend, at, reading),
        zdr: backend.zdr ?? false,
        concurrencyMax: backend.max_concurrency,
        queueMax: backend.queue ?? defaultQueue,
        specialTokens: { mode: backend.special_tokens ?? 'pass', texts: backend.special_token_texts ?? [] },
        systemMessages: backend.system_messages ?? 'anywhere',
        forward: backend.forward ?? [],
      };
    case 'scripted': {
      const last: unknown = backend.scripts.at(-1);
      if (typeof last === 'object' && last !== null && Object.hasOwn(last, 'when'))
        reading.report(
          [...at, 'scripts', backend.scripts.length - 1, 'when'],
          'the last script is played when no other one is for the request, so it has no `when`; remove it, or add a last script',
        );
      return { engine: 'scripted', name, zdr: backend.zdr ?? false, scripts: backend.scripts };
    }
  }
}

function sourcesOf(sources: readonly string[], at: Path, { options, report }: Reading): readonly ModelFileSource[] {
  return present(sources).flatMap(([index, text]) => {
    const source = parseSource(text, options.directory);
    if (!('problem' in source)) return [source];
    report([...at, index], source.problem);
    return [];
  });
}

function backendUrl(text: string, at: Path, { report }: Pick<Reading, 'report'>): string {
  if (!URL.canParse(text))
    report(at, 'not a URL, so no request could be sent there; write for example http://10.0.0.5:8000/v1');
  else if (new URL(text).username !== '' || new URL(text).password !== '')
    report(at, 'a name or password in a URL ends up in logs; use api_key_env instead');
  return text.replace(/\/+$/, '');
}

function apiKeyOf(
  backend: Extract<BackendInFile, { engine: 'openai' }>,
  at: Path,
  { options, report }: Reading,
): Secret | undefined {
  if (backend.api_key_env === undefined) return backend.api_key === undefined ? undefined : new Secret(backend.api_key);
  if (backend.api_key !== undefined)
    report([...at, 'api_key'], 'the key stands here twice, as api_key and as api_key_env; keep one of the two');
  const value = options.environment.variable(backend.api_key_env);
  if (value !== undefined) return new Secret(value);
  report(
    [...at, 'api_key_env'],
    `the environment variable ${backend.api_key_env} is not set, so the server would refuse every request; set it, or remove this line`,
  );
  return undefined;
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}

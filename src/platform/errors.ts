/**
 * The one table of public error codes (specification part 7, contracts decision 19) and the one way to build an error. Responses,
 * documentation pages and tests read this table; nothing else defines a status or a bucket.
 */

/** Coarse bucket of an error, `error.type` on the wire (specification §7.2 to §7.8). */
export type ErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'rate_limit_error'
  | 'insufficient_credits'
  | 'routing_error'
  | 'server_error'
  | 'internal_error';

export interface ErrorRow {
  readonly type: ErrorType;
  readonly status: number;
  /** When it happens, for the page of the code. */
  readonly meaning: string;
  /** What the caller can do about it. */
  readonly remedy: string;
  /** Whether the same request may succeed later without a change. */
  readonly retry: 'no' | 'after a change elsewhere' | 'with exponential backoff' | 'after Retry-After';
}

const row = (type: ErrorType, status: number, retry: ErrorRow['retry'], meaning: string, remedy: string): ErrorRow => ({
  type,
  status,
  meaning,
  remedy,
  retry,
});
const invalid = (status: number, meaning: string, remedy: string) =>
  row('invalid_request_error', status, 'no', meaning, remedy);

export const errorTable = {
  // §7.2
  schema_validation_failed: invalid(
    422,
    'The body does not match the schema of the endpoint: a field has the wrong type, range or shape.',
    'Correct the field that `param` names.',
  ),
  tool_schema_invalid: invalid(
    400,
    '`tools[i].function.parameters` is not a JSON Schema of an object.',
    'Send a schema with `"type": "object"` and `properties`.',
  ),
  tool_choice_unknown_tool: invalid(
    400,
    '`tool_choice` names a function that is not among `tools`.',
    'Name one of the tools of the request.',
  ),
  orphan_tool_message: invalid(
    400,
    'A `tool` message answers a call that no preceding assistant message made.',
    'Send the assistant message with its `tool_calls` before the results.',
  ),
  missing_tool_call_id: invalid(
    400,
    'A `tool` message has no `tool_call_id`.',
    'Copy the `id` of the call that it answers.',
  ),
  unsupported_parameter: invalid(
    400,
    'The endpoint or the model does not support the parameter that `param` names.',
    'Leave the parameter out, or choose a model whose card has it.',
  ),
  unsupported_feature: invalid(
    400,
    'The model does not support a feature that the request needs.',
    'Check the capabilities on the cards (`GET /v1/models`) and choose a model that has the feature.',
  ),
  unsupported_response_format: invalid(
    400,
    'The model does not support this `response_format.type`.',
    'Choose a model whose card has the matching flag.',
  ),
  unsupported_regex: invalid(
    400,
    'The model does not support the top-level `regex`.',
    'Choose a model whose card has `chat_completions.regex`.',
  ),
  unsupported_tool_type: invalid(400, 'A tool has a `type` other than `function`.', 'Offer function tools only.'),
  json_schema_refs_unsupported: invalid(
    400,
    'A schema has a remote, unresolved, recursive or oversized `$ref`.',
    'Use local references to `#/$defs/…` or `#/definitions/…` that do not recur.',
  ),
  duplicate_tool_name: invalid(400, 'Two tools have the same `function.name`.', 'Give every tool a name of its own.'),
  context_length_exceeded: invalid(
    400,
    'The prompt and the requested answer do not fit the context window of the model.',
    'Lower `max_tokens`, shorten the prompt, or use one of `suggested_models`.',
  ),
  model_not_found: invalid(
    404,
    'No model that this key can use has this id, or the model is retired.',
    'Use an id of `GET /v1/models`; the message lists them.',
  ),
  model_not_allowed: row(
    'invalid_request_error',
    403,
    'after a change elsewhere',
    'The model exists, but this key is not entitled to it.',
    'Use another key or another model, or ask the owner of the account.',
  ),
  invalid_zdr_header: invalid(
    400,
    'The header `Service-ZDR` has a value other than `required`.',
    'Send `Service-ZDR: required` or leave the header out.',
  ),
  invalid_request_tag: invalid(
    400,
    'A `Service-Request-Tag` does not match `^[a-z0-9_-]{1,32}$`, or there are more than eight.',
    'Send at most eight short tags.',
  ),
  model_zdr_not_supported: invalid(
    400,
    'Zero data retention was required of a model that does not offer it.',
    'Choose a model whose card has `zdr_supported`.',
  ),
  invalid_json_request: invalid(
    400,
    'The body is empty, is not valid JSON, or lacks a required top-level field.',
    'Send a JSON object with the required fields of the endpoint.',
  ),
  request_body_too_large: invalid(
    413,
    'The body has 50 MB (52,428,800 bytes) or more, or an uploaded file has more.',
    'Send less, for example smaller images.',
  ),
  model_request_rejected: invalid(
    400,
    'An image could not be fetched from its URL, or it is not a supported image.',
    'Send the image as a data URI, or make the URL publicly readable.',
  ),
  unsupported_value: invalid(
    400,
    'A field has a value that is not supported, for example an unknown reasoning effort.',
    'Use one of the values that the message lists.',
  ),
  // §7.3
  missing_api_key: row(
    'authentication_error',
    401,
    'no',
    'The request carries no API key.',
    'Send `Authorization: Bearer <key>` or `x-api-key: <key>`.',
  ),
  invalid_api_key: row(
    'authentication_error',
    401,
    'no',
    'The API key does not match a live key: it is mistyped, revoked, or from another server.',
    'Check for blanks and missing characters, or create a new key.',
  ),
  // §7.4
  http_403: row(
    'permission_error',
    403,
    'after a change elsewhere',
    'The key is valid, but has no access to this endpoint or resource, or the account has no room for another file. On the account API: a role, a kind of key or a fresh sign-in is missing.',
    'Use a key with access, delete files, or ask the owner of the account.',
  ),
  files_require_user_key: row(
    'permission_error',
    403,
    'no',
    'Files can be uploaded only with a key that belongs to a user.',
    'Create a user-scoped key.',
  ),
  // §7.5
  concurrency_limit_exceeded: row(
    'rate_limit_error',
    429,
    'after Retry-After',
    'Too many requests of the account are running.',
    'Wait for one to end.',
  ),
  request_quota_exceeded: row(
    'rate_limit_error',
    429,
    'after Retry-After',
    'The account has used the requests that its plan includes in this window.',
    'Wait for `window_end`, or change the plan.',
  ),
  rate_limit_exceeded: row(
    'rate_limit_error',
    429,
    'after Retry-After',
    'Too many requests, tokens or too much spending in a short time, of a key or an account, on all models or on one.',
    'Send fewer, or have the limit raised that `limit_of` and `limit_model` name.',
  ),
  backend_at_capacity: row(
    'rate_limit_error',
    429,
    'with exponential backoff',
    'All slots of the model, or of the service, are in use.',
    'Try again a little later.',
  ),
  backend_overloaded: row(
    'rate_limit_error',
    429,
    'with exponential backoff',
    'The backend of the model is at its limit.',
    'Try again a little later.',
  ),
  // §7.6
  insufficient_credits: row(
    'insufficient_credits',
    402,
    'after a change elsewhere',
    'The prepaid balance, or a budget of the key, its member, its account or the conversation, does not cover the request.',
    'Add credit (`topup_url`), have the budget raised or wait until `budget_renews_at`, lower `max_tokens`, or begin a new conversation.',
  ),
  // §7.7
  no_healthy_backends: row(
    'routing_error',
    503,
    'with exponential backoff',
    'No backend of the model is available.',
    'Try again later, or use another model.',
  ),
  backend_timeout: row(
    'server_error',
    504,
    'with exponential backoff',
    'The backend accepted the request but did not answer in time.',
    'Try again.',
  ),
  backend_connect_error: row(
    'server_error',
    502,
    'with exponential backoff',
    'The connection to the backend could not be opened.',
    'Try again.',
  ),
  backend_http_error: row(
    'server_error',
    502,
    'with exponential backoff',
    'The backend failed, or answered something that cannot be interpreted.',
    'Try again.',
  ),
  // §7.8
  internal_error: row(
    'internal_error',
    500,
    'with exponential backoff',
    'The service itself failed.',
    'Try again; if it persists, report the request id.',
  ),
  // Contracts decision 19: what part 7 does not list is http_<status>.
  http_404: invalid(
    404,
    'The route does not exist, or you have nothing with this id.',
    'Check the path, the base URL and the id.',
  ),
  http_405: invalid(405, 'The route exists, but not with this method.', 'Use a method of the `Allow` header.'),
  http_408: invalid(408, 'The request did not arrive in time.', 'Send the request faster, or check the network.'),
  http_409: invalid(
    409,
    'A request with this `Idempotency-Key` was answered and charged before, and its answer was not kept: zero data retention, or too long. On the account API: the change conflicts with existing data.',
    'Look the request up by `first_request_id`; to ask again, use another key. On the account API, read the present state and decide again.',
  ),
  http_415: invalid(
    415,
    'The body has a type or an encoding that this route does not take.',
    'Send uncompressed `application/json`, and `multipart/form-data` to `/v1/files`.',
  ),
  http_417: invalid(417, 'The `Expect` header asks for something other than `100-continue`.', 'Leave the header out.'),
  http_431: invalid(431, 'The headers of the request are too large or too many.', 'Send fewer or smaller headers.'),
  http_505: invalid(505, 'The request is not HTTP/1.0 or HTTP/1.1.', 'Speak HTTP/1.1.'),
  http_400: invalid(400, 'The request is not well-formed HTTP.', 'Check the client or the proxy in between.'),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof errorTable;

/** What the request is charged, for the page of the code (docs/money.md). */
export function chargeOf(row: ErrorRow): string {
  switch (row.type) {
    case 'server_error':
    case 'routing_error':
    case 'internal_error':
      return 'Nothing, whenever it happens.';
    case 'authentication_error':
      return 'Nothing when the request is refused. A key that is revoked in mid-answer pays for the part generated until then.';
    case 'invalid_request_error':
    case 'permission_error':
    case 'rate_limit_error':
    case 'insufficient_credits':
      return 'Nothing.';
  }
}

export interface ErrorDetails {
  /** Path of the field at fault, if there is one (contracts decision 16). */
  readonly param?: string | undefined;
  /** Fields of this code besides the common ones of the envelope, by their wire names. */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** Seconds for `Retry-After`. */
  readonly retryAfterSeconds?: number | undefined;
  /** Further headers of the answer, lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** The code under which the ledger and the log record a failure. */
export const errorCodeOf = (error: unknown): ErrorCode => (error instanceof ApiError ? error.code : 'internal_error');

/** The details of a 429: the cap that was reached and when to retry (specification §7.5). */
export const atCap = (
  cap: number,
  retryAfterSeconds: number,
): Required<Pick<ErrorDetails, 'retryAfterSeconds' | 'headers'>> => ({
  retryAfterSeconds,
  headers: {
    'ratelimit-limit': String(cap),
    'ratelimit-remaining': '0',
    'ratelimit-reset': String(retryAfterSeconds),
  },
});

/** An expected failure that is reported to the client. Thrown where it is found, caught once by the host. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly extra: Readonly<Record<string, unknown>>;
  readonly retryAfterSeconds: number | undefined;
  readonly headers: Readonly<Record<string, string>>;

  /** `message` is sent to the client: it never holds a backend's text, secrets, or content of other requests. */
  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    // A refusal is an answer, not a bug: its stack is of no use, and capturing it is a tenth of the refusal's cost.
    const { stackTraceLimit } = Error;
    if (code !== 'internal_error') Error.stackTraceLimit = 0;
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.param = details.param;
    this.extra = details.extra ?? {};
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.headers = details.headers ?? {};
  }

  get type(): ErrorType {
    return errorTable[this.code].type;
  }

  get status(): number {
    return errorTable[this.code].status;
  }

  /** The same error about another field. */
  at(param: string): ApiError {
    const { extra, retryAfterSeconds, headers, cause } = this;
    return new ApiError(this.code, this.message, { param, extra, retryAfterSeconds, headers, cause });
  }

  /** The same error with more fields in its envelope. */
  with(extra: Readonly<Record<string, unknown>>): ApiError {
    return new ApiError(this.code, this.message, {
      param: this.param,
      extra: { ...this.extra, ...extra },
      retryAfterSeconds: this.retryAfterSeconds,
      headers: this.headers,
      cause: this.cause,
    });
  }
}

/** The inner `error` object of every answer (specification §7.1); dialects wrap it. */
export interface ErrorBody {
  readonly type: ErrorType;
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
  readonly request_id: string;
  readonly docs_url: string;
  readonly [extra: string]: unknown;
}

export function errorBody(error: ApiError, requestId: string, accountUrl: string): ErrorBody {
  return {
    type: error.type,
    code: error.code,
    message: error.message,
    ...(error.param === undefined ? {} : { param: error.param }),
    ...error.extra,
    request_id: requestId,
    docs_url: `${accountUrl}/docs/errors/${error.code}`,
  };
}

/** The public form of an unexpected failure, which says that it happened but not its message. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError('internal_error', 'The service failed while it worked on this request.', { cause: error });
}

import type { ErrorCode } from './errors.ts';

/** An example answer with this code, which its page shows in addition to the table's row. Tests compare it with real answers. */
export interface ErrorExample {
  readonly message: string;
  /** Omitted if the code names no field. */
  readonly param?: string;
  /** Fields of this code besides the common ones: a description and an example of each. */
  readonly extra?: Readonly<Record<string, readonly [what: string, example: unknown]>>;
  /** Headers of this code besides those that every answer has, with a description of each. */
  readonly headers?: Readonly<Record<string, string>>;
}

const model = { model: ['id of the model', 'my-model'] } as const;
const noRetry = { 'x-should-retry': 'false: a retry does not help' } as const;
const retryAfter = { 'Retry-After': 'seconds until a retry makes sense; not on every answer' } as const;
/** Each backend has its own caps. */
const ofBackend = 'not on every answer, because what a backend takes at most is often not known' as const;
const rateLimit = {
  'Retry-After': 'seconds until a retry makes sense',
  'RateLimit-Limit': 'the cap for the window',
  'RateLimit-Remaining': 'remaining: 0',
  'RateLimit-Reset': 'seconds until the window renews',
} as const;

/** One for each code; a code without one is a compile error. */
export const errorExamples: Readonly<Record<ErrorCode, ErrorExample>> = {
  schema_validation_failed: { message: "'temperature' must be a number from 0 to 2.", param: 'temperature' },
  tool_schema_invalid: {
    message: "'tools[0].function.parameters' must be a JSON Schema of type object.",
    param: 'tools[0].function.parameters',
  },
  tool_choice_unknown_tool: {
    message: "'tool_choice' names 'search', which is not among the tools.",
    param: 'tool_choice.function.name',
  },
  orphan_tool_message: {
    message: "No preceding assistant message made the call 'call_1'.",
    param: 'messages[2].tool_call_id',
  },
  missing_tool_call_id: { message: 'A tool message needs tool_call_id.', param: 'messages[2].tool_call_id' },
  unsupported_parameter: { message: "The model 'my-model' does not support 'logit_bias'.", param: 'logit_bias' },
  unsupported_feature: { message: "The model 'my-model' does not support n > 1.", param: 'n' },
  unsupported_response_format: {
    message: "The model 'my-model' does not support response_format 'grammar'.",
    param: 'response_format.type',
  },
  unsupported_regex: { message: "The model 'my-model' does not support regex.", param: 'regex' },
  unsupported_tool_type: { message: "Only tools of type 'function' can be offered.", param: 'tools[0].type' },
  json_schema_refs_unsupported: {
    message: "'response_format.json_schema.schema' at #/properties/next: a remote $ref is not supported.",
    param: 'response_format.json_schema.schema',
  },
  duplicate_tool_name: { message: "Two tools are called 'search'.", param: 'tools[1].function.name' },
  context_length_exceeded: {
    message:
      'The prompt of 9000 tokens with max_tokens 1000 does not fit the context window of 8192 tokens. Lower max_tokens, trim the prompt, or choose a model with a larger context.',
    param: 'messages',
    extra: {
      ...model,
      context_length_limit: ['tokens of prompt and answer together', 8192],
      prompt_tokens: ['tokens of the prompt, where they have been counted', 9000],
      max_tokens: ['maximum of tokens of the answer', 1000],
      suggested_models: [
        'larger models that this key can use, nearest first',
        [{ id: 'my-larger-model', context_length: 32768 }],
      ],
    },
  },
  model_not_found: { message: "No model 'my-modle'. This key can use: my-model.", param: 'model' },
  model_not_allowed: {
    message: "This key is not entitled to the model 'my-larger-model'. This key can use: my-model.",
    param: 'model',
  },
  invalid_zdr_header: { message: "The header Service-ZDR must be 'required' or absent.", param: 'Service-ZDR' },
  invalid_request_tag: {
    message: 'A tag must have 1 to 32 characters of a-z, 0-9, _ and -; at most 8 tags are allowed.',
    param: 'Service-Request-Tag',
  },
  model_zdr_not_supported: { message: "The model 'my-model' does not offer zero data retention.", param: 'model' },
  invalid_json_request: { message: "The field 'messages' is required.", param: 'messages' },
  request_body_too_large: { message: 'The body must be smaller than 52428800 bytes.' },
  model_request_rejected: {
    message: 'The image could not be fetched.',
    param: 'messages[0].content[1].image_url.url',
  },
  unsupported_value: {
    message: "'reasoning_effort' must be one of none, low, medium, high, xhigh, max.",
    param: 'reasoning_effort',
  },
  missing_api_key: {
    message: 'The request carries no API key. Send Authorization: Bearer <key>, or x-api-key: <key>.',
    headers: noRetry,
  },
  invalid_api_key: {
    message: 'The API key does not match a live key: it may be revoked, or belong to another server.',
    headers: noRetry,
  },
  http_403: {
    message: 'This key has no access to this endpoint.',
    extra: { step_up_required: ['only on the account API: only a fresh sign-in is missing', true] },
  },
  files_require_user_key: { message: 'Files can be uploaded only with a key that belongs to a user.' },
  concurrency_limit_exceeded: {
    message: 'The account has 64 running requests, which is its limit.',
    headers: rateLimit,
  },
  request_quota_exceeded: {
    message: 'The account has used all 1000 requests that its plan includes in this window.',
    extra: {
      request_limit: ['requests that the window includes', 1000],
      window_end: ['when the next window begins', '2027-01-01T00:00:00.000Z'],
      plan_tier: ['name of the plan; left out when it is not known', 'standard'],
    },
    headers: rateLimit,
  },
  rate_limit_exceeded: {
    message: 'Too many requests in a short time.',
    extra: {
      limit_of: ['`key` or `account`: whose limit it is; on the inference host', 'key'],
      limit_model: ['the model that the limit is for; left out when it is for all', 'my-model'],
      limit_unit: ['`requests`, `tokens` or `cents`', 'tokens'],
      limit_window_seconds: ['how long its window is: a minute, five minutes or a day', 60],
    },
    headers: rateLimit,
  },
  backend_at_capacity: {
    message: 'All slots of the model are in use. Try again shortly.',
    extra: { model: ['id of the model, where one model is full', 'my-model'] },
    headers: { ...rateLimit, 'RateLimit-Limit': `the cap that was reached; ${ofBackend}` },
  },
  backend_overloaded: {
    message: 'The backend of the model is at its limit.',
    extra: model,
    headers: { ...rateLimit, 'RateLimit-Limit': `the cap that was reached; ${ofBackend}` },
  },
  insufficient_credits: {
    message: 'The balance does not cover the request.',
    extra: {
      credits_available_cents: ['the available amount, in whole cents', 12],
      credits_required_cents_estimate: ['the most that the request may cost, in whole cents', 40],
      topup_url: ['where credit is added', 'https://account.example.org/topup'],
      budget_of: [
        '`key`, `member`, `account` or `conversation`: whose budget is used up; left out when it is the credit',
        'key',
      ],
      budget_period: ['`day`, `week`, `month` or `total`, of that budget', 'month'],
      budget_model: ['the model, if the budget is for this model alone', 'your-model'],
      budget_limit_cents: ['the budget, in whole cents; the amounts above then refer to it', 1000],
      budget_renews_at: ['when the budget renews, in UTC; left out for a total', '2026-12-01T00:00:00.000Z'],
    },
  },
  no_healthy_backends: {
    message: 'No backend of the model is available.',
    extra: model,
    headers: retryAfter,
  },
  backend_timeout: { message: 'The backend of the model did not answer in time.', extra: model },
  backend_connect_error: { message: 'The connection to the backend could not be opened.', extra: model },
  backend_http_error: { message: 'The backend of the model failed.', extra: model },
  internal_error: { message: 'The service failed while it worked on this request.', headers: retryAfter },
  http_404: { message: 'Route not found.' },
  http_405: { message: 'Use POST here.', headers: { Allow: 'methods that the route has' } },
  http_408: { message: 'The request did not arrive in time.' },
  http_409: {
    message: 'The request with this Idempotency-Key was answered and charged. Its answer was not kept.',
    param: 'Idempotency-Key',
    extra: { first_request_id: ['`x-request-id` of the request that was charged', 'req_0123456789ab'] },
    headers: noRetry,
  },
  http_415: { message: 'The body must be application/json.' },
  http_417: { message: 'The Expect header must be 100-continue.' },
  http_431: { message: 'The headers are too large.' },
  http_505: { message: 'Speak HTTP/1.1.' },
  http_400: { message: 'The request is not well-formed HTTP.' },
};

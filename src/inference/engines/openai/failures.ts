import { ApiError, atCap } from '../../../platform/errors.ts';
import type { Flavor } from './flavors/flavor.ts';

export interface UpstreamAnswer {
  readonly status: number;
  readonly retryAfter: string | undefined;
  /** The parsed body, or as much of it as could be read as text; never shown. */
  readonly body: unknown;
}

/** SGLang's words for an adapter that it does not have: no request of a client names one. */
const adapterMissing = /^(The following requested )?LoRA adapters? .*not (loaded|enabled)/i;

/** Fields that servers name in error messages, and their names for clients. `structured_outputs` and similar fields carry a constraint. */
const clientFields: ReadonlyMap<string, string> = new Map([
  ...[
    ...['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'frequency_penalty', 'repetition_penalty'],
    ...[
      'seed',
      'stop',
      'n',
      'logit_bias',
      'logprobs',
      'top_logprobs',
      'stop_token_ids',
      'min_tokens',
      'reasoning_effort',
    ],
    ...['tools', 'tool_choice', 'parallel_tool_calls', 'response_format'],
  ].map((name) => [name, name] as const),
  ['repeat_penalty', 'repetition_penalty'],
  ['structured_outputs', 'response_format'],
]);

/**
 * Returns the error for an error answer. `sent`: the fields of its request, under the server's names. The backend's own texts are only
 * searched for signals (reliability U12).
 */
export function answerError(
  answer: UpstreamAnswer,
  flavor: Flavor,
  model: string,
  sent: readonly string[] = [],
): ApiError {
  const { body } = answer;
  const fault = faultOf(body);
  const isAdapterMissing = answer.status === 400 && adapterMissing.test(fault.message);
  const status = isAdapterMissing ? 404 : flavor.overloaded?.test(fault.message) === true ? 429 : answer.status;
  const overflow = contextOverflow(fault);
  if (overflow !== undefined && (overflowStatuses.has(status) || batchText.test(fault.message))) {
    return new ApiError(
      'context_length_exceeded',
      'The prompt and the requested answer do not fit the context window of the model. Lower `max_tokens`, shorten the prompt, or choose a model with a larger context.',
      { extra: { model, ...overflow } },
    );
  }
  for (const refusal of status >= 400 ? flavor.refusals : []) {
    if (refusal.text.test(fault.message)) {
      return new ApiError(refusal.code, refusal.message, { param: refusal.param });
    }
  }
  // Retrying is useless: the model's name or the url's path is wrong, which the operator must fix.
  if (status === 404) {
    return new ApiError(
      'no_healthy_backends',
      'No backend of the model is available, because it is misconfigured here. Use another model, or tell the operator of the service.',
      { extra: { model } },
    );
  }
  const refused = status === 400 || status === 422 ? fieldOf(fault, sent) : undefined;
  if (refused !== undefined) {
    // §7.2: the client's request is at fault, and a retry would not help (§7.7).
    return new ApiError('unsupported_value', `The model does not accept this value of '${refused}'.`, {
      param: refused,
    });
  }
  const retryAfterSeconds = retryAfterOf(answer.retryAfter);
  if (status === 429) {
    return new ApiError('backend_overloaded', 'The backend of the model is at its limit. Try again a little later.', {
      extra: { model },
      // §7.5: every 429 says when to retry.
      retryAfterSeconds: retryAfterSeconds ?? 1,
    });
  }
  if (status === 503) {
    const isFull = answer.retryAfter !== undefined || queueFull.test(fault.message);
    if (isFull && !isLoading(answer, flavor)) {
      return new ApiError('backend_at_capacity', 'All slots of the model are in use. Try again a little later.', {
        extra: { model },
        retryAfterSeconds: retryAfterSeconds ?? 1,
      });
    }
    return unavailable(model, retryAfterSeconds);
  }
  return httpError(model);
}

/** Returns the client's field that the server blames, if the client sent it. */
function fieldOf({ fields }: Fault, sent: readonly string[]): string | undefined {
  const { param } = fields;
  const [name = ''] = typeof param === 'string' ? (/^\w+/.exec(param) ?? []) : [];
  return sent.includes(name) ? clientFields.get(name) : undefined;
}

/** Returns whether the server says that it is still loading its model. */
export function isLoading(answer: UpstreamAnswer, flavor: Flavor): boolean {
  return answer.status === 503 && flavor.loading !== undefined && flavor.loading.test(faultOf(answer.body).message);
}

export function httpError(model: string, cause?: unknown): ApiError {
  return new ApiError('backend_http_error', 'The backend of the model failed. Try again.', { extra: { model }, cause });
}

export function connectError(model: string, cause?: unknown): ApiError {
  return new ApiError(
    'backend_connect_error',
    'The connection to the backend of the model could not be opened. Try again.',
    {
      extra: { model },
      cause,
    },
  );
}

export function timeoutError(model: string): ApiError {
  return new ApiError('backend_timeout', 'The backend of the model did not answer in time. Try again.', {
    extra: { model },
  });
}

export function unavailable(model: string, retryAfterSeconds?: number): ApiError {
  return new ApiError(
    'no_healthy_backends',
    'No backend of the model is available. Try again later, or use another model.',
    {
      extra: { model },
      retryAfterSeconds,
    },
  );
}

export function atCapacity(model: string, maxConcurrency: number): ApiError {
  return new ApiError('backend_at_capacity', 'All slots of the model are in use. Try again a little later.', {
    extra: { model },
    ...atCap(maxConcurrency, 1),
  });
}

/**
 * Returns `Retry-After`, in seconds or as a date, clamped to between 1 second and 1 hour; an unreadable value counts as 1 second
 * (reliability U13). `undefined`: the backend did not send one.
 */
function retryAfterOf(header: string | undefined, now = Date.now()): number | undefined {
  if (header === undefined) return undefined;
  const value = header.trim();
  let seconds = Number.NaN;
  if (/^\d+(\.\d+)?(e\+?\d+)?$/i.test(value)) seconds = Math.ceil(Number(value));
  // RFC 9110 §5.6.7: the only date format that senders may write.
  else if (/^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(value)) {
    seconds = Math.ceil((Date.parse(value) - now) / 1_000);
  }
  return Number.isNaN(seconds) ? 1 : Math.min(Math.max(seconds, 1), 3_600);
}

interface Fault {
  readonly message: string;
  readonly type: string;
  readonly code: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const queueFull =
  /queue (is )?full|no slot available|at capacity|too many (concurrent )?requests|overloaded|max_num_seqs|waiting queue|currently busy|backlog limit|maximum pending requests/i;

const overflowStatuses: ReadonlySet<number> = new Set([200, 400, 413, 422]);

/** llama-server processes a text to embed or rank in one batch, and reports a longer one as an internal error (500). */
const batchText = /is too large to process.*current batch size: (?<limit>\d+)/;

/** The numbers in the messages of vLLM, SGLang and OpenAI; llama-server has fields for them. */
const windowTexts = [
  /maximum context length (?:is|of) (?<limit>\d+)/i,
  /context length \((?<limit>\d+)(?: tokens)?\)/i,
  /maximum model length of (?<limit>\d+)/i,
  /cannot be greater than max_(?:model_len|total_tokens) ?= ?(?<limit>\d+)/i,
  /supports at most (?<limit>\d+) completion tokens/i,
  /must have less than (?<limit>\d+) tokens/i,
  /`inputs` tokens \+ `max_new_tokens` must be <= (?<limit>\d+)/,
  /loaded with context length of only (?<limit>\d+) tokens/i,
  batchText,
  /n_keep\D+\d+\D+n_ctx\D+(?<limit>\d+)/,
];
/** LM Studio gives no number in these. */
const windowWithoutNumber = /greater than the context length\. Try to load|^Context size has been exceeded/i;
/** "At least" is not a count: the server stopped counting at its limit. */
const promptTexts = [
  /(?<prompt>\d+) in the messages/i,
  /(?:has|contains|resulted in) (?<prompt>\d+) (?:input )?tokens/i,
  /input \((?<prompt>\d+) tokens\)/i,
  /input length \((?<prompt>\d+)\)/i,
  /prompt \(length (?<prompt>\d+)\)/i,
  /tokens\. Given: (?<prompt>\d+)/i,
  /Given: (?<prompt>\d+) `inputs` tokens/,
];

function contextOverflow(fault: Fault): Readonly<Record<string, unknown>> | undefined {
  const { message, type, code, fields } = fault;
  const limitText = windowTexts.map((text) => text.exec(message)?.groups?.['limit']).find((text) => text !== undefined);
  const isOverflow =
    type === 'exceed_context_size_error' ||
    code === 'context_length_exceeded' ||
    limitText !== undefined ||
    windowWithoutNumber.test(message);
  if (!isOverflow) return undefined;
  const promptText = promptTexts
    .map((text) => text.exec(message)?.groups?.['prompt'])
    .find((text) => text !== undefined);
  const limit = tokens(fields['n_ctx'] ?? limitText);
  const prompt = tokens(fields['n_prompt_tokens'] ?? promptText);
  return {
    ...(limit === undefined ? {} : { context_length_limit: limit }),
    ...(prompt === undefined ? {} : { prompt_tokens: prompt }),
  };
}

function tokens(value: unknown): number | undefined {
  const count = typeof value === 'string' ? Number(value) : value;
  return Number.isSafeInteger(count) && (count as number) > 0 ? (count as number) : undefined;
}

/** Returns the parts of an error body that can carry a signal, wherever the server puts them. */
function faultOf(body: unknown): Fault {
  const outer = isObject(body) ? body : {};
  const fields = isObject(outer['error']) ? outer['error'] : outer;
  const message = fields['message'] ?? outer['message'] ?? outer['detail'] ?? outer['error'] ?? body;
  return {
    message: typeof message === 'string' ? message : '',
    type: String(fields['type'] ?? ''),
    code: String(fields['code'] ?? ''),
    fields,
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

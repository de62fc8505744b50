import Type from 'typebox';
import type { TSchema } from 'typebox';

import { plainError } from '../dialects/description.ts';
import type { ErrorForm } from '../dialects/description.ts';
import { errorExamples } from '../../platform/error-examples.ts';
import { ApiError, errorBody, errorTable } from '../../platform/errors.ts';
import type { ErrorBody, ErrorCode, ErrorRow } from '../../platform/errors.ts';
import type { Json, JsonObject } from './json-schema.ts';

/**
 * The kinds of operations by what can go wrong: `generate` answers with a model, `count` counts its prompt, `upload` takes a file, `files`
 * reads and deletes them, `models` lists the catalog, `open` needs no key; `account` is every route of the account host.
 */
export type Exposure = 'generate' | 'count' | 'upload' | 'files' | 'models' | 'open' | 'account';

const all: readonly Exposure[] = ['generate', 'count', 'upload', 'files', 'models', 'open', 'account'];
const withKey: readonly Exposure[] = ['generate', 'count', 'upload', 'files'];
const withKeyOrAccount: readonly Exposure[] = [...withKey, 'account'];
const withModel: readonly Exposure[] = ['generate', 'count'];
const withBody: readonly Exposure[] = ['generate', 'count', 'upload'];
const withBodyOrAccount: readonly Exposure[] = [...withBody, 'account'];
const generating: readonly Exposure[] = ['generate'];
const storing: readonly Exposure[] = ['upload', 'files'];

/** Where each code is documented: a code that is missing here does not compile. */
const exposures: Readonly<Record<ErrorCode, readonly Exposure[]>> = {
  schema_validation_failed: withKeyOrAccount,
  tool_schema_invalid: withModel,
  tool_choice_unknown_tool: withModel,
  orphan_tool_message: withModel,
  missing_tool_call_id: withModel,
  unsupported_parameter: [...withModel, 'upload', 'account'],
  unsupported_feature: withModel,
  unsupported_response_format: withModel,
  unsupported_regex: withModel,
  unsupported_tool_type: withModel,
  json_schema_refs_unsupported: withModel,
  duplicate_tool_name: withModel,
  context_length_exceeded: withModel,
  model_not_found: withModel,
  model_not_allowed: withModel,
  invalid_zdr_header: withKey,
  invalid_request_tag: withModel,
  model_zdr_not_supported: withModel,
  invalid_json_request: [...withModel, 'upload', 'account'],
  request_body_too_large: withBodyOrAccount,
  // Documents are fetched before they are counted.
  model_request_rejected: withModel,
  unsupported_value: withKeyOrAccount,
  missing_api_key: withKeyOrAccount,
  invalid_api_key: [...withKey, 'models', 'account'],
  http_403: [...withKey, 'models', 'account'],
  files_require_user_key: ['upload'],
  concurrency_limit_exceeded: ['generate', 'upload', 'files'],
  request_quota_exceeded: generating,
  rate_limit_exceeded: withKeyOrAccount,
  backend_at_capacity: withBody,
  backend_overloaded: generating,
  insufficient_credits: generating,
  no_healthy_backends: withKey,
  backend_timeout: withKey,
  backend_connect_error: withModel,
  backend_http_error: withModel,
  internal_error: all,
  http_404: [...storing, 'account'],
  http_405: all,
  http_408: withBodyOrAccount,
  http_409: ['generate', 'account'],
  http_415: withBodyOrAccount,
  http_417: withBodyOrAccount,
  http_431: all,
  http_505: all,
  http_400: all,
};

/** Sent as the connection is closed, before the API is known: in the plain envelope. */
const listenerCodes: ReadonlySet<ErrorCode> = new Set(['http_400', 'http_408', 'http_417', 'http_431', 'http_505']);
const formOf = (code: ErrorCode, form: ErrorForm): ErrorForm => (listenerCodes.has(code) ? plainError : form);

const codes = Object.keys(errorTable) as readonly ErrorCode[];
const rowOf = (code: ErrorCode): ErrorRow => errorTable[code];

/** The inner object of every error (specification §7.1), with the extra fields of some codes. */
export const errorSchema: Type.TObject = Type.Object(
  {
    type: Type.Enum([...new Set(codes.map((code) => rowOf(code).type))], {
      description: 'The general kind of failure.',
    }),
    code: Type.Enum([...codes], { description: 'The code to branch on. Codes may be added.' }),
    message: Type.String({ description: 'For people.' }),
    param: Type.Optional(
      Type.String({
        description: 'Path of the field at fault, or the name of the header; absent when no field is at fault.',
      }),
    ),
    request_id: Type.String({ description: 'The value of `x-request-id`.' }),
    docs_url: Type.String({ format: 'uri', description: 'A page about the code.' }),
    ...extraFields(),
  },
  { description: 'What went wrong. Some codes have further fields.' },
);

function extraFields(): Record<string, TSchema> {
  const found = new Map<string, { schema: TSchema; what: string; codes: ErrorCode[] }>();
  for (const code of codes) {
    for (const [name, [what, example]] of Object.entries(errorExamples[code].extra ?? {})) {
      const known = found.get(name);
      if (known === undefined) found.set(name, { schema: schemaLike(example), what, codes: [code] });
      else known.codes.push(code);
    }
  }
  return Object.fromEntries(
    [...found].map(([name, { schema, what, codes: having }]) => [
      name,
      Type.Optional({ ...schema, description: `With ${having.map((code) => `\`${code}\``).join(', ')}: ${what}.` }),
    ]),
  );
}

/** Derives the schema of an example. */
function schemaLike(example: unknown): TSchema {
  if (typeof example === 'number') return Type.Integer();
  if (typeof example === 'string') return Type.String();
  if (typeof example === 'boolean') return Type.Boolean();
  if (Array.isArray(example)) return Type.Array(schemaLike(example[0]));
  return Type.Object(
    Object.fromEntries(
      Object.entries(example as object).map(([name, value]) => [
        name,
        { ...schemaLike(value), description: `For example \`${JSON.stringify(value)}\`.` },
      ]),
    ),
  );
}

/** The error responses of an operation, by status: pointers into `components.responses`, which `kept` collects. */
export function errorResponses(
  exposure: Exposure,
  form: ErrorForm,
  accountUrl: string,
  kept: Map<string, JsonObject>,
): JsonObject {
  const statuses = new Map<number, ErrorCode[]>();
  for (const code of codes) {
    if (!exposures[code].includes(exposure)) continue;
    const { status } = rowOf(code);
    statuses.set(status, [...(statuses.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...statuses]
      .toSorted(([a], [b]) => a - b)
      .map(([status, having]) => [String(status), responseOf(status, having, exposure, form, accountUrl, kept)]),
  );
}

/** A response shared by several operations is in the document once. */
function responseOf(
  status: number,
  having: readonly ErrorCode[],
  exposure: Exposure,
  form: ErrorForm,
  accountUrl: string,
  kept: Map<string, JsonObject>,
): JsonObject {
  const response = printResponse(having, exposure, form, accountUrl);
  const text = JSON.stringify(response);
  const common = `${having.every((code) => listenerCodes.has(code)) ? plainError.name : form.name}${status}`;
  const own = `${common}${exposure.charAt(0).toUpperCase()}${exposure.slice(1)}`;
  for (const name of [common, own]) {
    const known = kept.get(name);
    if (known === undefined) kept.set(name, response);
    else if (JSON.stringify(known) !== text) continue;
    return { $ref: `#/components/responses/${name}` };
  }
  throw new Error(`two responses have the name ${own}`);
}

function printResponse(
  having: readonly ErrorCode[],
  exposure: Exposure,
  form: ErrorForm,
  accountUrl: string,
): JsonObject {
  const lines = having.map((code) => {
    const { meaning, remedy, retry } = rowOf(code);
    return `- \`${code}\`: ${meaning} ${remedy}${retry === 'no' ? '' : ` Retry ${retry}.`}`;
  });
  const further = Object.assign({}, ...having.map((code) => errorExamples[code].headers ?? {})) as Record<
    string,
    string
  >;
  const names = new Set(having.map((code) => formOf(code, form).name));
  const schemas = [...names].map((name) => ({ $ref: `#/components/schemas/${name}` }));
  return {
    description: lines.join('\n'),
    headers: { ...commonHeaders(exposure), ...headersOf(further) },
    content: {
      'application/json': {
        schema: schemas.length > 1 ? { anyOf: schemas } : schemas[0]!,
        examples: Object.fromEntries(
          having.map((code) => [
            code,
            { value: JSON.parse(formOf(code, form).print(errorExample(code, accountUrl))) as Json },
          ]),
        ),
      },
    },
  };
}

function errorExample(code: ErrorCode, accountUrl: string): ErrorBody {
  const { message, param, extra = {} } = errorExamples[code];
  const reported = new ApiError(code, message, {
    param,
    extra: Object.fromEntries(Object.entries(extra).map(([name, [, value]]) => [name, value])),
  });
  return errorBody(reported, 'req_0123456789ab', accountUrl);
}

const header = (name: string): JsonObject => ({ [name]: { $ref: `#/components/headers/${name}` } });

/** Every answer has these headers (contracts §0.16 and §1.0); CORS, and with it `vary`, only on the inference host. */
export const commonHeaders = (exposure: Exposure): JsonObject => ({
  ...header('cache-control'),
  ...(exposure === 'account' ? {} : header('vary')),
  ...header('x-request-id'),
  ...header('request-id'),
});

/** Answers to keys and accounts with limits have these headers (specification §7.5). */
export const limitHeaders: JsonObject = {
  ...header('ratelimit-limit'),
  ...header('ratelimit-remaining'),
  ...header('ratelimit-reset'),
};

export const headersOf = (texts: Readonly<Record<string, string>>): JsonObject =>
  Object.fromEntries(
    Object.entries(texts).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
  );

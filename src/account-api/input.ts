import type { IncomingMessage } from 'node:http';
import type { TObject, TSchema } from 'typebox';

import { bodyCheck } from '../inference/dialects/validate.ts';
import { parseJson } from '../platform/http/json/parse.ts';
import { ApiError } from '../platform/errors.ts';
import type { BodyBudget } from '../inference/http/body-budget.ts';
import { checkDeclaredLength, readBody } from '../inference/http/body.ts';
import type { AccountRoute } from './route.ts';

/** A request body contains names, ids and amounts; those of payment providers are larger. */
export const bodyBytesMax = 262_144;

/**
 * In upper or lower case, and with the one parameter that programs add by themselves (RFC 9110 §8.3.1). A page of another site
 * cannot send any of these without a preflight request: it may only send `text/plain` and the two types of HTML forms.
 */
const jsonType = /^application\/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?$/i;

/** The checks of one route, compiled once. Each throws `ApiError`. */
export interface InputChecks {
  params(values: Readonly<Record<string, string>>): unknown;
  query(text: string): unknown;
  body(request: IncomingMessage, budget: BodyBudget, signal: AbortSignal): Promise<unknown>;
}

export function inputChecksOf(route: AccountRoute): InputChecks {
  const checkParams = route.params === undefined ? undefined : objectCheck(route.params);
  const checkQuery = route.query === undefined ? undefined : objectCheck(route.query);
  const { body } = route;
  const checkBody = body === undefined || body === 'raw' ? undefined : objectCheck(body);
  return {
    params: (values) => {
      try {
        return checkParams?.(values);
      } catch {
        // A text that cannot be an id identifies nothing.
        throw notThere();
      }
    },
    query: (text) => {
      const values = queryValues(text, route.query);
      return checkQuery === undefined ? undefined : checkQuery(values);
    },
    body: async (request, budget, signal) => {
      if (body === undefined) return undefined;
      if (body !== 'raw' && !jsonType.test(request.headers['content-type'] ?? ''))
        throw new ApiError('http_415', 'Send the body with this header: `content-type: application/json`.');
      if (request.headers['content-encoding'] !== undefined)
        throw new ApiError('http_415', 'Compressed request bodies are not supported.');
      checkDeclaredLength(request, bodyBytesMax);
      const share = budget.share();
      try {
        const { blocks } = await readBody(request, bodyBytesMax, share, signal, () => {});
        const bytes = Buffer.concat(blocks);
        return body === 'raw' ? new Uint8Array(bytes) : checkBody!(parseJson(bytes));
      } finally {
        share.end();
      }
    },
  };
}

/** The same answer for what does not exist and for what belongs to another account (reliability §3.5). */
export const notThere = (): ApiError => new ApiError('http_404', 'Nothing with this id was found.');

/** Like `bodyCheck`, but a field not in the schema is `unsupported_parameter`: what a client requests is either done or refused. */
function objectCheck(schema: TSchema): (value: unknown) => unknown {
  const check = bodyCheck(schema, (schema as TObject).required ?? []);
  return (value) => {
    const unknown = unknownField(schema as Shape, value, '');
    if (unknown !== undefined)
      throw new ApiError('unsupported_parameter', `The field '${unknown}' is unknown here.`, { param: unknown });
    return check(value);
  };
}

interface Shape {
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: boolean | Shape;
  readonly items?: Shape;
}

const namePartMax = 64;

function unknownField(schema: Shape, value: unknown, at: string): string | undefined {
  if (Array.isArray(value)) {
    const { items } = schema;
    if (items === undefined) return undefined;
    for (const [index, one] of value.entries()) {
      const found = unknownField(items, one, `${at}[${index}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  if (typeof value !== 'object' || value === null || schema.properties === undefined) return undefined;
  for (const [name, inner] of Object.entries(value)) {
    const known = Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    const path = `${at === '' ? '' : `${at}.`}${name.slice(0, namePartMax)}`;
    if (known === undefined) {
      if (schema.additionalProperties === false) return path;
      continue;
    }
    const found = unknownField(known, inner, path);
    if (found !== undefined) return found;
  }
  return undefined;
}

interface QueryProperty {
  readonly type?: string;
  readonly items?: QueryProperty;
}

/** Parses a query by the types of its schema: numbers, true and false are text there; lists are repeated, also as `name[]`. */
function queryValues(text: string, schema: TObject | undefined): Readonly<Record<string, unknown>> {
  const properties = (schema?.properties ?? {}) as Readonly<Record<string, QueryProperty>>;
  const values: Record<string, unknown> = {};
  for (const [written, value] of new URLSearchParams(text)) {
    const name = written.endsWith('[]') ? written.slice(0, -2) : written;
    const property = Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (property === undefined)
      throw new ApiError('unsupported_parameter', `The parameter '${written.slice(0, namePartMax)}' is unknown here.`, {
        param: written.slice(0, namePartMax),
      });
    if (property.type === 'array') {
      const list = (values[name] ??= []) as unknown[];
      list.push(typed(value, property.items));
    } else if (Object.hasOwn(values, name)) {
      throw new ApiError('schema_validation_failed', `'${name}' is given more than once.`, { param: name });
    } else {
      values[name] = typed(value, property);
    }
  }
  return values;
}

function typed(value: string, property: QueryProperty | undefined): unknown {
  switch (property?.type) {
    case 'integer':
      return /^-?\d{1,15}$/.test(value) ? Number(value) : value;
    case 'number':
      return /^-?\d{1,15}(\.\d{1,9})?$/.test(value) ? Number(value) : value;
    case 'boolean':
      return value === 'true' ? true : value === 'false' ? false : value;
    case undefined:
    default:
      return value;
  }
}

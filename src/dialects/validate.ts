import type { TSchema, Static } from 'typebox';
import { Compile } from 'typebox/compile';

import { ApiError } from '../errors.ts';

/**
 * Makes the check of one endpoint's body from its schema.
 *
 * The check throws (specification §7.2, contracts decisions 1 and 12):
 * - `invalid_json_request` 400 when a field of `required` is missing, with `param` the field;
 * - `schema_validation_failed` 422 when the body is no object, or a field has a wrong type, range or shape, with `param`
 *   the path of the deepest fault, written `messages[0].content`.
 */
export function bodyCheck<Schema extends TSchema>(schema: Schema, required: readonly string[]): (body: unknown) => Static<Schema> {
  const validator = Compile(schema);
  return (body) => {
    if (validator.Check(body)) return body as Static<Schema>;
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new ApiError('schema_validation_failed', 'The body must be a JSON object.');
    }
    for (const name of required) {
      if (!Object.hasOwn(body, name)) {
        throw new ApiError('invalid_json_request', `The required field '${name}' is missing.`, { param: name });
      }
    }
    const faults = validator.Errors(body) as readonly Fault[];
    throw faultError(faults);
  };
}

interface Fault {
  readonly keyword: string;
  readonly instancePath: string;
  readonly params: { readonly requiredProperties?: readonly string[]; readonly allowedValues?: readonly unknown[] };
  readonly message: string;
}

/** Of the branches of a union the one that got deepest is what the client meant; at equal depth all are named. */
function faultError(faults: readonly Fault[]): ApiError {
  const leaves = faults.filter((fault) => fault.keyword !== 'anyOf');
  const first = leaves[0];
  if (first === undefined) return new ApiError('schema_validation_failed', 'The body does not match the schema.');
  const root = topLevelName(first.instancePath);
  const sameField = leaves.filter((fault) => topLevelName(fault.instancePath) === root);
  const deepest = sameField.reduce((best, fault) => (depth(fault) > depth(best) ? fault : best), first);
  const wordings = new Set(sameField.filter((fault) => fault.instancePath === deepest.instancePath).map(wording));
  const missing = deepest.keyword === 'required' ? deepest.params.requiredProperties?.[0] : undefined;
  const param = fieldPath(missing === undefined ? deepest.instancePath : `${deepest.instancePath}/${missing}`);
  return new ApiError('schema_validation_failed', `'${param}' ${missing === undefined ? [...wordings].join(', or ') : 'is required'}.`, { param });
}

const depth = (fault: Fault): number => fault.instancePath.split('/').length;
const topLevelName = (path: string): string => path.split('/')[1] ?? '';

function wording(fault: Fault): string {
  const allowed = fault.params.allowedValues;
  return fault.keyword === 'enum' && allowed !== undefined ? `must be one of ${allowed.map((value) => JSON.stringify(value)).join(', ')}` : fault.message;
}

/** `/messages/0/content` → `messages[0].content`. */
export function fieldPath(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((path, segment) => (/^\d+$/.test(segment) ? `${path}[${segment}]` : path === '' ? segment : `${path}.${segment}`), '');
}

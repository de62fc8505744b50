import { parts } from './instance-order.ts';

/**
 * Why docs/constraints.md says that a valid value is not written: the places where it has members or items that its schema does not
 * mention, a type that its schema's keywords are not about, or more digits than are written.
 */
export function documentedReasons(value: unknown, schemas: readonly unknown[], root: unknown): readonly string[] {
  const all = schemas.flatMap((schema) => parts(schema, root));
  const reasons: string[] = [];
  if (!isOfKeywords(value, all)) reasons.push('type');
  if (typeof value === 'number' && hasManyDigits(value)) reasons.push('digits');
  if (Array.isArray(value)) {
    const prefixes = all.map((each) => listOf(each['prefixItems']) ?? listOf(each['items']) ?? []);
    const length = Math.max(0, ...prefixes.map((prefix) => prefix.length));
    if (length > 0 && value.length < length && !all.some((each) => 'minItems' in each)) reasons.push('short tuple');
    if (length > 0 && value.length > length && !all.some(hasRest)) reasons.push('long tuple');
    for (const [index, item] of value.entries()) {
      const own = all.flatMap((each, at) => {
        const found = prefixes[at]?.[index] ?? (Array.isArray(each['items']) ? each['additionalItems'] : each['items']);
        return found === undefined ? [] : [found];
      });
      reasons.push(...documentedReasons(item, own, root));
    }
  } else if (typeof value === 'object' && value !== null)
    reasons.push(...reasonsOfMembers(Object.entries(value), all, root));
  return reasons;
}

type Schema = Readonly<Record<string, unknown>>;

function reasonsOfMembers(
  members: readonly (readonly [string, unknown])[],
  all: readonly Schema[],
  root: unknown,
): string[] {
  const isPlain = !all.some((each) => 'properties' in each || 'patternProperties' in each);
  const isOpen = isPlain || all.some((each) => 'additionalProperties' in each || 'unevaluatedProperties' in each);
  return members.flatMap(([name, value]) => {
    const own = all.flatMap((each) => {
      const named = Object.entries(recordOf(each['properties'])).filter(([key]) => key === name);
      const matched = Object.entries(recordOf(each['patternProperties'])).filter(([pattern]) => isMatch(pattern, name));
      return [...named, ...matched].map(([, child]) => child);
    });
    if (own.length > 0) return documentedReasons(value, own, root);
    const required = all.some((each) => listOf(each['required'])?.includes(name) === true);
    if (!isOpen && !required) return ['member'];
    const others = all.flatMap((each) => ('additionalProperties' in each ? [each['additionalProperties']] : []));
    return documentedReasons(value, others, root);
  });
}

const typeKeywords: readonly (readonly [string, RegExp])[] = [
  ['object', /properties|required|^dependen/iu],
  ['array', /items$/iu],
  ['string', /^(?:pattern|minLength|maxLength)$/u],
  ['number', /^(?:minimum|maximum|exclusiveMinimum|exclusiveMaximum)$/u],
];

const typesOf = (each: Schema): readonly string[] =>
  typeKeywords.flatMap(([type, words]) => (Object.keys(each).some((keyword) => words.test(keyword)) ? [type] : []));

/** Whether the value is of a type that each schema without `type` is about. */
function isOfKeywords(value: unknown, all: readonly Schema[]): boolean {
  const type = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;
  return all.every((each) => {
    const types = typesOf(each);
    return 'type' in each || types.length === 0 || types.includes(type);
  });
}

function hasManyDigits(value: number): boolean {
  const [whole = '', fraction = ''] = value.toString().split('.');
  return Math.abs(value) >= 1e17 || whole.length > 17 || fraction.length > 16 || value.toString().includes('e');
}

const hasRest = (each: Schema): boolean =>
  'additionalItems' in each || 'unevaluatedItems' in each || ('prefixItems' in each && 'items' in each);

function isMatch(pattern: string, name: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(name);
  } catch {
    return true;
  }
}

const listOf = (value: unknown): readonly unknown[] | undefined => (Array.isArray(value) ? value : undefined);
const recordOf = (value: unknown): Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Schema) : {};

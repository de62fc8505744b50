import { codePoints, complement, onePoint } from '../../constraints/code-points.ts';
import {
  alternatives,
  composeGrammar,
  emptyText,
  literal,
  optional,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from '../../constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../constraints/json-schema.ts';
import type { ArgumentForm } from '../../output-parsers/format.ts';

type Embed = (grammar: Grammar) => Expression;
type WrittenForm = Exclude<ArgumentForm, { readonly type: 'json' }>;

/**
 * Returns the grammar of arguments that are written one by one; `undefined` for a schema that only JSON can keep: one that says more of the
 * object than its properties, or of a text than its values. `isStrict: false` leaves out what is said of a text.
 */
export function writtenArguments(
  schema: Readonly<Record<string, unknown>>,
  form: WrittenForm,
  at: string,
  isStrict: boolean,
): Grammar | undefined {
  if (Object.keys(schema).some((key) => !plainKeywords.has(key))) return undefined;
  const properties = Object.entries(isRecord(schema['properties']) ? schema['properties'] : {});
  const isText = new Set(properties.filter(([, property]) => isTextSchema(property)).map(([name]) => name));
  const saysMore = (property: unknown): boolean =>
    isRecord(property) && Object.keys(property).some((key) => !textKeywords.has(key));
  if (isStrict && properties.some(([name, property]) => isText.has(name) && saysMore(property))) return undefined;
  if (properties.some(([name]) => !/^[\w.-]+$/.test(name))) return undefined;
  const required = new Set(Array.isArray(schema['required']) ? (schema['required'] as readonly unknown[]) : []);
  const { $defs, definitions } = schema;
  return composeGrammar((embed) => {
    const members = properties.map(([name, property]) => {
      const value = isText.has(name)
        ? textValue(property, form, embed)
        : embed(jsonSchemaGrammar(withDefinitions(property, { $defs, definitions }), at));
      return { isRequired: required.has(name), expression: memberOf(name, value, isText.has(name), form) };
    });
    if (form.type === 'tagged')
      return sequence(...members.map(({ isRequired, expression }) => (isRequired ? expression : optional(expression))));
    return listOf(members, form.between);
  });
}

const plainKeywords: ReadonlySet<string> = new Set([
  ...['type', 'properties', 'required', 'description', 'title', 'additionalProperties', '$schema', '$defs'],
  ...['definitions', 'strict'],
]);
const textKeywords: ReadonlySet<string> = new Set([
  ...['type', 'enum', 'const', 'description', 'title', 'default', 'examples', 'nullable'],
]);

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const isTextSchema = (schema: unknown): boolean => isRecord(schema) && schema['type'] === 'string';

function withDefinitions(schema: unknown, definitions: Readonly<Record<string, unknown>>): unknown {
  const known = Object.entries(definitions).filter(([, value]) => value !== undefined);
  return isRecord(schema) && known.length > 0 ? { ...Object.fromEntries(known), ...schema } : schema;
}

function memberOf(name: string, value: Expression, isText: boolean, form: WrittenForm): Expression {
  if (form.type === 'code') return sequence(literal(name + form.beforeValue), value);
  const before = literal(form.beforeKey + name + (isText ? form.beforeText : form.beforeOther));
  return isText ? sequence(before, value) : sequence(before, value, literal(form.afterValue));
}

/** The required ones, then any of the others, with a separator between two. */
function listOf(
  members: readonly { readonly isRequired: boolean; readonly expression: Expression }[],
  between: string,
): Expression {
  const required = members.filter(({ isRequired }) => isRequired).map(({ expression }) => expression);
  const others = members.filter(({ isRequired }) => !isRequired).map(({ expression }) => expression);
  const behind = (from: number): readonly Expression[] =>
    others.slice(from).map((other) => optional(sequence(literal(between), other)));
  if (required.length > 0) {
    const joined = required.flatMap((each, index) => (index === 0 ? [each] : [literal(between), each]));
    return sequence(...joined, ...behind(0));
  }
  if (others.length === 0) return emptyText;
  return optional(alternatives(...others.map((first, index) => sequence(first, ...behind(index + 1)))));
}

/** A text as the form writes it, with what ends it. */
function textValue(schema: unknown, form: WrittenForm, embed: Embed): Expression {
  const end = form.type === 'tagged' ? form.afterValue : form.quote;
  const begin = form.type === 'tagged' ? '' : form.quote;
  const values = isRecord(schema) ? ('const' in schema ? [schema['const']] : schema['enum']) : undefined;
  if (Array.isArray(values)) {
    const texts = values.filter((value): value is string => typeof value === 'string' && !value.includes(end.trim()));
    return alternatives(...texts.map((text) => literal(begin + (begin === '' ? text : escapedIn(text, end)) + end)));
  }
  if (form.type === 'code' && end.length === 1) {
    const plain: Expression = {
      kind: 'characters',
      set: complement(codePoints([[0, 31], onePoint(end), onePoint('\\')])),
    };
    const escape = sequence(literal('\\'), alternatives(...[end, '\\', 'n', 't', 'r'].map(literal)));
    return sequence(literal(begin), repetition(alternatives(plain, escape), 0, undefined), literal(end));
  }
  return sequence(literal(begin), embed(textUntil(end.trim(), emptyText, false)));
}

const escapedIn = (text: string, quote: string): string =>
  quote.length > 1 ? text : text.replaceAll('\\', '\\\\').replaceAll(quote, `\\${quote}`).replaceAll('\n', '\\n');

/**
 * Returns a grammar for text up to a mark, which `rest` follows; `mayEnd`: it may also end without one. There is one rule for each length of
 * the mark's beginning at the end of the text so far, like the states of a string search.
 */
export function textUntil(mark: string, rest: Expression, mayEnd: boolean): Grammar {
  const points = [...mark];
  const state = (matched: number) => (matched === 0 ? 'root' : `mark-${matched}`);
  const rules = new Map<string, Expression>();
  for (let matched = 0; matched < points.length; matched++) {
    const edges = [...new Set(points)].flatMap((point) => {
      const next = longestBeginning(points, [...points.slice(0, matched), point]);
      return next === 0 ? [] : [{ point, next }];
    });
    const astray = complement(codePoints(edges.map(({ point }) => onePoint(point))));
    rules.set(
      state(matched),
      alternatives(
        sequence({ kind: 'characters', set: astray }, rule('root')),
        ...edges.map(({ point, next }) => sequence(literal(point), next === points.length ? rest : rule(state(next)))),
        ...(mayEnd ? [emptyText] : []),
      ),
    );
  }
  return { root: 'root', rules };
}

/** Returns how much of the mark's beginning is at the end of a text. */
function longestBeginning(mark: readonly string[], text: readonly string[]): number {
  for (let length = Math.min(mark.length, text.length); length > 0; length--) {
    if (mark.slice(0, length).join('') === text.slice(text.length - length).join('')) return length;
  }
  return 0;
}

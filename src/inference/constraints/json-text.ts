import {
  anyCodePoint,
  codePoints,
  complement,
  difference,
  holds,
  intersection,
  union,
  type CodePoints,
} from './code-points.ts';
import {
  alternatives,
  characters,
  emptyText,
  literal,
  optional,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from './grammar.ts';

/** Accepts any JSON object, with nothing around it (`response_format` type `json_object`, §4.2.3(1)). */
export function jsonObjectGrammar(): Grammar {
  return withJsonRules(rule('json-object'), new Map());
}

/** Accepts JSON in any formatting: for checking an answer whose schema a server has enforced in its own way. */
export function anyJsonGrammar(root: 'value' | 'object'): Grammar {
  const blank = repetition(characters(' ', '\n', '\r', '\t'), 0, undefined);
  const around = (text: string): Expression => sequence(blank, literal(text), blank);
  const list = (item: Expression): Expression =>
    optional(sequence(item, repetition(sequence(around(','), item), 0, undefined)));
  const anyDigits = repetition(digit, 1, undefined);
  const exponent = sequence(characters('e', 'E'), optional(characters('+', '-')), anyDigits);
  const number = sequence(minus, anyDigits, optional(sequence(literal('.'), anyDigits)), optional(exponent));
  const anyCharacter: Expression = { kind: 'characters', set: difference(anyCodePoint, escapedOnly) };
  const escape = sequence(
    literal('\\'),
    alternatives(characters('"', '\\', '/', 'b', 'f', 'n', 'r', 't'), sequence(literal('u'), hex, hex, hex, hex)),
  );
  const string = sequence(literal('"'), repetition(alternatives(anyCharacter, escape), 0, undefined), literal('"'));
  const object = sequence(
    literal('{'),
    blank,
    list(sequence(rule('string'), around(':'), rule('value'))),
    blank,
    literal('}'),
  );
  const array = sequence(literal('['), blank, list(rule('value')), blank, literal(']'));
  const plain = alternatives(literal('true'), literal('false'), literal('null'));
  return {
    root: 'root',
    rules: new Map<string, Expression>([
      ['root', sequence(blank, rule(root), blank)],
      ['value', alternatives(rule('object'), array, rule('string'), number, plain)],
      ['object', object],
      ['string', string],
    ]),
  };
}

/** Builds a grammar from its own rules and the common JSON rules that they refer to. */
export function withJsonRules(root: Expression, rules: ReadonlyMap<string, Expression>): Grammar {
  const all = new Map<string, Expression>([['root', root], ...rules]);
  const wanted = [...all.values()];
  for (let expression = wanted.pop(); expression !== undefined; expression = wanted.pop()) {
    switch (expression.kind) {
      case 'rule': {
        const { name } = expression;
        const common = all.has(name) ? undefined : jsonRules[name as JsonRule];
        if (common === undefined) break;
        all.set(name, common);
        wanted.push(common);
        break;
      }
      case 'sequence':
      case 'alternatives':
        wanted.push(...expression.items);
        break;
      case 'repetition':
        wanted.push(expression.item);
        break;
      case 'literal':
      case 'characters':
        break;
    }
  }
  return { root: 'root', rules: all };
}

/**
 * White space between two parts of JSON: none, one blank, or a line break and an indent. Bounded, because otherwise a model that does not
 * fit the schema spends its tokens on blanks.
 */
export const whiteSpace = rule('json-space');

/** `open`, then nothing or `inner`, then `close`, with room for line breaks around `inner`. */
export const bracketed = (open: string, inner: Expression, close: string): Expression =>
  sequence(literal(open), whiteSpace, inner, whiteSpace, literal(close));

/** One value as `JSON.stringify` prints it, apart from white space: members in their own order. */
export function jsonValue(value: unknown): Expression {
  if (Array.isArray(value)) {
    if (value.length === 0) return literal('[]');
    return bracketed('[', listed(value.map(jsonValue)), ']');
  }
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value);
    if (members.length === 0) return literal('{}');
    return bracketed('{', listed(members.map(([name, each]) => member(jsonText(name), jsonValue(each)))), '}');
  }
  return jsonText(value);
}

const jsonText = (value: unknown): Expression => literal(JSON.stringify(value));
const listed = (items: readonly Expression[]): Expression =>
  sequence(...items.flatMap((item, index) => (index === 0 ? [item] : [literal(','), whiteSpace, item])));

/** `name: value` of an object; the name is an expression for the whole quoted text. */
export const member = (name: Expression, value: Expression): Expression =>
  sequence(name, literal(':'), whiteSpace, value);

/** A quoted string whose unescaped characters match `content`. */
export const quoted = (content: Expression): Expression => sequence(literal('"'), escaped(content), literal('"'));

/** The letters after the backslash in the short escapes of JSON. */
const shortEscapes: readonly (readonly [point: number, letter: string])[] = [
  [0x08, 'b'],
  [0x09, 't'],
  [0x0a, 'n'],
  [0x0c, 'f'],
  [0x0d, 'r'],
  [0x22, '"'],
  [0x5c, '\\'],
];
const shortPoints = codePoints(shortEscapes.map(([point]) => [point, point]));
const controls: CodePoints = [[0, 31]];
const escapedOnly: CodePoints = [
  [0, 31],
  [0x22, 0x22],
  [0x5c, 0x5c],
];

/**
 * Converts an expression over the characters of a string into one over its JSON text. Each character has one spelling, that of
 * `JSON.stringify`, so that an excluded text cannot slip in under another spelling.
 */
export function escaped(expression: Expression): Expression {
  switch (expression.kind) {
    case 'literal':
      return literal(JSON.stringify(expression.text).slice(1, -1));
    case 'characters':
      return escapedCharacter(expression.set);
    case 'sequence':
      return sequence(...expression.items.map(escaped));
    case 'alternatives':
      return alternatives(...expression.items.map(escaped));
    case 'repetition':
      return repetition(escaped(expression.item), expression.min, expression.max);
    case 'rule':
      return expression;
  }
}

function escapedCharacter(set: CodePoints): Expression {
  const plain = difference(set, escapedOnly);
  const spellings: Expression[] = plain.length === 0 ? [] : [{ kind: 'characters', set: plain }];
  const others = intersection(set, escapedOnly);
  // Most sets that contain any of them contain all, as `[^,]` and `.` nearly do.
  if (JSON.stringify(others) === JSON.stringify(escapedOnly)) return alternatives(...spellings, rule('json-escape'));
  return others.length === 0 ? alternatives(...spellings) : alternatives(...spellings, escapes(others));
}

/** Returns the one spelling of each of these characters, as a class if there are several: an engine tries each alternative. */
function escapes(set: CodePoints): Expression {
  const short = shortEscapes.flatMap(([point, letter]) => (holds(set, point) ? [letter] : []));
  const forms: Expression[] = short.length === 0 ? [] : [oneOf(short)];
  for (const first of [0, 16]) {
    const row = difference(intersection(set, [[first, first + 15]]), union(shortPoints, complement(controls)));
    const lasts = row.flatMap(([from, to]) =>
      Array.from({ length: to - from + 1 }, (_, index) => (from + index - first).toString(16)),
    );
    if (lasts.length > 0) forms.push(sequence(literal(`u00${first / 16}`), oneOf(lasts)));
  }
  return sequence(literal('\\'), alternatives(...forms));
}

const oneOf = (letters: readonly string[]): Expression =>
  letters.length === 1 ? literal(letters.join('')) : characters(...letters);

const digit = characters('0-9');
const hex = characters('0-9', 'a-f', 'A-F');
const digits = (min: number, max: number): Expression => repetition(digit, min, max);
/** Whole numbers have at most 18 digits, more than a double can distinguish. */
const unsigned = alternatives(literal('0'), sequence(characters('1-9'), digits(0, 17)));
const minus = optional(literal('-'));
const items = (item: Expression): Expression =>
  sequence(item, repetition(sequence(literal(','), whiteSpace, item), 0, undefined));
const anyMembers = items(member(rule('json-string'), rule('json-value')));

/**
 * Rules shared by JSON grammars. A character is complete even when escaped: half a surrogate pair is not text, and a pair counts once for
 * `maxLength`.
 */
const jsonRules = {
  'json-space': alternatives(
    emptyText,
    literal(' '),
    sequence(literal('\n'), repetition(characters(' ', '\t'), 0, 40)),
  ),
  'json-char': alternatives(
    { kind: 'characters', set: complement(escapedOnly) },
    sequence(literal('\\'), characters('"', '\\', '/', 'b', 'f', 'n', 'r', 't')),
    sequence(
      literal('\\u'),
      alternatives(
        sequence(characters('0-9', 'a-c', 'A-C', 'e-f', 'E-F'), hex, hex, hex),
        sequence(characters('d', 'D'), characters('0-7'), hex, hex),
        sequence(
          characters('d', 'D'),
          characters('8-9', 'a-b', 'A-B'),
          hex,
          hex,
          literal('\\u'),
          characters('d', 'D'),
          characters('c-f', 'C-F'),
          hex,
          hex,
        ),
      ),
    ),
  ),
  'json-escape': escapes(escapedOnly),
  'json-string': sequence(literal('"'), repetition(rule('json-char'), 0, undefined), literal('"')),
  'json-integer': sequence(minus, unsigned),
  // The exponent keeps every number finite in a double.
  'json-number': sequence(
    minus,
    unsigned,
    optional(sequence(literal('.'), digits(1, 17))),
    optional(
      sequence(
        characters('e', 'E'),
        alternatives(
          sequence(
            optional(literal('+')),
            alternatives(
              digits(1, 2),
              sequence(literal('1'), digits(2, 2)),
              sequence(literal('2'), characters('0-8'), digit),
            ),
          ),
          sequence(literal('-'), digits(1, 3)),
        ),
      ),
    ),
  ),
  'json-boolean': alternatives(literal('true'), literal('false')),
  'json-array': alternatives(literal('[]'), bracketed('[', items(rule('json-value')), ']')),
  'json-object': alternatives(literal('{}'), bracketed('{', anyMembers, '}')),
  'json-value': alternatives(
    rule('json-object'),
    rule('json-array'),
    rule('json-string'),
    rule('json-number'),
    rule('json-boolean'),
    literal('null'),
  ),
} as const satisfies Readonly<Record<string, Expression>>;

export type JsonRule = keyof typeof jsonRules;

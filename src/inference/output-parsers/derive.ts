import { idSlot, markOf, type ArgumentForm, type CallFormat } from './format.ts';
import { marksOf } from './read-calls.ts';
import { Marks } from './source.ts';

/** A turn of a probe, as templates see it. */
export interface ProbeTurn {
  readonly role: 'user' | 'assistant';
  readonly content: string;
  readonly [field: string]: unknown;
}

/** Renders turns with two tools, of these names; `undefined`: the template does not accept them. */
export type Prober = (turns: readonly ProbeTurn[], tools: readonly string[]) => string | undefined;

/**
 * Derives how a model writes its calls from what its template prints for calls of an earlier turn: one, and two of different functions.
 * The texts between their names and values are the literals of the format. `undefined`: the template prints no calls, or not in a form
 * that this can describe.
 */
export function derivedFormat(render: Prober, thoughtEnd: string | undefined): CallFormat | undefined {
  for (const ids of ['nine', 'function-index'] as const) {
    const printed = printedCalls(render, ids);
    const format = printed && formatOf(printed, thoughtEnd, render);
    if (format !== undefined) return isReadable(format) ? { ...format, ids: idsOf(render, ids) } : undefined;
  }
  return undefined;
}

const user: ProbeTurn = { role: 'user', content: 'probeuser' };
const said = 'Probesaid';
const names = ['probefirst', 'probenext'] as const;
const probeArguments = { akey: 'Avalue', bkey: 'Bvalue' };
const probeIds = {
  nine: ['pr0be1d01', 'pr0be1d02'],
  'function-index': names.map((name, index) => `functions.${name}:${index}`),
} as const;
type Ids = keyof typeof probeIds;

const callTurn = (count: number, args: unknown, ids: readonly string[]): ProbeTurn => ({
  role: 'assistant',
  content: '',
  tool_calls: names
    .slice(0, count)
    .map((name, index) => ({ id: ids[index], type: 'function', function: { name, arguments: args } })),
});

/** What a template prints for calls, from where it differs from what it prints for text to the end of the turn. */
interface PrintedCalls {
  readonly opening: string;
  /** From the first name on. */
  readonly rest: string;
  readonly isSingle: boolean;
  readonly ids: readonly string[];
  /** What follows the user's words in a turn of text. */
  readonly plainTurn: string;
}

function printedCalls(render: Prober, kind: Ids): PrintedCalls | undefined {
  const ids = probeIds[kind];
  const text = render([user, { role: 'assistant', content: said }], names);
  if (text === undefined) return undefined;
  const turnEnd = text.slice(text.lastIndexOf(said) + said.length);
  const plainTurn = text.slice(text.lastIndexOf(user.content) + user.content.length);
  for (const count of [2, 1]) {
    const printed = render([user, callTurn(count, probeArguments, ids)], names);
    if (printed === undefined) continue;
    const start = tokenStart(printed, sharedStart(text, printed));
    const at = printed.indexOf(names[0], start);
    if (at < 0) return undefined;
    const rest = withoutTurnEnd(printed.slice(at), turnEnd);
    const isSingle = !rest.includes(names[1]);
    return { opening: printed.slice(start, at), rest, isSingle, ids, plainTurn };
  }
  return undefined;
}

const sharedStart = (left: string, right: string): number => {
  let length = 0;
  while (length < left.length && left.charAt(length) === right.charAt(length)) length++;
  return length;
};

/** A place in a text, moved in front of a tag that it is inside of. */
function tokenStart(text: string, at: number): number {
  return at - (/[<[][^<>[\]]*$/.exec(text.slice(0, at))?.[0].length ?? 0);
}

/** Calls end a turn with what text ends it, or some of it. */
function withoutTurnEnd(text: string, turnEnd: string): string {
  const kept = text.slice(0, text.length - sharedEnd(text, turnEnd).length);
  const mark = markOf(turnEnd);
  const at = mark === '' ? -1 : kept.lastIndexOf(mark);
  return at < 0 ? kept : kept.slice(0, at);
}

/** The longest end that both texts have, which does not begin inside a tag. */
function sharedEnd(left: string, right: string): string {
  let length = 0;
  while (length < Math.min(left.length, right.length) && left.at(-1 - length) === right.at(-1 - length)) length++;
  const shared = left.slice(left.length - length);
  const isInside = (text: string): boolean => /[<[][^<>[\]]*$/.test(text.slice(0, text.length - length));
  if (!isInside(left) && !isInside(right)) return shared;
  const end = /[>\]]/.exec(shared);
  return end === null ? '' : shared.slice(end.index + 1);
}

/** The longest beginning that all texts have, which does not end inside a tag. */
function sharedBeginning(...texts: readonly string[]): string {
  const [first = '', ...others] = texts;
  const length = Math.min(...others.map((other) => sharedStart(first, other)));
  return first.slice(0, tokenStart(first, length));
}

/** One call as it is printed: from its object or name to the end of its arguments or object. */
interface PrintedCall {
  readonly start: number;
  readonly end: number;
  readonly inner: Pick<CallFormat, 'beforeName' | 'name' | 'beforeArguments' | 'arguments' | 'afterArguments'>;
}

function formatOf(
  { opening: printed, rest, isSingle, ids, plainTurn }: PrintedCalls,
  thoughtEnd: string | undefined,
  render: Prober,
): CallFormat | undefined {
  const text = printed + rest;
  const first = callIn(text, 0, names[0], ids[0] ?? '', '0', render);
  const next = isSingle ? undefined : callIn(text, first?.end ?? 0, names[1], ids[1] ?? '', '1', render);
  if (first === undefined || (!isSingle && next === undefined)) return undefined;
  const slotted = (part: string): string => ids.reduce((all, id) => all.replaceAll(id, idSlot), part);
  const before = slotted(text.slice(0, first.start));
  const opening = before.slice(thoughtEnd === undefined ? 0 : afterLast(before, thoughtEnd)).trimStart();
  const shape =
    next === undefined
      ? {
          open: '',
          openCall: opening,
          closeCall: slotted(text.slice(first.end)).trimEnd(),
          between: undefined,
          close: '',
        }
      : partsOf(opening, slotted(text.slice(first.end, next.start)), slotted(text.slice(next.end)).trimEnd());
  const mark = markOf(shape.open + shape.openCall);
  if (mark !== '' && (!/^(?:[<[]\S|\w+\[)/.test(mark) || plainTurn.includes(mark))) return undefined;
  if (mark === '' && first.inner.name !== 'json') return undefined;
  return { ...shape, ...first.inner, mark, ids: 'any' };
}

const afterLast = (text: string, mark: string): number =>
  text.includes(mark) ? text.lastIndexOf(mark) + mark.length : 0;

/** What is around the calls, and around each of them. */
function partsOf(opening: string, middle: string, end: string) {
  const openCall = sharedEnd(opening, middle);
  const left = middle.slice(0, middle.length - openCall.length);
  const closeCall = sharedBeginning(left, end);
  return {
    open: opening.slice(0, opening.length - openCall.length),
    openCall,
    closeCall,
    between: left.slice(closeCall.length),
    close: end.slice(closeCall.length),
  };
}

function callIn(
  text: string,
  from: number,
  name: string,
  id: string,
  index: string,
  render: Prober,
): PrintedCall | undefined {
  const at = text.indexOf(name, from);
  const object = objectAround(text, at, from, name);
  if (object !== undefined) return slottedObject(object, name, id, index);
  const behind = at + name.length;
  const key = text.indexOf('akey', behind);
  if (at < 0 || key < 0) return undefined;
  const json = valueAt(text, text.lastIndexOf('{', key));
  if (json !== undefined && isProbe(json.value)) {
    const beforeArguments = text.slice(behind, json.start).replaceAll(id, idSlot).replace(/^:\d+/, `:${idSlot}`);
    return { start: at, end: json.end, inner: { ...bare, beforeArguments, arguments: { type: 'json' } } };
  }
  return markedCall(text, at, behind, key, render);
}

const bare = { beforeName: '', name: 'bare', afterArguments: '' } as const;

const isProbe = (value: unknown): boolean => JSON.stringify(value) === JSON.stringify(probeArguments);

interface FoundObject {
  readonly start: number;
  readonly end: number;
  readonly source: string;
  readonly value: Readonly<Record<string, unknown>>;
}

/** The JSON object of a call in which the name is. */
function objectAround(text: string, at: number, from: number, name: string): FoundObject | undefined {
  for (let start = text.lastIndexOf('{', at); start >= from; start = text.lastIndexOf('{', start - 1)) {
    const found = valueAt(text, start);
    if (found === undefined || found.end <= at) continue;
    const value = found.value as Readonly<Record<string, unknown>>;
    const isCall = Object.values(value).includes(name) || Object.hasOwn(value, name);
    if (isCall && Object.values(value).some(isProbe)) return { ...found, source: text.slice(start, found.end), value };
    if (start === 0) break;
  }
  return undefined;
}

/** The JSON value that begins at a place. */
function valueAt(text: string, start: number): { start: number; end: number; value: unknown } | undefined {
  if (start < 0) return undefined;
  for (let end = text.indexOf('}', start); end >= 0; end = text.indexOf('}', end + 1)) {
    try {
      return { start, end: end + 1, value: JSON.parse(text.slice(start, end + 1)) };
    } catch {
      // It ends further on.
    }
  }
  return undefined;
}

function slottedObject(
  { start, end, source, value }: FoundObject,
  name: string,
  id: string,
  index: string,
): PrintedCall | undefined {
  const counted = Object.entries(value).find(([, field]) => field === index)?.[0];
  const slotted = (text: string): string => {
    const known = text.replaceAll(id, idSlot);
    return counted === undefined ? known : known.replace(`"${counted}": "${index}"`, `"${counted}": "${idSlot}"`);
  };
  const at = source.indexOf(`"${name}"`);
  const args = source.lastIndexOf('{', source.indexOf('"akey"'));
  const argsEnd = valueAt(source, args)?.end;
  if (args < at || argsEnd === undefined) return undefined;
  return {
    start,
    end,
    inner: {
      beforeName: slotted(source.slice(0, at)),
      name: 'json',
      beforeArguments: slotted(source.slice(at + name.length + 2, args)),
      arguments: { type: 'json' },
      afterArguments: slotted(source.slice(argsEnd)),
    },
  };
}

/** A call whose arguments are written one by one. */
function markedCall(text: string, at: number, behind: number, key: number, render: Prober): PrintedCall | undefined {
  const value = text.indexOf('Avalue', key);
  const nextKey = text.indexOf('bkey', value);
  const nextValue = text.indexOf('Bvalue', nextKey);
  if (value < 0 || nextKey < 0 || nextValue < 0) return undefined;
  const beforeText = text.slice(key + 4, value);
  if (text.slice(nextKey + 4, nextValue) !== beforeText || beforeText === '') return undefined;
  const between = text.slice(value + 6, nextKey);
  const beforeKey = sharedEnd(text.slice(behind, key), between);
  const behindValue = between.slice(0, between.length - beforeKey.length);
  const afterValue = sharedBeginning(behindValue, text.slice(nextValue + 6));
  const separator = behindValue.slice(afterValue.length);
  const beforeArguments = text.slice(behind, key - beforeKey.length);
  const form = argumentForm({ beforeKey, beforeText, afterValue, separator }, render);
  if (form === undefined) return undefined;
  return { start: at, end: nextValue + 6 + afterValue.length, inner: { ...bare, beforeArguments, arguments: form } };
}

/** Whether values are code or text is found with a value that is a number. */
function argumentForm(
  marks: {
    readonly beforeKey: string;
    readonly beforeText: string;
    readonly afterValue: string;
    readonly separator: string;
  },
  render: Prober,
): ArgumentForm | undefined {
  const { beforeKey, beforeText, afterValue, separator } = marks;
  const other = (value: unknown, shown: string): string | undefined => {
    const text = render([user, callTurn(1, { akey: value }, probeIds.nine)], names) ?? '';
    const at = text.lastIndexOf('akey', text.lastIndexOf(shown));
    return at < 0 ? undefined : text.slice(at + 4, text.lastIndexOf(shown));
  };
  const beforeOther = other(90817, '90817');
  if (beforeOther === undefined) return undefined;
  const quote = beforeText.slice(beforeOther.length);
  if (quote !== '' && beforeText.startsWith(beforeOther) && afterValue === quote)
    return beforeKey === '' ? { type: 'code', beforeValue: beforeOther, between: separator, quote } : undefined;
  // Values that are not text are JSON, and nothing says of which type they are.
  const list = other(['Avalue'], '["Avalue"]');
  if (separator !== '' || beforeKey.trim() === '' || afterValue.trim() === '' || list !== beforeOther) return undefined;
  return { type: 'tagged', beforeKey, beforeText, beforeOther, afterValue };
}

/** Whether the marks can be told from each other, and a call has an end where its arguments need one. */
function isReadable(format: CallFormat): boolean {
  const form = format.arguments;
  if (form.type !== 'json' && format.closeCall.trim() === '') return false;
  try {
    if (format.mark !== '') marksOf(format);
    if (form.type === 'tagged') new Marks([form.afterValue.trim()]);
    if (form.type === 'code') new Marks([form.quote]);
    return true;
  } catch {
    return false;
  }
}

/** Which ids a template takes is found with one of another form. */
function idsOf(render: Prober, kind: Ids): CallFormat['ids'] {
  if (kind === 'function-index') return kind;
  const other = render([user, callTurn(1, probeArguments, ['call_of_another_length'])], names);
  return other === undefined ? 'nine' : 'any';
}

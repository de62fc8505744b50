import type { Calls } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import type { Reading, Source } from './source.ts';

/**
 * How a model writes its calls: `open`, then for each call `openCall beforeName NAME beforeArguments ARGUMENTS afterArguments closeCall`,
 * with `between` between two calls, then `close`. Parser, grammar, the calls of earlier turns and the card follow from it alone. It is
 * derived from what the chat template prints (`derive.ts`); `named-formats.ts` has those that no template shows.
 */
export interface CallFormat {
  readonly open: string;
  readonly openCall: string;
  /** What precedes the name, if each call is one JSON object. May contain `idSlot`, as may the other texts of a call. */
  readonly beforeName: string;
  /** `json`: with quotes and escapes. */
  readonly name: 'json' | 'bare';
  readonly beforeArguments: string;
  readonly arguments: ArgumentForm;
  readonly afterArguments: string;
  readonly closeCall: string;
  /** `undefined`: an answer holds only one call. */
  readonly between: string | undefined;
  readonly close: string;
  /** What begins calls within free text: from there on a grammar may apply. Empty: what begins a call may also begin a text. */
  readonly mark: string;
  /** Which ids the template takes: any; nine letters and digits; `functions.NAME:INDEX`. */
  readonly ids: 'any' | 'nine' | 'function-index';
  /** Reads an answer in a way of its own, which sees these literals too. */
  readonly literals?: readonly string[];
  readonly read?: (source: Source, sink: EventSink, calls: Calls) => Reading;
}

export type ArgumentForm =
  | { readonly type: 'json' }
  /** Each argument between marks: text as it is, everything else in JSON. */
  | {
      readonly type: 'tagged';
      readonly beforeKey: string;
      readonly beforeText: string;
      /** Differs from `beforeText` in formats that say which values are text. */
      readonly beforeOther: string;
      readonly afterValue: string;
    }
  /** `key=value, …` with values as in Python or JSON, and strings between `quote`. */
  | { readonly type: 'code'; readonly beforeValue: string; readonly between: string; readonly quote: string };

/** Stands in the texts of a format where the id of the call is. */
export const idSlot = '\uFFFC';

/** One call, for `spelled`: arguments are an object, or text that is not one. */
export interface SpelledCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** Writes calls as the model does. */
export function spelled(format: CallFormat, calls: readonly SpelledCall[]): string {
  const written = calls.map((call) => {
    const name = format.name === 'json' ? JSON.stringify(call.name) : call.name;
    const head = format.openCall + format.beforeName + name + format.beforeArguments;
    const text = `${head}\uFFFD${format.afterArguments}${format.closeCall}`.replaceAll(idSlot, () => call.id);
    return text.replace('\uFFFD', () => spelledArguments(format.arguments, call.arguments));
  });
  return format.open + written.join(format.between ?? '') + format.close;
}

function spelledArguments(form: ArgumentForm, args: unknown): string {
  if (form.type === 'json' || typeof args !== 'object' || args === null) return asText(args);
  const fields = Object.entries(args);
  if (form.type === 'code')
    return fields.map(([key, value]) => key + form.beforeValue + spelledCode(value, form.quote)).join(form.between);
  return fields
    .map(([key, value]) => {
      const before = typeof value === 'string' ? form.beforeText : form.beforeOther;
      return form.beforeKey + key + before + asText(value) + form.afterValue;
    })
    .join('');
}

const asText = (value: unknown): string => (typeof value === 'string' ? value : spacedJson(value));

function spelledCode(value: unknown, quote: string): string {
  if (quote.length > 1) return typeof value === 'string' ? quote + value + quote : spacedCode(value, quote);
  if (typeof value !== 'string') return spacedJson(value);
  return quote + value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll(quote, `\\${quote}`) + quote;
}

/** Objects whose keys are bare. */
function spacedCode(value: unknown, quote: string): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => spelledCode(item, quote)).join(',')}]`;
  return `{${Object.entries(value)
    .map(([key, item]) => `${key}:${spelledCode(item, quote)}`)
    .join(',')}}`;
}

/** Writes JSON with Python's spacing, which models were trained on. */
export function spacedJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(spacedJson).join(', ')}]`;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}: ${spacedJson(field)}`).join(', ')}}`;
}

/** The literals of a format, in which control tokens may be. */
export function literalsOf(format: CallFormat): readonly string[] {
  const { open, openCall, beforeName, beforeArguments, afterArguments, closeCall, between = '', close } = format;
  const form = format.arguments;
  const inner =
    form.type === 'tagged'
      ? [form.beforeKey, form.beforeText, form.beforeOther, form.afterValue]
      : form.type === 'code'
        ? [form.beforeValue, form.quote]
        : [];
  const texts = [open, openCall, beforeName, beforeArguments, ...inner, afterArguments, closeCall, between, close];
  return [...texts.flatMap((text) => text.split(idSlot)), format.mark, ...(format.literals ?? [])].filter(
    (text) => text.trim() !== '',
  );
}

/** What a text begins with that a reader can search for: a tag, a word in brackets, or all up to a blank. */
export function markOf(text: string): string {
  return /^(?:<[^<>\s]*>|\[[A-Z_]+\]|[^\s{["]+)/.exec(text.trimStart())?.[0] ?? '';
}

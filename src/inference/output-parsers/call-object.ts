import type { Calls } from './calls.ts';
import { readString, readValue, readWholeString } from './json.ts';
import { ignore, Malformed, type Reading, type Source } from './source.ts';

/**
 * Reads a call written as one object, `{"name": "f", "arguments": {…}}`; others have `tool_name` and `parameters`. The fields may come in
 * any order; the first of two equal names counts. An object that begins with another field is not a call. `isKeyed`: `{"f": {…}}`.
 */
export function* readCallObject(source: Source, calls: Calls, isKeyed = false): Reading {
  yield* source.expect('{');
  if (isKeyed) return yield* readKeyed(source, calls);
  let name: string | undefined;
  let early: string | undefined;
  let isBegun = false;
  for (;;) {
    yield* source.blanks();
    const field = yield* readWholeString(source);
    if (!fields.has(field)) throw new Malformed();
    yield* source.blanks();
    yield* source.expect(':');
    yield* source.blanks();
    let isWhole = true;
    if (nameFields.has(field) && name === undefined) name = yield* readWholeString(source);
    else if (!argumentFields.has(field) || early !== undefined || isBegun) yield* readValue(source, ignore);
    else if (name === undefined) {
      const collected: string[] = [];
      if (!(yield* readArguments(source, (text) => collected.push(text)))) throw new Malformed();
      early = collected.join('');
    } else {
      calls.begin(name);
      isBegun = true;
      isWhole = yield* readArguments(source, calls.arguments);
      calls.finish();
    }
    if (!isWhole) return;
    yield* source.blanks();
    if (yield* source.accept(',')) continue;
    yield* source.expect('}');
    if (isBegun) return;
    if (name === undefined) throw new Malformed();
    calls.begin(name);
    calls.arguments(early ?? '');
    calls.finish();
    return;
  }
}

function* readKeyed(source: Source, calls: Calls): Reading {
  yield* source.blanks();
  calls.begin(yield* readWholeString(source));
  yield* source.blanks();
  yield* source.expect(':');
  yield* source.blanks();
  const isWhole = yield* readArguments(source, calls.arguments);
  calls.finish();
  yield* source.blanks();
  if (isWhole) yield* source.expect('}');
}

/** Reads arguments. Some models write the object as a string that contains it. */
export function* readArguments(source: Source, pass: (text: string) => void): Reading<boolean> {
  const first = yield* source.peek();
  if (first === '"') {
    yield* readString(source, pass);
    return true;
  }
  if (first === '{' || first === '[') return yield* readValue(source, pass);
  // Usually `null`: no arguments. If there is nothing, or the text ends within it, the intended value is unknown.
  let isThere = false;
  yield* readValue(source, () => (isThere = true));
  if (!isThere || (yield* source.peek()) === undefined) throw new Malformed();
  return true;
}

const argumentFields: ReadonlySet<string> = new Set(['arguments', 'parameters']);
const nameFields: ReadonlySet<string> = new Set(['name', 'tool_name']);
const fields: ReadonlySet<string> = new Set([...nameFields, 'id', 'tool_call_id', 'type', ...argumentFields]);

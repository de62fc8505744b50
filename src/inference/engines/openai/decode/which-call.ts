import { StreamFault } from '../sse.ts';
import { isBlank, type ArgumentsText } from './arguments-text.ts';
import { isObject, text, type JsonObject } from './json.ts';

/** One entry of `tool_calls`. */
export interface Fragment {
  readonly index: number | undefined;
  readonly id: string | undefined;
  /** Empty if there is none. */
  readonly name: string;
  readonly arguments: string;
}

/** What is known about a call, as far as it decides whether a fragment belongs to it. */
export interface KnownCall {
  readonly id: string | undefined;
  readonly name: string;
  readonly arguments: ArgumentsText;
  /** A fragment that may have begun another call; that depends on what follows. */
  readonly next: Fragment | undefined;
}

/**
 * - `continues` the call.
 * - `begins` another one.
 * - `repeats` what was already said.
 * - `unsure`: begins another call if arguments follow; otherwise repeats the name.
 */
export type Belonging = 'continues' | 'begins' | 'repeats' | 'unsure';

/**
 * Decides whether a fragment belongs to the call that it refers to by its index or id, or to the last one. Servers set the same index or
 * the same id for all calls, a new id or the whole name in every fragment, or no index and no id; so these mean less than the name and
 * whether the arguments so far are whole. When in doubt:
 *
 * - Arguments that are not whole are continued, with any id; only another name begins another call.
 * - Whole arguments are not continued: a name with arguments begins another call, even one that is the same except for its id.
 * - A name before any arguments is continued if the two together are, or begin, the name of a tool of the request.
 */
export function belongs(call: KnownCall, fragment: Fragment, tools: readonly string[]): Belonging {
  const { id, name, arguments: piece, index } = fragment;
  const isNewId = call.id !== undefined && id !== undefined && id !== call.id;
  const { isEmpty, isWhole } = call.arguments;
  if (name === '') {
    if (isWhole && isBlank(piece) && call.next !== undefined) return 'repeats';
    if (!isWhole || isBlank(piece)) return 'continues';
    if (call.next !== undefined) return 'begins';
    if (call.arguments.isSame(piece)) return 'repeats';
    return isNewId ? 'begins' : 'continues';
  }
  // Without an index, a new id is the only sign of another call.
  if (isNewId && index === undefined) return 'begins';
  // Its arguments came first.
  if (call.name === '') return 'continues';
  const isSameName = name === call.name;
  if (isEmpty) return isSameName || grownName(call.name, name, tools) !== undefined ? 'continues' : 'begins';
  if (!isSameName) return 'begins';
  if (!isWhole) return 'continues';
  if (isBlank(piece)) return 'unsure';
  return id !== undefined && id === call.id && call.arguments.isSame(piece) ? 'repeats' : 'begins';
}

/** Returns the name that two pieces make, if the second continues the first or repeats all of it so far; otherwise `undefined`. */
export function grownName(before: string, piece: string, tools: readonly string[]): string | undefined {
  const isBeginning = (name: string): boolean => tools.some((tool) => tool.startsWith(name));
  if (tools.includes(before) && tools.includes(piece)) return undefined;
  if (isBeginning(before + piece)) return before + piece;
  return piece.startsWith(before) && isBeginning(piece) ? piece : undefined;
}

/** Returns whether a name may be only the first piece of a tool's name. */
export const mayGrow = (name: string, tools: readonly string[]): boolean =>
  tools.some((tool) => tool.length > name.length && tool.startsWith(name));

const indexMax = 256;

export function fragmentOf(raw: unknown): Fragment {
  if (!isObject(raw)) throw new StreamFault('expected an object in tool_calls');
  const index = raw['index'] ?? undefined;
  if (index !== undefined && (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= indexMax)) {
    throw new StreamFault('the index of a tool call is out of range');
  }
  const called: JsonObject = isObject(raw['function']) ? raw['function'] : {};
  const written = called['arguments'];
  return {
    index: index as number | undefined,
    id: typeof raw['id'] === 'string' && raw['id'] !== '' ? raw['id'] : undefined,
    name: text(called['name']),
    arguments: typeof written === 'object' && written !== null ? JSON.stringify(written) : text(written),
  };
}

import { mulberry32 } from './random.ts';

/** A call that a server is to say. No arguments: the empty text. */
export interface SaidCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/**
 * How servers say calls otherwise than OpenAI does; each was seen. A field left out is OpenAI's way. What together leaves open which
 * calls were meant is not generated (`isDecidable`).
 */
export interface CallOddities {
  /** `zero`: all calls have it. */
  readonly index: 'own' | 'from-one' | 'zero' | 'none';
  /** `fresh`: another one in each fragment. */
  readonly id: 'own' | 'same' | 'none' | 'fresh';
  readonly idIn: 'first' | 'each';
  readonly name: 'first' | 'each' | 'pieces' | 'late';
  /** What fragments without a name have at its place. */
  readonly noName: 'left out' | 'null' | 'empty';
  /** The first fragment has no arguments yet. */
  readonly beginsEmpty: boolean;
  /** A last fragment without arguments. */
  readonly endsEmpty: boolean;
  /** The whole call once more. */
  readonly repeats: boolean;
  readonly interleaves: boolean;
  /** Several fragments in one list. */
  readonly groups: boolean;
  /** Text between fragments. */
  readonly talks: boolean;
  /** A message at the end has everything once more. */
  readonly closes: boolean;
}

export interface OddCalls {
  readonly calls: readonly SaidCall[];
  readonly oddities: CallOddities;
  /** Each is the `delta` of a choice. */
  readonly deltas: readonly Readonly<Record<string, unknown>>[];
  /** The `message` of the choice beside the finish reason, if the answer is closed by one. */
  readonly message: Readonly<Record<string, unknown>> | undefined;
  /** The same calls in the message of a whole answer. */
  readonly whole: Readonly<Record<string, unknown>>;
  /** What is said beside the calls. */
  readonly text: string;
}

/** One is the beginning of another. */
export const oddTools = ['alpha', 'beta', 'get', 'get_weather'] as const;

const someArguments = [
  '',
  '',
  '{}',
  '{"q": "1"}',
  '{"q":"{]\\"}"}',
  '{"a":[{"b":"ü😀"}],"c":null}',
  ' {"q":2}\n',
] as const;

/** An answer with calls as an odd server says it. The same seed gives the same answer. */
export function oddCalls(seed: number): OddCalls {
  const random = mulberry32(seed);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!;
  const often = (share: number): boolean => random() < share;
  for (;;) {
    const calls = Array.from({ length: 1 + Math.floor(random() * 4) }, (_, number) => ({
      id: `call_${seed}_${number}`,
      name: pick(oddTools),
      arguments: pick(someArguments),
    }));
    const oddities: CallOddities = {
      index: pick(['own', 'from-one', 'zero', 'none']),
      id: pick(['own', 'same', 'none', 'fresh']),
      idIn: pick(['first', 'each']),
      name: pick(['first', 'each', 'pieces', 'late']),
      noName: pick(['left out', 'null', 'empty']),
      beginsEmpty: often(0.5),
      endsEmpty: often(0.3),
      repeats: often(0.2),
      interleaves: often(0.4),
      groups: often(0.3),
      talks: often(0.3),
      closes: often(0.2),
    };
    if (isDecidable(calls, oddities)) return { calls, oddities, ...said(calls, oddities, random) };
  }
}

function isDecidable(calls: readonly SaidCall[], oddities: CallOddities): boolean {
  const { index, id, idIn, name, endsEmpty, repeats, interleaves, groups } = oddities;
  const hasIndex = index === 'own' || index === 'from-one';
  const hasId = id === 'own' && idIn === 'each';
  if (interleaves && !hasIndex && !(index === 'none' && hasId)) return false;
  if (groups && !hasIndex) return false;
  if (repeats && id !== 'own') return false;
  // A new id in each fragment: what has the same name is the same call, unless its arguments were whole.
  const endsBlank = endsEmpty || calls.some((call) => call.arguments.endsWith('\n'));
  if (id === 'fresh' && (endsBlank || (index === 'none' && name !== 'first'))) return false;
  if (name === 'late' && (!hasIndex || calls.some((call) => call.arguments === '') || endsEmpty)) return false;
  // Behind a name without arguments, only an index, or an id where no index says otherwise, begins another call of such a name.
  const tellsApart = hasIndex || (index === 'none' && id === 'own');
  return calls.every(({ name: next, arguments: own }, number) => {
    const before = calls[number - 1];
    if (before === undefined || tellsApart) return true;
    if (before.arguments === '' && next.startsWith(before.name)) return false;
    // Once more, or a call that is the same.
    if (id === 'same' && before.name === next && before.arguments === own) return false;
    return before.name !== next || (own !== '' && name !== 'each') || id === 'own';
  });
}

type Fragment = Readonly<Record<string, unknown>>;

function said(
  calls: readonly SaidCall[],
  oddities: CallOddities,
  random: () => number,
): Pick<OddCalls, 'deltas' | 'message' | 'whole' | 'text'> {
  const { interleaves, groups, talks, closes } = oddities;
  const queues = calls.map((call, number) => fragmentsOf(call, number, oddities, random));
  const fragments: Fragment[] = [];
  // Calls begin in their order, whatever comes between their fragments.
  let begun = 0;
  while (queues.some((queue) => queue.length > 0)) {
    const open = queues.findIndex((queue) => queue.length > 0);
    const from = interleaves ? Math.floor(random() * Math.min(calls.length, begun + 1)) : open;
    const fragment = queues[from]!.shift();
    if (fragment === undefined) continue;
    begun = Math.max(begun, from + 1);
    fragments.push(fragment);
  }
  const deltas: Fragment[] = [];
  let text = '';
  while (fragments.length > 0) {
    const count = groups ? 1 + Math.floor(random() * 3) : 1;
    deltas.push({ tool_calls: fragments.splice(0, count) });
    if (!talks || random() < 0.5) continue;
    deltas.push({ content: 'so, ' });
    text += 'so, ';
  }
  const list = calls.map(({ id, name, arguments: own }) => ({
    id,
    type: 'function',
    function: { name, arguments: own },
  }));
  const whole = { role: 'assistant', content: text, tool_calls: list };
  return { deltas, message: closes ? whole : undefined, whole, text };
}

function fragmentsOf(call: SaidCall, number: number, oddities: CallOddities, random: () => number): Fragment[] {
  const { beginsEmpty, endsEmpty, repeats, name: naming } = oddities;
  const names = naming === 'pieces' ? cut(call.name, random) : [call.name];
  const pieces = cut(call.arguments, random);
  if (beginsEmpty && naming !== 'late') pieces.unshift('');
  if (endsEmpty) pieces.push('');
  // In one fragment with the last piece of the name, or behind it.
  const total = names.length - 1 + pieces.length;
  const fragments = Array.from({ length: total }, (_, at) => {
    const piece = pieces[at - names.length + 1];
    const isNamed = naming === 'each' || (naming === 'late' ? at === total - 1 : at < names.length);
    const name = isNamed ? (names[at] ?? call.name) : undefined;
    return fragmentOf(call, number, at, oddities, name, piece);
  });
  if (repeats) fragments.push(fragmentOf(call, number, 0, oddities, call.name, call.arguments));
  return fragments;
}

function fragmentOf(
  call: SaidCall,
  number: number,
  at: number,
  { index, id, idIn, noName }: CallOddities,
  name: string | undefined,
  piece: string | undefined,
): Fragment {
  const indexes = { own: number, 'from-one': number + 1, zero: 0, none: undefined };
  const ids = { own: call.id, same: 'call_0', none: undefined, fresh: `${call.id}_${at}` };
  const shownId = at === 0 || idIn === 'each' || id === 'fresh' ? ids[id] : undefined;
  const empty = { 'left out': {}, null: { name: null }, empty: { name: '' } };
  return {
    ...(indexes[index] === undefined ? {} : { index: indexes[index] }),
    ...(shownId === undefined ? {} : { id: shownId, type: 'function' }),
    function: {
      ...(name === undefined ? empty[noName] : { name }),
      ...(piece === undefined ? {} : { arguments: piece }),
    },
  };
}

/** A text in one to four pieces, none of them empty unless the text is. */
function cut(text: string, random: () => number): string[] {
  const pieces = [text];
  for (let cuts = Math.floor(random() * 4); cuts > 0; cuts--) {
    const last = pieces.at(-1)!;
    if (last.length < 2) break;
    const at = 1 + Math.floor(random() * (last.length - 1));
    pieces.splice(-1, 1, last.slice(0, at), last.slice(at));
  }
  return pieces;
}

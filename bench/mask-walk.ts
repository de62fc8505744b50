import type { GrammarStates, State } from './grammar-states.ts';

/** Where a walk is between two tokens: a state of the grammar, and the first bytes of a character that is not complete yet. */
export interface Standing {
  readonly state: State;
  readonly part: readonly number[];
  readonly inString: boolean;
  readonly isEscaped: boolean;
}

export const beginning = (states: GrammarStates): Standing => ({
  state: states.start,
  part: [],
  inString: false,
  isEscaped: false,
});

/** After a token; `undefined`: the grammar refuses it; `blank`: it has white space outside strings, which both sides choose for themselves. */
export function afterToken(states: GrammarStates, from: Standing, token: Uint8Array): Standing | 'blank' | undefined {
  let { state, inString, isEscaped } = from;
  let part = [...from.part];
  for (const byte of token) {
    part.push(byte);
    const point = pointOf(part);
    if (point === 'broken') return undefined;
    if (point === 'more') continue;
    part = [];
    if (!inString && (point === 32 || point === 10 || point === 13 || point === 9)) return 'blank';
    const next = states.after(state, point);
    if (next === undefined) return undefined;
    state = next;
    if (isEscaped) isEscaped = false;
    else if (inString && point === 92) isEscaped = true;
    else if (point === 34) inString = !inString;
  }
  if (part.length > 0 && !states.allows(state, ...pointsFrom(part))) return undefined;
  return { state, part, inString, isEscaped };
}

const lengthOf = (first: number): number =>
  first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;

function pointOf(bytes: readonly number[]): number | 'more' | 'broken' {
  const length = lengthOf(bytes[0]!);
  if (length === 0 || bytes.slice(1).some((byte) => byte >> 6 !== 2)) return 'broken';
  if (bytes.length < length) {
    const [first, last] = pointsFrom(bytes);
    return first > last ? 'broken' : 'more';
  }
  const point = Buffer.from(bytes).toString().codePointAt(0)!;
  return point === 0xfffd && bytes[0] !== 0xef ? 'broken' : point;
}

/** The first and the last character that begin with these bytes, without surrogates. */
function pointsFrom(bytes: readonly number[]): [number, number] {
  const length = lengthOf(bytes[0]!);
  const bits = (bytes[0]! & (0xff >> (length + 1))) >>> 0;
  const known = bytes.slice(1).reduce((sum, byte) => sum * 64 + (byte & 63), bits);
  const open = 64 ** (length - bytes.length);
  const least = [0, 0, 0x80, 0x800, 0x10000][length]!;
  const [first, last] = [Math.max(known * open, least), Math.min(known * open + open - 1, 0x10ffff)];
  if (first >= 0xd800 && last <= 0xdfff) return [1, 0];
  return [first, last];
}

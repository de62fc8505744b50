import { chance, pick, type Random } from './chance.ts';
import type { Habits } from './habits.ts';
import type { Meaning } from './meaning.ts';

type Json = Readonly<Record<string, unknown>>;

/** A piece of an answer: a delta, and what stands beside it in its choice. */
export interface Piece {
  readonly delta?: Json | null;
  readonly message?: Json;
  readonly text?: string | null;
}

/** A text in the deltas of a server: words, any characters, or all at once; with `halves`, between the two of a character. */
export function cut(text: string, { deltas, halves }: Pick<Habits, 'deltas' | 'halves'>, random: Random): string[] {
  if (text === '') return [];
  if (deltas === 'whole') return [text];
  const pieces: string[] = [];
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + 1 + Math.floor(random() * (deltas === 'words' ? 8 : 3)));
    if (deltas === 'words') while (to < text.length && /[\p{L}\p{M}]/u.test(text[to]!)) to++;
    if (halves === 'joined' && isBetweenHalves(text, to)) to++;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}

function isBetweenHalves(text: string, at: number): boolean {
  const [before, after] = [text.charCodeAt(at - 1), text.charCodeAt(at)];
  return before >= 0xd800 && before < 0xdc00 && after >= 0xdc00 && after < 0xe000;
}

/** The pieces of a choice of a text completion. */
export const completionPieces = ({ text }: Meaning, habits: Habits, random: Random): Piece[] =>
  cut(text, habits, random).map((piece) => ({ text: piece }));

/** The pieces of a choice of a chat. */
export function chatPieces(meaning: Meaning, habits: Habits, random: Random): Piece[] {
  const { reasoning, calls } = meaning;
  const [beforeText, text] = taggedText(meaning, habits);
  const thoughts = cut(isTagged(habits) ? '' : reasoning, habits, random).map((piece) => reasoningDelta(piece, habits));
  const tagged = cut(beforeText, habits, random).map((piece) => textPiece(piece, habits));
  const words = [...tagged, ...cut(text, habits, random).map((piece) => textPiece(piece, habits))];
  // Beside tags the thought comes twice: first by itself, or each part of it before that in the text.
  const said = [...thoughts, ...words];
  const at = thoughts.length;
  if (habits.joins === 'yes' && at > 0 && words[0]?.delta !== undefined && !hasParts(habits)) {
    said.splice(at - 1, 2, { delta: { ...thoughts[at - 1]!.delta, ...words[0].delta } });
  }
  if (calls.length === 0) return said;
  const fragments = callDeltas(meaning, habits, random).map((delta): Piece => ({ delta }));
  if (habits.talks === 'no') return [...said, ...fragments];
  // What is left of the text comes between the fragments.
  const late = said.splice(Math.max(thoughts.length + tagged.length, said.length - fragments.length));
  return [...said, ...fragments.flatMap((fragment, place) => [fragment, ...late.slice(place, place + 1)])];
}

const isTagged = ({ reasoning }: Habits): boolean => reasoning === 'tags' || reasoning === 'tags in lines';
const hasParts = ({ reasoning, content }: Habits): boolean => reasoning === 'parts' || content !== 'text';

/** The thought that stands in the text between tags, and the text. */
function taggedText({ reasoning, text }: Meaning, habits: Habits): readonly [string, string] {
  if (reasoning === '') return ['', text];
  if (habits.reasoning === 'tags in lines') return [`<think>\n${reasoning}</think>\n\n`, text];
  if (habits.reasoning === 'tags' || habits.reasoning === 'tags beside') return [`<think>${reasoning}</think>`, text];
  return ['', text];
}

function reasoningDelta(piece: string, { reasoning }: Habits): Piece & { readonly delta: Json } {
  switch (reasoning) {
    case 'reasoning_content':
    case 'tags':
    case 'tags in lines':
    case 'tags beside':
      return { delta: { reasoning_content: piece } };
    case 'reasoning':
      return { delta: { reasoning: piece, reasoning_details: [{ type: 'reasoning.text', text: piece }] } };
    case 'reasoning_text':
      return { delta: { reasoning_text: piece } };
    case 'both names':
      return { delta: { reasoning_content: piece, reasoning: piece } };
    case 'an empty one beside':
      return { delta: { reasoning_content: '', reasoning: piece } };
    case 'a list':
      return { delta: { reasoning_content: [{ type: 'text', text: piece }] } };
    case 'parts':
      return { delta: { content: [{ type: 'thinking', thinking: [{ type: 'text', text: piece }] }] } };
  }
}

function textPiece(piece: string, { content }: Habits): Piece {
  switch (content) {
    case 'text':
      return { delta: { content: piece } };
    case 'parts':
      return {
        delta: {
          content: [
            { type: 'text', text: piece },
            { type: 'reference', reference_ids: [1] },
          ],
        },
      };
    case 'parts without types':
      return { delta: { content: [{ text: piece }] } };
    case 'texts in a list':
      return { delta: { content: [piece] } };
    case 'refusal':
      return { delta: { content: '', refusal: piece } };
    case 'text of the choice':
      return { text: piece };
  }
}

/** Arguments as they are written: an object has no layout. */
export const writtenArguments = (written: string): string =>
  written === '' ? '{}' : JSON.stringify(JSON.parse(written));

const argumentsOf = (written: string, isObject: boolean): unknown =>
  isObject ? (JSON.parse(written === '' ? '{}' : written) as unknown) : written;

function callDeltas({ calls, oddly }: Meaning, habits: Habits, random: Random): readonly Json[] {
  if (habits.calls === 'odd') return oddly!.deltas.filter((delta) => delta['tool_calls'] !== undefined);
  const isObject = habits.arguments === 'object';
  return calls.flatMap(({ id, name, arguments: written }, index): Json[] => {
    const pieces = isObject ? [] : cut(written, habits, random);
    if (habits.calls === 'before lists') {
      const first = { function_call: { name, arguments: isObject ? argumentsOf(written, true) : '' } };
      return [first, ...pieces.map((piece) => ({ function_call: { arguments: piece } }))];
    }
    const begun = { name, arguments: isObject ? argumentsOf(written, true) : '' };
    return [
      { tool_calls: [{ index, id, type: 'function', function: begun }] },
      ...pieces.map((piece) => ({ tool_calls: [{ index, function: { arguments: piece } }] })),
    ];
  });
}

/** The choice of a whole answer. */
export function wholeChoice(meaning: Meaning, habits: Habits): Piece {
  const { reasoning, text, calls } = meaning;
  const isText = habits.content === 'text of the choice' && reasoning === '' && calls.length === 0;
  return isText ? { text } : wholeMessage(meaning, habits);
}

/** The choice's message of a whole answer. */
export function wholeMessage(meaning: Meaning, habits: Habits): Piece {
  const { reasoning, calls } = meaning;
  const [tagged, text] = taggedText(meaning, habits);
  const all = tagged + text;
  const thought = reasoning === '' || isTagged(habits) ? {} : reasoningDelta(reasoning, habits).delta;
  const said =
    all === '' ? { content: calls.length > 0 ? null : '' } : (textPiece(all, habits).delta ?? { content: all });
  const parts = [thought, said].flatMap(({ content }: Json) => (Array.isArray(content) ? (content as unknown[]) : []));
  // A thought among the parts makes a list of all of them.
  const isList = habits.reasoning === 'parts' && reasoning !== '' && typeof said['content'] === 'string' && all !== '';
  const content = isList ? [...parts, { type: 'text', text: all }] : parts;
  const isObject = habits.arguments === 'object';
  const list = calls.map(({ id, name, arguments: written }) => {
    const called = { name, arguments: argumentsOf(written, isObject) };
    return { id, type: 'function', function: called };
  });
  const toolCalls =
    habits.calls === 'before lists' && list.length > 0
      ? { function_call: list[0]!.function }
      : list.length > 0
        ? { tool_calls: list }
        : {};
  const merged = content.length > 0 ? { content } : {};
  return { message: { role: 'assistant', ...thought, ...said, ...merged, ...toolCalls } };
}

/** Deltas that say nothing, between the others. */
export function withEmpties(pieces: readonly Piece[], isText: boolean, habits: Habits, random: Random): Piece[] {
  const empty: Readonly<Record<Habits['empties'], readonly Piece[]>> = {
    none: [],
    objects: isText ? [{ text: '' }] : [{ delta: {} }],
    texts: isText ? [{ text: '' }] : [{ delta: { content: '' } }, { delta: { content: '', reasoning_content: '' } }],
    nulls: isText ? [{ text: null }, {}] : [{ delta: null }, { delta: { content: null, tool_calls: [] } }, {}],
  };
  const values = empty[habits.empties];
  if (values.length === 0) return [...pieces];
  const some = (): Piece[] => (chance(random, 0.3) ? [pick(random, values)] : []);
  return [...some(), ...pieces.flatMap((piece) => [piece, ...some()])];
}

import { chance, pick, type Random } from './chance.ts';

/** How an answer is said otherwise than OpenAI does. The first value of each is OpenAI's way. */
export const habitValues = {
  /** The body of an answer that was to be streamed. `one event`: all of it as the one event of a stream. */
  body: ['events', 'whole', 'one event'],
  /** How much of a text a delta has. */
  deltas: ['words', 'units', 'whole'],
  /** Deltas end between the two escapes of a character. */
  halves: ['joined', 'cut'],
  content: ['text', 'parts', 'parts without types', 'texts in a list', 'refusal', 'text of the choice'],
  reasoning: [
    ...(['reasoning_content', 'reasoning', 'reasoning_text', 'both names', 'an empty one beside', 'a list'] as const),
    ...(['parts', 'tags', 'tags in lines', 'tags beside'] as const),
  ],
  /** The last of the thought and the first of the answer in one delta. */
  joins: ['no', 'yes'],
  /** The oddities of `oddCalls`; `before lists`: the one call of the API before there were lists. */
  calls: ['plain', 'odd', 'before lists'],
  /** Text between the fragments of calls. */
  talks: ['no', 'yes'],
  /** Arguments as an object, where a call is said whole. */
  arguments: ['text', 'object'],
  role: ['own chunk', 'with the first', 'in each', 'none'],
  /** Deltas that say nothing. */
  empties: ['none', 'objects', 'texts', 'nulls'],
  nulls: ['none', 'all'],
  choiceIndex: ['own', 'none'],
  /** A chunk without choices at the beginning. */
  opens: ['no', 'with results of a filter', 'with usage of null'],
  /** What chunks in the middle have as finish reason. */
  unfinished: ['null', 'left out', 'empty', 'a word'],
  finishWord: ['plain', 'odd'],
  finishAt: ['own chunk', 'last', 'twice', 'none for calls'],
  /** A message with everything at the end. */
  closes: ['no', 'beside the finish', 'before the finish'],
  /** A piece without a delta behind the finish. */
  trails: ['no', 'yes'],
  usageAt: [
    'end',
    'finish',
    'before the finish',
    'choice',
    'x_groq',
    'each',
    'each and end',
    'timings',
    'none',
    'after each choice',
  ],
  usageNames: [
    'openai',
    'plain',
    'null details',
    'cached_tokens',
    'hits',
    'anthropic',
    'responses',
    'reasoning_tokens',
  ],
  /** Reasoning counted beside the completion. */
  reasoningBeside: ['no', 'named', 'in the total alone'],
  figures: [
    ...(['true', 'zeros', 'no completion', 'no prompt', 'negative', 'fractions', 'texts', 'huge'] as const),
    ...(['cached beyond', 'reasoning beyond', 'above the limit', 'too small'] as const),
  ],
  lineEnd: ['\n', '\r\n', '\r'],
  colon: ['data: ', 'data:'],
  comments: ['no', 'yes'],
  eventNames: ['no', 'yes'],
  mark: ['no', 'yes'],
  lines: ['one', 'several'],
  json: ['tight', 'spaced', 'ascii'],
  done: ['yes', 'no', 'without an empty line'],
  envelope: ['openai', 'bare', 'odd'],
  /** What one read of the socket brings. */
  reads: ['events', 'all', 'bytes'],
} as const;

export type HabitName = keyof typeof habitValues;
export type Habits = { readonly [Name in HabitName]: (typeof habitValues)[Name][number] };
/** The values that a kind of server has beside the first ones. */
export type KnownHabits = { readonly [Name in HabitName]?: readonly Habits[Name][] };

export const habitNames = Object.keys(habitValues) as readonly HabitName[];
export const plainHabits = Object.fromEntries(habitNames.map((name) => [name, habitValues[name][0]])) as Habits;

/** A server's habits: few of all, or of those that are known of its kind. */
export function someHabits(random: Random, known?: KnownHabits): Habits {
  // From a server with one oddity to one that has most of them.
  const share = [0.05, 0.15, 0.4][Math.floor(random() * 3)]!;
  const chosen: Record<string, unknown> = { ...plainHabits };
  for (const name of habitNames) {
    const isOdd = chance(random, known === undefined ? share : 0.6);
    const value = pick(random, known === undefined ? habitValues[name] : (known[name] ?? [plainHabits[name]]));
    if (isOdd) chosen[name] = value;
  }
  return chosen as unknown as Habits;
}

/** The habits that are odd, for a message. */
export const oddOnes = (habits: Habits): Partial<Habits> =>
  Object.fromEntries(Object.entries(habits).filter(([name, value]) => value !== plainHabits[name as HabitName]));

import { mulberry32 } from '../random.ts';
import { between, chance, pick } from './chance.ts';

/** How a server answers for embeddings and ranks; the first value of each is OpenAI's way. */
const taskHabits = {
  order: ['own', 'shuffled'],
  /** `none` and `null` only for vectors in their own order: a ranking is sorted. */
  index: ['own', 'none', 'null'],
  numbers: ['base64', 'floats', 'whole numbers'],
  score: ['relevance_score', 'score'],
  /** A list without anything around it. */
  envelope: ['whole', 'bare'],
  usage: ['prompt', 'total alone', 'input', 'none', 'zeros', 'zero and a total', 'fewer than prompts', 'texts', 'null'],
} as const;
type TaskHabits = { readonly [Name in keyof typeof taskHabits]: (typeof taskHabits)[Name][number] };

const taskFaults = ['one less', 'one twice', 'a shorter vector', 'no direction', 'a text', 'an index beyond'] as const;

/** An answer for a task as an odd server says it, and what it means. The same seed gives the same answer. */
export interface OddTask {
  readonly type: 'embed' | 'rank';
  readonly habits: TaskHabits;
  readonly fault: (typeof taskFaults)[number] | undefined;
  /** Of each prompt: a vector of length 1, or a relevance. */
  readonly findings: readonly (readonly number[] | number)[];
  /** `undefined`: nothing that can be true was said. */
  readonly promptTokens: number | undefined;
  readonly body: unknown;
}

export function oddTask(seed: number): OddTask {
  const random = mulberry32(seed);
  const type = pick(random, ['embed', 'rank'] as const);
  const count = between(random, 1, 5);
  const isWhole = chance(random, 0.3);
  // Exact in 32 bits, and with whole numbers of length 5.
  const vector = (): number[] =>
    pick(random, [
      [3, 4],
      [-4, 3],
      [0, 5],
      [5, 0],
    ]).map((value) => (isWhole ? value : value / 8));
  const raw = Array.from({ length: count }, () => (type === 'embed' ? vector() : between(random, 0, 16) / 16));
  const chosen: Record<string, unknown> = {};
  for (const [name, values] of Object.entries(taskHabits))
    chosen[name] = chance(random, 0.5) ? pick(random, values) : values[0];
  const habits = { ...(chosen as TaskHabits) };
  const fixed: TaskHabits = {
    ...habits,
    ...(type === 'rank' ? { index: 'own' } : { envelope: 'whole' }),
    ...(habits.order === 'shuffled' ? { index: 'own' } : {}),
    ...(isWhole ? {} : { numbers: habits.numbers === 'whole numbers' ? 'floats' : habits.numbers }),
  };
  const wrong = chance(random, 0.15) ? pick(random, taskFaults) : undefined;
  const ofVectors = ['a shorter vector', 'no direction'].includes(wrong ?? '');
  const needsTwo = wrong === 'a shorter vector' || wrong === 'one twice';
  const needsIndex = wrong === 'one twice' || wrong === 'an index beyond';
  const isPossible =
    !(ofVectors && type === 'rank') && !(needsTwo && count < 2) && !(needsIndex && fixed.index !== 'own');
  const fault = isPossible ? wrong : undefined;
  const entries = raw.map((finding, index) => entryOf(finding, index, fixed));
  if (fault !== undefined) spoil(entries, fault, type);
  if (fixed.order === 'shuffled') entries.sort(() => random() - 0.5);
  const tokens = between(random, count, 40);
  const usage = usageOf(tokens, count, fixed);
  const around = type === 'embed' ? { object: 'list', model: 'm', data: entries } : { id: 'r', results: entries };
  const body = fixed.envelope === 'bare' ? entries : { ...around, ...(usage === undefined ? {} : { usage }) };
  const isSaid =
    ['prompt', 'total alone', 'input', 'zero and a total'].includes(fixed.usage) && fixed.envelope === 'whole';
  const findings = raw.map((finding) => (typeof finding === 'number' ? finding : unit(finding)));
  return { type, habits: fixed, fault, findings, promptTokens: isSaid ? tokens : undefined, body };
}

const unit = (vector: readonly number[]): readonly number[] => vector.map((value) => value / Math.hypot(...vector));

function entryOf(finding: readonly number[] | number, index: number, habits: TaskHabits): Record<string, unknown> {
  const place = { own: { index }, none: {}, null: { index: null } }[habits.index];
  if (typeof finding === 'number') return { ...place, [habits.score]: finding, document: { text: 'x' } };
  const bytes = Buffer.from(Float32Array.from(finding).buffer);
  return { object: 'embedding', ...place, embedding: habits.numbers === 'base64' ? bytes.toString('base64') : finding };
}

function spoil(entries: Record<string, unknown>[], fault: NonNullable<OddTask['fault']>, type: OddTask['type']): void {
  const field = type === 'embed' ? 'embedding' : Object.hasOwn(entries[0]!, 'score') ? 'score' : 'relevance_score';
  switch (fault) {
    case 'one less':
      return void entries.pop();
    case 'one twice':
      return void (entries[1]!['index'] = 0);
    case 'an index beyond':
      return void (entries[0]!['index'] = entries.length);
    case 'a shorter vector':
      return void (entries[0]!['embedding'] = [1]);
    case 'no direction':
      return void (entries[0]!['embedding'] = [0, 0]);
    case 'a text':
      return void (entries[0]![field] = 'none');
  }
}

function usageOf(tokens: number, count: number, { usage }: TaskHabits): unknown {
  switch (usage) {
    case 'prompt':
      return { prompt_tokens: tokens, total_tokens: tokens };
    case 'total alone':
      return { total_tokens: tokens };
    case 'input':
      return { input_tokens: tokens };
    case 'none':
      return undefined;
    case 'zeros':
      return { prompt_tokens: 0, total_tokens: 0 };
    case 'zero and a total':
      return { prompt_tokens: 0, total_tokens: tokens };
    case 'fewer than prompts':
      return { prompt_tokens: count - 1, total_tokens: count - 1 };
    case 'texts':
      return { prompt_tokens: String(tokens), total_tokens: String(tokens) };
    case 'null':
      return null;
  }
}

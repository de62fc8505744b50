import { plainHabits, type HabitName, type Habits } from './habits.ts';
import type { Meaning } from './meaning.ts';
import type { OddServer } from './servers.ts';

/** Without habits that exclude each other, or that say nothing of these meanings. */
export function consistent(
  habits: Habits,
  meanings: readonly Meaning[],
  api: 'chat' | 'completions',
  { reasons, endsCallsWithoutReason, closingUsage }: OddServer,
): Habits {
  const kept: { -readonly [Name in HabitName]: Habits[Name] } = { ...habits };
  const drop = (...names: readonly HabitName[]): void => {
    for (const name of names) (kept as Record<string, unknown>)[name] = plainHabits[name];
  };
  const isSeveral = meanings.length > 1;
  // There, the last of the answer comes with its finish.
  if (kept.usageAt === 'before the finish' && kept.finishAt === 'last') drop('finishAt');
  if (kept.usageAt === 'before the finish' && kept.closes === 'beside the finish') drop('closes');
  // No server puts a call between the halves of a character.
  if (kept.talks === 'yes') drop('halves');
  const calls = meanings.flatMap((meaning) => meaning.calls);
  const isStreamed = kept.body === 'events';
  if (api === 'completions') drop('content', 'reasoning', 'joins', 'calls', 'talks', 'arguments', 'role', 'closes');
  if (isSeveral) {
    drop('choiceIndex');
    if (!['choice', 'none', 'after each choice'].includes(kept.usageAt)) drop('usageAt');
  }
  if (kept.usageAt === 'after each choice' && !(isStreamed && closingUsage === 'per-choice')) drop('usageAt');
  if (isSeveral && kept.usageAt === 'end' && closingUsage === 'per-choice' && isStreamed)
    kept.usageAt = 'after each choice';
  if (calls.length === 0) drop('calls', 'talks', 'arguments');
  if (kept.calls === 'before lists' && (isSeveral || calls.length !== 1)) drop('calls');
  if (kept.calls === 'odd' && isStreamed) drop('arguments', 'closes');
  if (kept.content === 'refusal' && calls.length > 0) drop('content');
  if (kept.content !== 'text' && kept.reasoning.startsWith('tags')) drop('reasoning');
  if (!reasons && kept.reasoning.startsWith('tags')) drop('reasoning');
  if (!reasons && kept.reasoningBeside === 'in the total alone') drop('reasoningBeside');
  // Before much is said, a figure that will be too small can be true.
  if (kept.figures === 'too small' && kept.usageAt.startsWith('each')) drop('figures');
  if (kept.figures !== 'true' || isSeveral || kept.usageAt === 'timings') drop('reasoningBeside');
  const mayHaveNone = endsCallsWithoutReason && isStreamed && kept.done !== 'no';
  const areCalls = meanings.every((meaning) => meaning.calls.length > 0 && meaning.finish === 'stop');
  if (kept.finishAt === 'none for calls' && !(mayHaveNone && areCalls)) drop('finishAt');
  return kept;
}

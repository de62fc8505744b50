import type { Task } from '../../../generation/request.ts';
import type { Finding } from '../task-events.ts';

/** Length of a scripted vector. */
const dimensions = 16;

/**
 * Computes a scripted finding: how often each of sixteen kinds of bytes occurs in a text, so that similar texts have similar vectors; or
 * the share of the query's words that a document contains.
 */
export function findingOf(task: Task, prompt: string | readonly number[]): Finding {
  if (task.type === 'embed') {
    const vector = new Array<number>(dimensions).fill(0);
    for (const value of typeof prompt === 'string' ? Buffer.from(prompt) : prompt) vector[value % dimensions]!++;
    return vector;
  }
  const wordsOf = (text: string): ReadonlySet<string> => new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
  const words = wordsOf(task.query);
  const found = wordsOf(String(prompt));
  return words.size === 0 ? 0 : [...words].filter((word) => found.has(word)).length / words.size;
}

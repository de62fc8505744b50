import type { GenerationEvent } from '../../generation/event.ts';
import { ApiError } from '../../platform/errors.ts';
import type { Task } from '../../generation/request.ts';

/** An engine's result for one prompt: a vector of any length, or a relevance between 0 and 1. */
export type Finding = ArrayLike<number> | number;

/**
 * Returns the events of one prompt of a task; `undefined` for an impossible finding. Vectors are cut to the requested dimensions and
 * normalized to length 1 here, for all engines: that is how Matryoshka embeddings are shortened, and some servers do neither.
 *
 * Throws `unsupported_value` if the vector is shorter than requested.
 */
export function taskEvents(task: Task, choice: number, finding: Finding): readonly GenerationEvent[] | undefined {
  const finish: GenerationEvent = { type: 'finish', choice, reason: 'stop' };
  if (typeof finding === 'number') {
    if (task.type !== 'rank' || !(finding >= 0 && finding <= 1)) return undefined;
    return [{ type: 'score', choice, score: finding }, finish];
  }
  const vector = task.type === 'embed' ? unitVector(finding, task.dimensions) : undefined;
  return vector === undefined ? undefined : [{ type: 'vector', choice, vector }, finish];
}

function unitVector(all: ArrayLike<number>, dimensions = all.length): Float32Array | undefined {
  if (dimensions > all.length) {
    throw new ApiError('unsupported_value', `The embeddings of this model have ${all.length} dimensions.`, {
      param: 'dimensions',
    });
  }
  let squares = 0;
  for (let index = 0; index < dimensions; index++) squares += all[index]! * all[index]!;
  const length = Math.sqrt(squares);
  // A zero vector has no direction; anything that is not a number makes this NaN.
  if (!(length > 0 && length < Infinity)) return undefined;
  return Float32Array.from({ length: dimensions }, (_, index) => all[index]! / length);
}

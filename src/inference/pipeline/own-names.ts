import type { FieldPaths } from '../../generation/request.ts';
import { ApiError } from '../../platform/errors.ts';

/** The names of `FieldPaths` for the fields that an engine's error may name. */
const namesOf: Readonly<Record<string, (at: FieldPaths) => string | undefined>> = {
  messages: (at) => at.prompt,
  prompt: (at) => at.prompt,
  tool_choice: (at) => at.toolChoice,
  'response_format.type': (at) => at.constraintType,
  response_format: (at) => at.constraint,
  regex: (at) => at.constraintType,
  stop: (at) => at.stop,
  logprobs: (at) => at.logprobs,
};

/** Returns an engine's error with the request's own name for the field. Engines know no API, and name fields as chat completions do. */
export function withOwnNames(at: FieldPaths, error: unknown): unknown {
  if (!(error instanceof ApiError) || error.param === undefined || !Object.hasOwn(namesOf, error.param)) return error;
  const own = namesOf[error.param]!(at);
  return own === undefined || own === error.param ? error : error.at(own);
}

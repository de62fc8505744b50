import { ApiError } from '../../platform/errors.ts';
import type { GenerationRequest } from '../../generation/request.ts';
import type { Backend } from './backend-pool.ts';

/**
 * Refuses token ids outside the model's vocabulary (contracts §1.1), if its backends report the vocabulary's size; other backends refuse
 * such ids themselves. Throws `unsupported_value` 400.
 */
export function checkTokenIds({ prompt, tokens, at }: GenerationRequest, backends: readonly Backend[]): void {
  const size = vocabularySize(backends);
  if (size === undefined) return;
  const refused = (param: string): ApiError =>
    new ApiError('unsupported_value', `A token id must be between 0 and ${size - 1}, the vocabulary of the model.`, {
      param,
    });
  if (prompt.type === 'token-ids') {
    for (const [index, ids] of prompt.prompts.entries()) {
      const found = ids.findIndex((id) => id >= size);
      if (found >= 0) throw refused(at.tokenId?.(index, found) ?? at.prompt);
    }
  }
  if (tokens?.stopIds.some((id) => id >= size) === true) throw refused('stop_token_ids');
}

/** The smallest vocabulary, because any of the backends may get the request. */
function vocabularySize(backends: readonly Backend[]): number | undefined {
  const sizes = backends.flatMap(({ engine: { vocabularySize: size } }) => (size === undefined ? [] : [size]));
  return sizes.length === 0 ? undefined : Math.min(...sizes);
}

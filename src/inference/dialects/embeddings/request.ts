import { ApiError } from '../../../platform/errors.ts';
import type { GenerationRequest, Prompt } from '../../../generation/request.ts';
import { taskPromptsMax, taskRequest } from '../tasks.ts';
import { bodyCheck } from '../validate.ts';
import { embeddingsRequestSchema } from './schema.ts';
import type { EmbeddingsRequestBody } from './schema.ts';

const check = bodyCheck(embeddingsRequestSchema, ['model', 'input']);

/** An embeddings request, and how its vectors are printed. */
export interface EmbeddingsRequest {
  readonly request: GenerationRequest;
  readonly encoding: 'float' | 'base64';
}

/** Decodes the body of `POST /v1/embeddings`. */
export function decodeEmbeddingsRequest(json: unknown): EmbeddingsRequest {
  const { model, input, dimensions, encoding_format } = check(json);
  const isList = Array.isArray(input) && typeof input[0] !== 'number';
  const promptAt = (index: number): string => (isList ? `input[${index}]` : 'input');
  const tokenId = (prompt: number, index: number): string => `${promptAt(prompt)}[${index}]`;
  const prompt = promptOf(input, tokenId);
  if (prompt.prompts.length > taskPromptsMax) throw wrong('input', `must have at most ${taskPromptsMax} elements`);
  const empty = prompt.prompts.findIndex(({ length }) => length === 0);
  if (empty >= 0) throw wrong(promptAt(empty), 'must not be empty');
  const task = { type: 'embed', field: 'input', dimensions: dimensions ?? undefined } as const;
  return { request: taskRequest(model, prompt, task, { promptAt, tokenId }), encoding: encoding_format ?? 'float' };
}

const wrong = (param: string, what: string): ApiError =>
  new ApiError('schema_validation_failed', `'${param}' ${what}.`, { param });

function promptOf(
  input: EmbeddingsRequestBody['input'],
  tokenId: (prompt: number, index: number) => string,
): Exclude<Prompt, { readonly type: 'messages' }> {
  if (typeof input === 'string') return { type: 'texts', prompts: [input.toWellFormed()] };
  if (typeof input[0] === 'string')
    return { type: 'texts', prompts: (input as readonly string[]).map((text) => text.toWellFormed()) };
  const prompts =
    typeof input[0] === 'number' ? [input as readonly number[]] : (input as readonly (readonly number[])[]);
  for (const [index, ids] of prompts.entries()) {
    const at = ids.findIndex((id) => id < 0);
    if (at >= 0)
      throw new ApiError('unsupported_value', 'A token id cannot be negative.', { param: tokenId(index, at) });
  }
  return { type: 'token-ids', prompts };
}

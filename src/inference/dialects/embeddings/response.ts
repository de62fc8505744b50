import type { Generation } from '../../../generation/fold.ts';
import type { AnswerFormat, ResponseHead } from '../dialect.ts';
import { wholeOnly } from '../whole-only.ts';
import type { EmbeddingsRequest } from './request.ts';

/** OpenAI's `CreateEmbeddingResponse`: the vectors in the order of the inputs. */
export const embeddingsFormat = (encoding: EmbeddingsRequest['encoding']): AnswerFormat =>
  wholeOnly((generation, head) => encodeEmbeddings(generation, head, encoding));

function encodeEmbeddings(
  { choices, usage }: Generation,
  { model }: ResponseHead,
  encoding: EmbeddingsRequest['encoding'],
): string {
  const data = choices.map(({ index, vector }) => {
    if (vector === undefined) throw new Error(`input ${index} has no vector`);
    return { object: 'embedding', index, embedding: encoding === 'base64' ? base64Of(vector) : [...vector] };
  });
  const { promptTokens } = usage;
  return JSON.stringify({
    object: 'list',
    data,
    model,
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  });
}

/** Little-endian 32-bit floats, on any machine. */
function base64Of(vector: Float32Array): string {
  const bytes = Buffer.allocUnsafe(vector.length * 4);
  vector.forEach((value, index) => bytes.writeFloatLE(value, index * 4));
  return bytes.toString('base64');
}

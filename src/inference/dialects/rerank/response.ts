import type { Generation } from '../../../generation/fold.ts';
import type { AnswerFormat, ResponseHead } from '../dialect.ts';
import { wholeOnly } from '../whole-only.ts';
import type { RerankForm } from './request.ts';

/** Lists the most relevant documents first; equal ones in the order of the request. */
export const rerankFormat = (form: RerankForm): AnswerFormat =>
  wholeOnly((generation, head) => encodeResults(generation, head, form));

function encodeResults({ choices, usage }: Generation, head: ResponseHead, { topN, documents }: RerankForm): string {
  const results = choices
    .map(({ index, score }) => {
      if (score === undefined) throw new Error(`document ${index} has no score`);
      const text = documents?.[index];
      return { index, relevance_score: score, ...(text === undefined ? {} : { document: { text } }) };
    })
    .sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index);
  const { promptTokens } = usage;
  return JSON.stringify({
    id: `rerank-${head.id}`,
    model: head.model,
    results: results.slice(0, topN),
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  });
}

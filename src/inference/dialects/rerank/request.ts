import type { GenerationRequest } from '../../../generation/request.ts';
import { taskRequest } from '../tasks.ts';
import { bodyCheck } from '../validate.ts';
import { rerankRequestSchema } from './schema.ts';

const check = bodyCheck(rerankRequestSchema, ['model', 'query', 'documents']);

/** A rerank request, and which of its results are printed. */
export interface RerankRequest {
  readonly request: GenerationRequest;
  readonly form: RerankForm;
}

export interface RerankForm {
  readonly topN: number;
  /** The documents to print with their results; `undefined`: none. */
  readonly documents: readonly string[] | undefined;
}

/** Decodes the body of `POST /v1/rerank`. */
export function decodeRerankRequest(json: unknown): RerankRequest {
  const { model, query, documents, top_n, return_documents } = check(json);
  const prompts = documents.map((document) => (typeof document === 'string' ? document : document.text).toWellFormed());
  const task = { type: 'rank', field: 'documents', query: query.toWellFormed() } as const;
  return {
    request: taskRequest(model, { type: 'texts', prompts }, task, { promptAt: (index) => `documents[${index}]` }),
    form: { topN: top_n ?? prompts.length, documents: return_documents === true ? prompts : undefined },
  };
}

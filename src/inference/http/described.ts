import { chatDescription } from '../dialects/chat/description.ts';
import { completionsDescription } from '../dialects/completions/description.ts';
import type { EndpointDescription } from '../dialects/description.ts';
import { embeddingsDescription } from '../dialects/embeddings/description.ts';
import { messageCountDescription, messagesDescription } from '../dialects/messages/description.ts';
import { rerankDescription } from '../dialects/rerank/description.ts';
import { inputTokensDescription, responsesDescription } from '../dialects/responses/description.ts';
import type { Endpoint } from '../openapi/openapi-document.ts';
import { inferenceRoutes } from './routes.ts';

/** The API description of each inference route, by path. */
const descriptions: ReadonlyMap<string, EndpointDescription> = new Map([
  ['/v1/chat/completions', chatDescription],
  ['/v1/completions', completionsDescription],
  ['/v1/embeddings', embeddingsDescription],
  ['/v1/rerank', rerankDescription],
  ['/v1/messages', messagesDescription],
  ['/v1/messages/count_tokens', messageCountDescription],
  ['/v1/responses', responsesDescription],
  ['/v1/responses/input_tokens', inputTokensDescription],
]);

/** The inference routes, as listed in the API description. */
export const describedEndpoints: readonly Endpoint[] = [...inferenceRoutes].flatMap(([path, { kind, flags }]) => {
  const description = descriptions.get(path);
  return description === undefined ? [] : [{ path, kind, description, flags }];
});

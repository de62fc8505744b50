import type { Flavor } from './flavor.ts';
import { openai } from './openai.ts';

/**
 * Hugging Face's text-embeddings-inference, which only embeds and ranks; checked against version 1.9.3. By default it takes 32 texts per
 * request (`--max-client-batch-size`), and silently truncates longer texts (`--auto-truncate`): texts to embed are counted first, and for
 * texts to rank it is asked not to truncate.
 */
export const tei: Flavor = {
  ...openai,
  counting: 'tokenize-inputs',
  tasks: {
    promptsMax: 32,
    takesIds: false,
    tokensHeader: 'x-compute-tokens',
    rank: { path: 'root', documents: 'texts', scores: 'relevance', always: { truncate: false } },
  },
  loading: /Model is not ready|starting/i,
};

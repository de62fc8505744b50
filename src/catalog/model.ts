import type { Effort } from '../generation/request.ts';
import type { Prices } from './pricing.ts';

/** What a model's card promises for one API family or in all of them (specification §2.3). */
export interface Capabilities {
  readonly vision: boolean;
  readonly tools: boolean;
  readonly reasoning: boolean;
  readonly chat: {
    readonly supported: boolean;
    readonly streaming: boolean;
    readonly tools: boolean;
    readonly toolStreaming: boolean;
    readonly jsonObject: boolean;
    readonly jsonSchema: boolean;
    readonly jsonSchemaRefs: boolean;
    readonly toolsWithResponseFormat: boolean;
    readonly n: boolean;
    readonly regex: boolean;
    readonly grammar: boolean;
    /** Not on the card: `logprobs` and `logit_bias` (contracts decision 20). */
    readonly logprobs: boolean;
    readonly logitBias: boolean;
  };
  readonly zdr: boolean;
  readonly efforts: readonly Effort[];
  readonly defaultEffort: Effort;
}

/** One entry of the catalog: the facts behind a model's card. */
export interface Model {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly ownedBy: string;
  /** Tokens of prompt and answer together. */
  readonly contextLength: number;
  /** Cap on the answer; null = bounded by the window only. */
  readonly maxOutputTokens: number | null;
  readonly prices: Prices;
  /** Which of the four sampling fields reach the model (specification part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  readonly capabilities: Capabilities;
}

/** What the service can do for every text model today; what is not built yet is false. */
export const textCapabilities: Capabilities = {
  vision: false,
  tools: false,
  reasoning: false,
  chat: {
    supported: true,
    streaming: true,
    tools: false,
    toolStreaming: false,
    jsonObject: false,
    jsonSchema: false,
    jsonSchemaRefs: false,
    toolsWithResponseFormat: false,
    n: false,
    regex: false,
    grammar: false,
    logprobs: false,
    logitBias: false,
  },
  zdr: false,
  efforts: ['none'],
  defaultEffort: 'none',
};

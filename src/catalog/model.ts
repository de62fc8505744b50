import type { Effort } from '../generation/request.ts';
import type { Prices } from './pricing.ts';

/** What a model's card promises for one API family or in all of them (specification §2.3). */
export interface Capabilities {
  /** Accepts images. */
  readonly vision: boolean;
  /** Calls functions. */
  readonly tools: boolean;
  /** Returns its reasoning apart from the answer. */
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
  readonly responses: {
    readonly supported: boolean;
    readonly streaming: boolean;
    readonly tools: boolean;
    readonly textFormats: readonly TextFormat[];
    readonly rawJsonSchemaText: boolean;
  };
  readonly messages: {
    readonly supported: boolean;
    readonly streaming: boolean;
    readonly tools: boolean;
    readonly toolStreaming: boolean;
    readonly vision: boolean;
    readonly reasoning: boolean;
  };
  /** Whether requests with `Service-ZDR: required` are accepted at all. */
  readonly zdr: boolean;
  /** Not empty. Without `none` the model always reasons. */
  readonly efforts: readonly Effort[];
  /** One of `efforts`. */
  readonly defaultEffort: Effort;
  /** Tokens that an answer may have beyond `max_tokens` while it reasons (specification §4.2.1(5)); 0: none. */
  readonly reasoningRoomTokens: number;
  /** With effort `none` it still reasons: neither returned nor counted as reasoning (§4.2.5(4), contracts decision 25). */
  readonly hidesReasoning: boolean;
  /** Its reasoning stays in the content, between think tags (§4.2.5(1)). */
  readonly inlinesReasoning: boolean;
  /** Accepts the reasoning of earlier turns (§4.2.5(7)). */
  readonly preservesThinking: boolean;
}

/** Values of `text.format.type` on /v1/responses. */
export type TextFormat = 'text' | 'json_object' | 'json_schema';

/** One entry of the catalog: the facts behind a model's card. */
export interface Model {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | undefined;
  readonly tier: string | undefined;
  readonly ownedBy: string;
  /** Tokens of prompt and answer together. */
  readonly contextLength: number;
  /** Cap on the answer; null: bounded by the window only. */
  readonly maxOutputTokens: number | null;
  /** List prices; an account may have others. */
  readonly prices: Prices;
  /** Which of the four sampling fields reach the model (specification part 1). */
  readonly sampling: 'honor' | 'ignore' | 'fixed';
  /** Shown on the card: for requests without `Service-ZDR`. */
  readonly capabilities: Capabilities;
  /** For requests with it (§4.2.3(5)); the same where the model offers no zero data retention. */
  readonly zdrCapabilities: Capabilities;
  /** `YYYY-MM-DD`: from 00:00:00 UTC of this day on the model is gone (contracts decision 25). */
  readonly deprecationDate: string | undefined;
  /** The accounts that have it to themselves; absent: every account has it. */
  readonly dedicatedTo?: ReadonlySet<string> | undefined;
}

/** What a request may use: flags may depend on the ZDR partition (§4.2.3(5)). */
export const capabilitiesFor = (model: Pick<Model, 'capabilities' | 'zdrCapabilities'>, zdr: boolean): Capabilities =>
  zdr ? model.zdrCapabilities : model.capabilities;

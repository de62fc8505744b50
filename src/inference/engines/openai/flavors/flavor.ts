import type { Tier } from '../../../../generation/tier.ts';
import type { Constraint, Effort, EngineConstraint } from '../../../../generation/request.ts';
import type { ErrorCode } from '../../../../platform/errors.ts';
import type { ImageTokenRule } from '../../image-tokens.ts';
import type { ReportPage } from '../server-report.ts';

/** A kind of server's names, and its deviations from the OpenAI wire format. No other code knows which kind a server is. */
export interface Flavor {
  /** Fields sent with every request. */
  readonly always: Readonly<Record<string, unknown>>;
  /**
   * The field `priority` of a request in each service tier, for a server that was started to order its own queue by it; undefined: this
   * kind of server has no such order.
   */
  readonly priorities?: Readonly<Record<Tier, number>>;
  /** Names of sampling fields; `undefined`: the server does not know the field, so it is not sent. */
  readonly topK: string | undefined;
  readonly minP: string | undefined;
  readonly repetitionPenalty: string | undefined;
  readonly presencePenalty: string | undefined;
  /** Seeds are taken modulo this value, and without their sign unless the server accepts one. */
  readonly seedModulus: number;
  readonly hasSignedSeeds: boolean;
  /** The name of the token limit for models that reason; `max_tokens` for all others. */
  readonly reasoningLimit: 'max_tokens' | 'max_completion_tokens';
  /** Returns the fields that set a reasoning model's effort. The tiers are those of the model's card: its server knows them. */
  readonly effort: (effort: Effort, isConstrained: boolean) => Readonly<Record<string, unknown>>;
  /**
   * How to force a function: by name, or (for servers that know only keywords) as the one tool of a `required` choice. `ignored`: the
   * server does not support a choice, so a request that forces a call is refused.
   */
  readonly namedToolChoice: 'by-name' | 'as-only-tool' | 'ignored';
  /** Constraints that the server enforces. Others are never sent to it. */
  readonly enforces: readonly Constraint['type'][];
  /** Constraints that the server would also apply to the reasoning: with them reasoning is switched off. */
  readonly constrainsReasoning: readonly Constraint['type'][];
  /**
   * Whether the server gets the schema and converts it itself, as is necessary where the reasoning before the answer must stay free.
   * Otherwise it gets the service's grammar, and answers are checked against that exactly.
   */
  readonly convertsItself: (type: Constraint['type'], effort: Effort) => boolean;
  /** Returns the fields for a constraint that it enforces. */
  readonly constraint: (constraint: EngineConstraint, effort: Effort) => Readonly<Record<string, unknown>>;
  /** Fields that make the server continue the assistant's words at the end of the conversation; `undefined` if there are none. */
  readonly continuation: Readonly<Record<string, unknown>> | undefined;
  /** Whether its answer then begins with these words. */
  readonly echoesBeginning: boolean;
  /** Whether it leaves a stop sequence at the end of its answer, where it is then removed here. */
  readonly keepsStop: boolean;
  /** Whether it reports which stop sequence ended an answer, and thus also that none did. */
  readonly returnsStop: boolean;
  /** Whether it binds the arguments of a forced call only if the tool is marked as `strict`. */
  readonly bindsStrictTools: boolean;
  /** Whether a tool without parameters is an error. */
  readonly needsParameters: boolean;
  /** Whether an answer that is a whole call has no finish reason: only a truncated one has. */
  readonly endsCallsWithoutReason: boolean;
  /** Additional fields of a forced call, besides those of its tools. */
  readonly forcedCall: Readonly<Record<string, unknown>>;
  /** Whether `top_p: 0` is an error; for other servers it means the likeliest token. */
  readonly refusesNoTopP: boolean;
  /** Whether `top_p: 1` is an error; for other servers it means all tokens, as without the field. */
  readonly refusesWholeTopP: boolean;
  /** Whether several choices at temperature 0 are an error. */
  readonly refusesGreedyChoices: boolean;
  /** The fewest alternatives that may be requested for a chosen token. */
  readonly topLogprobsMin: number;
  /** Whether it continues a text as it is; a server that puts the text into its template would answer it, so it gets none. */
  readonly continuesTexts: boolean;
  /** The fields of text completions that the server supports. */
  readonly completions: CompletionNames;
  /**
   * How cached prompts are isolated (reliability §3.5): by a salt in the request; by switching the cache off, except on a server that was
   * fresh and until a second scope appears; or not at all, if the server has no means.
   */
  readonly cacheIsolation: 'salt' | 'switch' | 'none';
  readonly closingUsage: 'total' | 'per-choice';
  /** Whether each delta of its streams is one token, so that an answer abandoned before its usage arrives is counted by them. */
  readonly hasTokenPerDelta: boolean;
  readonly counting: 'apply-template' | 'tokenize-messages' | 'tokenize-inputs' | 'tokenize-chat' | 'none';
  /** Where it reports its own load, the best page first; empty if it does not. */
  readonly reports: readonly ReportPage[];
  readonly tasks: TaskWire;
  readonly imageTokens: ImageTokenRule;
  /** Idle sockets are closed before the server closes them, so that no request meets a closing one. */
  readonly keepAliveMs: number;
  readonly requestsPerSocket: number | undefined;
  /** A 503 with this text: the server is loading its model. */
  readonly loading: RegExp | undefined;
  /** An error with this text means, regardless of its status, that the server is overloaded. */
  readonly overloaded: RegExp | undefined;
  /** Refusals that the client's request has certainly caused. */
  readonly refusals: readonly Refusal[];
}

export interface Refusal {
  readonly text: RegExp;
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
}

/**
 * The names that a kind of server has for the fields of text completions beyond OpenAI's (contracts §1.1). `undefined`: it has no such
 * field, so a request that needs it is refused, because these servers ignore unknown fields.
 */
export interface CompletionNames {
  /**
   * Whether the server begins an answer with the prompt, in one piece with the first text and with the logprobs of both. If it does not,
   * texts are put before the answer here, without logprobs.
   */
  readonly echo: boolean;
  /** The field that requests the answer's `token_ids` and `prompt_token_ids`, whose names are the same on all servers. */
  readonly returnsIds: string | undefined;
  /** Tokens of logprobs come as `token_id:7` if requested by this name, or always with their ids. */
  readonly namesIds: string | 'always' | undefined;
  readonly stopIds: string | undefined;
  readonly ignoresEnd: string | undefined;
  readonly tokensMin: string | undefined;
  readonly skipsSpecial: string | undefined;
  readonly includesStop: string | undefined;
  readonly addsSpecial: string | undefined;
  /** Whether constraints work, in the fields of chat; for models that reason they may not. */
  readonly constrains: 'always' | 'without-reasoning' | 'never';
}

/** How a kind of server ranks documents. */
export interface RankWire {
  /** Whether its path is next to the API's version or below it. */
  readonly path: 'root' | 'versioned';
  readonly documents: 'documents' | 'texts';
  /**
   * `logit`: any number, which the logistic function turns into a relevance. `relevance-or-cosine`: for an embedding model, the cosine of
   * two vectors; a negative one means no relevance.
   */
  readonly scores: 'relevance' | 'logit' | 'relevance-or-cosine';
  /** Fields sent with every request. */
  readonly always?: Readonly<Record<string, unknown>>;
}

/**
 * How a kind of server embeds, which is OpenAI's way for all of them, and ranks. `promptsMax`: maximum prompts per request; `rank`: absent
 * if it cannot rank; `byFlag`: it does either only if started for it, and may still answer chats; `takesIds`: false if it turns token ids
 * into a text and reads that; `tokensHeader`: the header with the number of tokens read, if the answer does not state it.
 */
export interface TaskWire {
  readonly promptsMax?: number;
  readonly rank?: RankWire;
  readonly byFlag?: boolean;
  readonly takesIds?: boolean;
  readonly tokensHeader?: string;
}

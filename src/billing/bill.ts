import type { Usage } from '../generation/event.ts';

/** What a hold is made for: whose money, the largest prompt that may come, and what tokens cost. */
export interface Bill {
  readonly requestId: Uint8Array;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly startedAt: number;
  /** A plan pays: nothing is held and nothing charged, whatever it costs. */
  readonly isCovered: boolean;
  /** Upper bound of the prompt's tokens, from its bytes, or their exact number. */
  readonly promptTokens: number;
  /** Largest number of generated tokens of all choices together. */
  readonly completionTokensMax: number;
  cost(usage: Usage): bigint;
  /** Exact number of prompt tokens, asked for only when the bound is not funded; `undefined` when nobody can count. */
  countPrompt(): Promise<number | undefined>;
}

/** A hold starts with room for so many generated tokens, and is extended by as many (docs/money.md). */
export const holdStepTokens = 2_048;

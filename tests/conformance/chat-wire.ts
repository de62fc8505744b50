/** Chat completions as they stand on the wire (specification §2.5 to §2.7). */

/** A chunk as it stands on the wire. */
export interface WireChunk {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly {
    readonly index: number;
    readonly delta: {
      readonly role?: string;
      readonly content?: string;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly WireToolCallDelta[];
    };
    readonly logprobs: { readonly content: readonly unknown[] } | null;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: WireUsage;
  readonly error?: Readonly<Record<string, unknown>>;
}

export interface WireUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly completion_tokens_details: { readonly reasoning_tokens: number };
}

/** A whole answer as it stands on the wire. */
export interface WireCompletion extends Omit<WireChunk, 'choices' | 'usage' | 'error'> {
  readonly choices: readonly {
    readonly index: number;
    readonly message: {
      readonly role: string;
      readonly content: string | null;
      readonly reasoning_content: string | null;
      readonly tool_calls: readonly WireToolCall[] | null;
    };
    readonly finish_reason: string;
  }[];
  readonly usage: WireUsage;
}

export interface WireToolCall {
  readonly id: string;
  readonly type: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface WireToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly type?: string;
  readonly function: { readonly name?: string; readonly arguments?: string };
}

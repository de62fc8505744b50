/**
 * - `stop`: the model ended its answer, or met a stop sequence.
 * - `filtered`: the server ended it because of its content; it need not have any form.
 * - `length`: a limit cut it.
 * - `calls`: it ends with calls.
 * - `failed`: the server failed to complete it; none of it counts.
 * - `none`: not a finish.
 */
export type FinishKind = 'stop' | 'filtered' | 'length' | 'calls' | 'failed' | 'none';

/** Values of `finish_reason`, with the servers known to send them; compared by their letters only, in lower case. */
export const finishWords: Readonly<Record<Exclude<FinishKind, 'none'>, readonly string[]>> = {
  stop: [
    // OpenAI and nearly all; Anthropic; TGI; Together; Cohere; LM Studio's own API; Ollama.
    ...['stop', 'end_turn', 'stop_sequence', 'pause_turn', 'eos_token', 'eos', 'COMPLETE', 'completed', 'finished'],
    ...['eosFound', 'stopStringFound', 'end', 'done', 'stopped'],
  ],
  filtered: [
    // OpenAI and DeepSeek; Anthropic; GLM; Cohere; Bedrock; Gemini.
    ...['content_filter', 'refusal', 'sensitive', 'ERROR_TOXIC', 'guardrail_intervened', 'content_filtered'],
    ...['SAFETY', 'RECITATION', 'BLOCKLIST', 'PROHIBITED_CONTENT', 'SPII', 'LANGUAGE', 'IMAGE_SAFETY'],
  ],
  length: [
    // OpenAI; Anthropic and Gemini; Mistral; the Responses API; GLM; Cohere; LM Studio's own API; vLLM.
    ...['length', 'max_tokens', 'model_length', 'max_output_tokens', 'max_completion_tokens', 'max_length'],
    ...['model_context_window_exceeded', 'context_length_exceeded', 'context_length', 'ERROR_LIMIT', 'token_limit'],
    ...['maxPredictedTokensReached', 'contextLengthReached', 'max_new_tokens', 'truncated', 'repetition'],
  ],
  calls: ['tool_calls', 'tool_call', 'tool_use', 'function_call', 'toolCalls'],
  failed: [
    // vLLM and SGLang; GLM; DeepSeek; Cohere; LM Studio's own API; Gemini.
    ...['error', 'abort', 'aborted', 'network_error', 'insufficient_system_resource', 'timeout', 'timed_out'],
    ...['cancelled', 'canceled', 'cancel', 'USER_CANCEL', 'server_error', 'internal_error', 'failed', 'model_error'],
    ...['userStopped', 'modelUnloaded', 'unload', 'disconnect', 'interrupted', 'overloaded', 'preempted'],
    ...['MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'malformed_model_output', 'malformed_tool_use'],
  ],
};

/** Proxies may print the null of their language; Gemini's default is a word. */
const unfinishedWords = ['null', 'none', 'undefined', 'FINISH_REASON_UNSPECIFIED'];

const kinds: ReadonlyMap<string, FinishKind> = new Map([
  ...Object.entries(finishWords).flatMap(([kind, words]) =>
    words.map((word) => [lettersOf(word), kind as FinishKind] as const),
  ),
  ...unfinishedWords.map((word) => [lettersOf(word), 'none'] as const),
]);

/** Returns the kind of a finish; `undefined` if the word is unknown. */
export const finishKindOf = (word: string): FinishKind | undefined => kinds.get(lettersOf(word));

/** Returns whether a value of `finish_reason` ends its choice; chunks in the middle of an answer have null or an empty text. */
export function isFinish(raw: unknown): boolean {
  if (raw === undefined || raw === null || raw === '') return false;
  return typeof raw !== 'string' || finishKindOf(raw) !== 'none';
}

/** Returns a word that may be logged: an identifier, not a text. */
export const loggedWord = (word: string): string => (/^[A-Za-z][\w .:-]{0,39}$/.test(word) ? word : 'another text');

function lettersOf(word: string): string {
  return word.toLowerCase().replace(/[^a-z]/g, '');
}

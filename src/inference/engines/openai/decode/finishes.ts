import type { FinishReason } from '../../../../generation/event.ts';

/** Whether a value at `finish_reason` ends its choice; a chunk in the middle of an answer has null or `""`. */
export const isFinish = (raw: unknown): boolean => raw !== undefined && raw !== null && raw !== '';

/** `undefined`: the backend aborted the answer. */
export function finishReasonOf(raw: string): FinishReason | undefined {
  if (raw === 'length' || raw === 'max_tokens' || raw === 'repetition') return 'length';
  if (raw === 'tool_calls' || raw === 'function_call') return 'tool-calls';
  if (raw === 'error' || raw === 'abort') return undefined;
  return 'stop';
}

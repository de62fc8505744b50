import { ApiError } from '../../platform/errors.ts';

/** What a backend that refuses a request for its length reports about the prompt and its own window. */
export interface LengthRefusal {
  readonly promptTokens: number | undefined;
  /** The backend's window; for a prompt that could not be read in time, how much of it could be. */
  readonly windowTokens: number | undefined;
  /** The time limit for reading, if that is what the prompt exceeds. */
  readonly readingSeconds?: number | undefined;
}

/** `undefined` for any other failure. */
export function lengthRefusal(error: unknown): LengthRefusal | undefined {
  if (!(error instanceof ApiError) || error.code !== 'context_length_exceeded') return undefined;
  const figure = (name: string): number | undefined => {
    const value = error.extra[name];
    return typeof value === 'number' ? value : undefined;
  };
  return {
    promptTokens: figure('prompt_tokens'),
    windowTokens: figure('context_length_limit'),
    readingSeconds: figure('reading_seconds'),
  };
}

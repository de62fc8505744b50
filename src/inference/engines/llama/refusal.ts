import { ApiError } from '../../../platform/errors.ts';
import type { Refusal } from './protocol.ts';

/** Returns why a child does not serve a request. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof ApiError) {
    return { code: error.code, message: error.message, param: error.param, extra: error.extra, detail: undefined };
  }
  // Only its name: messages of unexpected errors may quote their input.
  const detail = error instanceof Error ? error.name : undefined;
  return {
    code: 'internal_error',
    message: 'The service failed while it read the prompt.',
    param: undefined,
    extra: {},
    detail,
  };
}

/** `detail` is a sentence from the service or from llama.cpp, for the log; it holds no content. */
export function engineFailure(detail: string): Refusal {
  return {
    code: 'backend_http_error',
    message: 'The engine of this model failed while it worked on this request.',
    param: undefined,
    extra: {},
    detail,
  };
}

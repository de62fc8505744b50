import { OperationError } from '../accounts/operation.ts';
import { ApiError, toApiError } from '../platform/errors.ts';
import { StoreError } from '../store/store-error.ts';
import { notThere } from './input.ts';

/** What the client is told about a failure: what was wrong with its request, or that the service failed. */
export function operateError(error: unknown): ApiError {
  // Messages of the store are for the operator's log; those of an operation are for its caller.
  const isRequested = error instanceof OperationError;
  const cause = isRequested ? error.cause : error;
  if (cause instanceof StoreError) {
    switch (cause.code) {
      case 'not_found':
        return notThere();
      case 'conflict':
      case 'insufficient':
        return new ApiError('http_409', isRequested ? error.message : 'This conflicts with existing data.', {
          cause: error,
        });
      case 'busy':
      case 'full':
        return new ApiError('internal_error', 'The database cannot save this at the moment. Try again shortly.', {
          retryAfterSeconds: 1,
          cause: error,
        });
      case 'gone':
        return new ApiError('unsupported_value', cause.message, { cause: error });
      case 'invalid':
      case 'unusable':
      case 'failed':
        return toApiError(error);
    }
  }
  if (isRequested)
    return new ApiError('unsupported_value', error.message, {
      cause: error,
      ...(error.param === undefined ? {} : { param: error.param }),
    });
  return toApiError(error);
}

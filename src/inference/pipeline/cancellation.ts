import { ApiError } from '../../platform/errors.ts';
import type { Ending } from '../../store/ledger.ts';

/** Why a running request was stopped from outside; the reason of its abort signal. The first reason wins. */
export type CancelReason = 'client-left' | 'reader-stalled' | 'revoked' | 'drain' | 'deadline' | 'lost' | 'cancelled';

/** The ending that the ledger records for a cancel reason. */
export function endingOfCancel(reason: CancelReason): Ending {
  switch (reason) {
    case 'client-left':
      return 'client_left';
    case 'reader-stalled':
      return 'reader_stalled';
    case 'revoked':
      return 'revoked';
    case 'drain':
      return 'drained';
    case 'deadline':
      return 'deadline';
    case 'lost':
      return 'lost';
    case 'cancelled':
      return 'cancelled';
  }
}

/** The error for a client that is still connected. The model is undefined while the request has not been parsed. */
export function errorOfCancel(reason: CancelReason, model: string | undefined): ApiError {
  const extra = model === undefined ? {} : { model };
  switch (reason) {
    case 'revoked':
      return new ApiError(
        'invalid_api_key',
        'The API key was revoked, or its account suspended, while this request ran.',
      );
    case 'drain':
      return new ApiError(
        'no_healthy_backends',
        'The service is being stopped. Nothing is charged; send the request again.',
        {
          extra,
          retryAfterSeconds: 1,
        },
      );
    case 'deadline':
      return new ApiError('backend_timeout', 'The request ran longer than this service allows. Nothing is charged.', {
        extra,
      });
    // Its money and its slot may belong to other processes by now (docs/money.md, "Fencing").
    case 'lost':
      return new ApiError(
        'internal_error',
        'This process lost contact with the database for too long. Nothing is charged.',
        {
          retryAfterSeconds: 1,
        },
      );
    case 'cancelled':
      return new ApiError('http_409', 'The batch of this line was stopped. Nothing is charged for it.');
    case 'client-left':
    case 'reader-stalled':
      return new ApiError('http_408', 'The client stopped reading.');
  }
}

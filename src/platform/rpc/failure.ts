import { ApiError, errorTable, type ErrorCode } from '../errors.ts';

/** An error on its way to the other side: a structured clone would lose all but its message. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  readonly code: string | undefined;
  /** Fields of an `ApiError`. */
  readonly param?: string;
  readonly extra?: Readonly<Record<string, unknown>>;
  /** A system error's: the port and the address that it is about. */
  readonly port?: number;
  readonly address?: string;
  readonly cause?: Failure;
}

/** Why a connection does not answer. */
export type RpcErrorCode =
  | 'closed' // the other side is gone: whether it has done what it was asked is unknown
  | 'busy' // too many calls wait for their answer: it was not sent
  | 'timeout'; // it has not answered in time: whether it will do it is unknown

export class RpcError extends Error {
  override readonly name = 'RpcError';
  readonly code: RpcErrorCode;

  constructor(code: RpcErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** The errors that callers of one connection get. */
export interface ErrorMapping {
  /** Replaces an error of the connection. */
  readonly ofConnection: (error: RpcError) => Error;
  /** An error of a class that only the owner of the connection knows; undefined for other errors. */
  readonly revive: (failure: Failure, cause: Error | undefined) => Error | undefined;
}

export const plainErrors: ErrorMapping = { ofConnection: (error) => error, revive: () => undefined };

/** Maximum depth of causes: a chain may be circular. */
const causesMax = 4;

export function failureOf(error: unknown, depth = 0): Failure {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), code: undefined };
  const { name, message, cause } = error;
  const { code, port, address } = error as { code?: unknown; port?: unknown; address?: unknown };
  return {
    name,
    message,
    code: typeof code === 'string' ? code : undefined,
    ...(error instanceof ApiError ? { extra: error.extra } : {}),
    ...(error instanceof ApiError && error.param !== undefined ? { param: error.param } : {}),
    ...(typeof port === 'number' ? { port } : {}),
    ...(typeof address === 'string' ? { address } : {}),
    ...(cause !== undefined && depth < causesMax ? { cause: failureOf(cause, depth + 1) } : {}),
  };
}

export function errorOf(failure: Failure, mapping: ErrorMapping, depth = 0): Error {
  const hasCause = failure.cause !== undefined && depth < causesMax;
  const cause = hasCause ? errorOf(failure.cause, mapping, depth + 1) : undefined;
  const revived = mapping.revive(failure, cause);
  if (revived !== undefined) return revived;
  const { name, message, code, param, extra, port, address } = failure;
  if (name === 'ApiError' && Object.hasOwn(errorTable, code ?? ''))
    return new ApiError(code as ErrorCode, message, { param, extra: extra ?? {}, cause });
  const error = new Error(message, cause === undefined ? undefined : { cause });
  return Object.assign(error, {
    ...(code === undefined ? {} : { code }),
    ...(port === undefined ? {} : { port }),
    ...(address === undefined ? {} : { address }),
  });
}

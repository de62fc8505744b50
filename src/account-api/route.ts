import type { IncomingHttpHeaders } from 'node:http';

import type { Static, TObject, TSchema } from 'typebox';

import { roles } from '../accounts/role.ts';
import type { Role } from '../accounts/role.ts';
import type { SignedInPerson } from '../accounts/users/users.ts';
import type { ErrorCode } from '../platform/errors.ts';
import type { AccountServices } from './services.ts';

export { roles };
export type { Role };

/**
 * Access to a route.
 * - `anyone`: no credentials are checked.
 * - `user`: a signed-in user, whether or not they belong to an account. A management key is not a user.
 * - `operator`: a user or a management key marked as operator.
 * - roles: a member, or a management key, of the account that the request is about, with one of these roles.
 */
export type Access = 'anyone' | 'user' | 'operator' | readonly [Role, ...Role[]];

/** Common lists of roles; a route uses one of these, or its own list. */
export const everyRole = ['owner', 'admin', 'billing', 'developer', 'viewer'] as const;
export const mayManage = ['owner', 'admin'] as const;
export const mayMakeKeys = ['owner', 'admin', 'developer'] as const;
export const mayPay = ['owner', 'admin', 'billing'] as const;

/** The sender of a request. */
export type Principal =
  | { readonly kind: 'nobody' }
  | {
      readonly kind: 'key';
      readonly keyId: string;
      readonly name: string;
      readonly accountId: string;
      readonly role: Role;
      readonly isOperator: boolean;
      /** Whether the account that it belongs to is suspended. */
      readonly isSuspended: boolean;
    }
  | ({ readonly kind: 'user' } & SignedInPerson);

export type Known = Exclude<Principal, { readonly kind: 'nobody' }>;

/** The account that a request is about, and the sender's role there. */
export interface AccountScope {
  readonly id: string;
  readonly role: Role;
  /** Its members and keys may read it, but not change it. */
  readonly isSuspended: boolean;
}

type Checked<Schema> = Schema extends TSchema ? Static<Schema> : undefined;

/** A request whose sender, path, query and body have been checked. */
export interface Call<
  Params extends TObject | undefined = TObject | undefined,
  Query extends TObject | undefined = TObject | undefined,
  Body extends TSchema | 'raw' | undefined = TSchema | 'raw' | undefined,
> {
  readonly principal: Principal;
  /** For routes that name roles; reading it elsewhere is a bug, and throws. */
  readonly account: AccountScope;
  readonly params: Checked<Params>;
  readonly query: Checked<Query>;
  readonly body: Body extends 'raw' ? Uint8Array : Checked<Body>;
  /** The client's `Idempotency-Key`, checked. */
  readonly idempotencyKey: string | undefined;
  readonly requestId: string;
  /** The client's address, as far as known: behind a configured proxy, as the proxy reports it. */
  readonly address: string;
  readonly headers: Readonly<IncomingHttpHeaders>;
  readonly services: AccountServices;
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal;
  /** Records a change, with the sender, the account and the id of this request. */
  audit(change: AuditedChange): Promise<void>;
}

export interface AuditedChange {
  /** For example `key.create`. */
  readonly action: string;
  /** Id of what was changed. */
  readonly target?: string;
  /** Never a secret. */
  readonly before?: object;
  readonly after?: object;
  /** Set if it is not the account of the request. */
  readonly accountId?: string;
  /** The user who has just proved their identity, if the request had no sender. */
  readonly by?: { readonly userId: string; readonly email: string };
}

/** An answer that is not just JSON with the route's status. */
export class Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** Text or bytes; pieces are pulled as the client reads; undefined: no body. */
  readonly body: string | Uint8Array | AsyncIterable<string | Uint8Array> | undefined;

  constructor(status: number, headers: Reply['headers'], body?: Reply['body']) {
    this.status = status;
    this.headers = headers;
    this.body = body;
  }
}

export interface AnswerOf {
  readonly status: number;
  readonly description: string;
  /** Without a schema, the answer has no body, or one that is not JSON. */
  readonly schema?: TSchema;
  /** `application/json` by default if there is a schema. */
  readonly contentType?: string;
}

/** One route of the account host: input, access and work. The API's document and the access tests are made from their list. */
export interface AccountRoute {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** For example `/v1/keys/{id}`; a segment is fixed or a parameter. */
  readonly path: `/v1/${string}` | '/heads';
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly access: Access;
  /** Requires a recent proof of the sender's identity: for secrets, prices, credit, access of others. Not for management keys. */
  readonly stepUp?: boolean;
  /** It may also change a suspended account; otherwise only reading routes are allowed on one. */
  readonly evenSuspended?: true;
  /** It may also be used by an operator who looks at an account as a viewer; otherwise only reading routes are allowed to them. */
  readonly evenViewing?: true;
  /** For a route without credentials: an address's requests per minute, counted separately; by default all routes share one count. */
  readonly perMinute?: number;
  readonly params?: TObject;
  readonly query?: TObject;
  /** `raw`: the unparsed bytes, as signed by a payment provider. */
  readonly body?: TSchema | 'raw';
  readonly answers: readonly [AnswerOf, ...AnswerOf[]];
  /** Error codes in addition to those of any route. */
  readonly errors?: readonly ErrorCode[];
  /** Resolves with the value that the first answer's schema describes, or a `Reply`. */
  readonly handle: (call: Call) => Promise<unknown>;
}

/** Declares a route, with its handler typed by its schemas. */
export function route<
  const Params extends TObject | undefined = undefined,
  const Query extends TObject | undefined = undefined,
  const Body extends TSchema | 'raw' | undefined = undefined,
>(
  stated: Omit<AccountRoute, 'params' | 'query' | 'body' | 'handle'> & {
    readonly params?: Params;
    readonly query?: Query;
    readonly body?: Body;
    readonly handle: (call: Call<Params, Query, Body>) => Promise<unknown>;
  },
): AccountRoute {
  return stated as unknown as AccountRoute;
}

import type { Static, TObject, TSchema } from 'typebox';

import { roles } from '../accounts/role.ts';
import type { Role } from '../accounts/role.ts';
import type { ErrorCode } from '../platform/errors.ts';
import type { AccountServices } from './services.ts';

export { roles };
export type { Role };

/**
 * Who may call a route.
 * - `anyone`: no credentials are looked at.
 * - `user`: a person who is signed in, whether they belong to an account or not. No management key is a person.
 * - `operator`: who runs the server: a person or a management key that is marked so.
 * - roles: a member, or a management key, of the account that the request is about, with one of these roles.
 */
export type Access = 'anyone' | 'user' | 'operator' | readonly [Role, ...Role[]];

/** Roles by what they are for; a route says one of these, or its own list. */
export const everyRole = ['owner', 'admin', 'billing', 'developer', 'viewer'] as const;
export const mayManage = ['owner', 'admin'] as const;
export const mayMakeKeys = ['owner', 'admin', 'developer'] as const;
export const mayPay = ['owner', 'admin', 'billing'] as const;

/** Who sends a request. */
export type Principal =
  | { readonly kind: 'nobody' }
  | {
      readonly kind: 'key';
      readonly keyId: string;
      readonly name: string;
      readonly accountId: string;
      readonly role: Role;
      readonly isOperator: boolean;
      /** Of the account that it belongs to. */
      readonly isSuspended: boolean;
    }
  | {
      readonly kind: 'user';
      readonly userId: string;
      readonly sessionId: string;
      readonly name: string;
      readonly email: string;
      readonly isOperator: boolean;
      /** A code of an authenticator ends their sign-in. */
      readonly hasTwoFactor: boolean;
      /** When they last proved who they are, in milliseconds since 1970: what step-up looks at. */
      readonly provedAt: number;
    };

export type Known = Exclude<Principal, { readonly kind: 'nobody' }>;

/** The account that a request is about, and what its sender is there. */
export interface AccountScope {
  readonly id: string;
  readonly role: Role;
  /** It may be looked at by its members and keys, and not changed. */
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
  /** Of the routes that name roles; reading it elsewhere is a mistake of ours, and throws. */
  readonly account: AccountScope;
  readonly params: Checked<Params>;
  readonly query: Checked<Query>;
  readonly body: Body extends 'raw' ? Uint8Array : Checked<Body>;
  /** What the client sent as `Idempotency-Key`, checked. */
  readonly idempotencyKey: string | undefined;
  readonly requestId: string;
  /** Of the client, as far as it can be known: behind a configured proxy, as the proxy tells. */
  readonly address: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly services: AccountServices;
  /** Ends when the client leaves. */
  readonly signal: AbortSignal;
  /** Records who changed what, with the sender, the account and the id of this request. */
  audit(change: AuditedChange): Promise<void>;
}

export interface AuditedChange {
  /** `key.create`. */
  readonly action: string;
  /** Id of what was changed. */
  readonly target?: string;
  /** Never a secret. */
  readonly before?: object;
  readonly after?: object;
  /** Where it is not the account of the request. */
  readonly accountId?: string;
  /** Who has just proved who they are, where the request came from nobody. */
  readonly by?: { readonly userId: string; readonly email: string };
}

/** An answer that is not just JSON with the route's status. */
export class Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** Text or bytes; pieces are pulled as the client reads; undefined: nothing. */
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
  /** Without one the answer has no body, or one that is not JSON. */
  readonly schema?: TSchema;
  /** `application/json` where there is a schema and nothing else is said. */
  readonly contentType?: string;
}

/** One route of the account host: what it takes, who may call it, and what it does. The API's document and the tests of access are made from the list of these. */
export interface AccountRoute {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** `/v1/keys/{id}`; a segment is fixed or a parameter. */
  readonly path: `/v1/${string}`;
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly access: Access;
  /** Only soon after its sender has proved who they are: secrets, prices, credit, other people's access. Management keys need not. */
  readonly stepUp?: boolean;
  /** What members may change of an account that is suspended. Left out: nothing. */
  readonly evenSuspended?: true;
  /** Of a route without credentials: requests that an address has in a minute, counted apart; else as all of them together. */
  readonly perMinute?: number;
  readonly params?: TObject;
  readonly query?: TObject;
  /** `raw`: the bytes, unread: what a provider of payments has signed. */
  readonly body?: TSchema | 'raw';
  readonly answers: readonly [AnswerOf, ...AnswerOf[]];
  /** Codes beside those that any route may answer with. */
  readonly errors?: readonly ErrorCode[];
  /** Resolves with what the first answer's schema describes, or a `Reply`. */
  readonly handle: (call: Call) => Promise<unknown>;
}

/** States a route, with the types of its schemas in what it does. */
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

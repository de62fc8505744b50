import type { IncomingMessage, ServerResponse } from 'node:http';
import { once } from 'node:events';

import { combineSignals } from '../platform/combine-signals.ts';
import { operateError } from './failures.ts';
import { clientAddress } from '../platform/http/client-address.ts';
import type { ListenerLimits } from '../platform/http/listener.ts';
import { ApiError } from '../platform/errors.ts';
import { BodyBudget } from '../inference/http/body-budget.ts';
import type { AddressRanges } from '../platform/ip/ranges.ts';
import { inputChecksOf } from './input.ts';
import type { InputChecks } from './input.ts';
import { networksOf } from '../platform/ip/network.ts';
import { RateLimit } from './rate-limits.ts';
import { Reply } from './route.ts';
import type { AccountRoute, AccountScope, AuditedChange, Call, Principal } from './route.ts';
import { Router } from './router.ts';
import { admit, senderOf } from './senders.ts';
import { refuseCrossSite } from './cross-site.ts';
import type { AccountServices } from './services.ts';

/** Requests per minute: by a sender, by an address without one, and attempts with invalid credentials (docs/accounts.md). */
export const perMinute = { sender: 600, address: 120, failures: 300 } as const;
const bodiesInFlightBytesMax = 16 * 1_048_576;

/** A request to the API, as parsed by the host. */
export interface ApiRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly path: string;
  /** The part after the question mark. */
  readonly query: string;
  readonly publicId: string;
}

/** The account API: finds the route, checks access and input, and answers. */
export class AccountApi {
  readonly #router: Router;
  readonly #checks = new Map<AccountRoute, InputChecks>();
  readonly #services: AccountServices;
  readonly #listener: ListenerLimits;
  readonly #trustedProxies: () => AddressRanges | undefined;
  readonly #bodies = new BodyBudget(bodiesInFlightBytesMax);
  readonly #senders: RateLimit;
  readonly #addresses: RateLimit;
  readonly #failures: RateLimit;
  /** The routes with separate limits. */
  readonly #ofRoutes: ReadonlyMap<AccountRoute, RateLimit>;

  constructor(
    routes: readonly AccountRoute[],
    services: AccountServices,
    listener: ListenerLimits,
    trustedProxies: () => AddressRanges | undefined,
  ) {
    this.#router = new Router(routes);
    this.#services = services;
    this.#listener = listener;
    this.#trustedProxies = trustedProxies;
    const { now } = services.operations;
    this.#senders = new RateLimit(perMinute.sender, now);
    this.#addresses = new RateLimit(perMinute.address, now);
    this.#failures = new RateLimit(perMinute.failures, now);
    this.#ofRoutes = new Map(
      routes.flatMap((route) =>
        route.perMinute === undefined ? [] : [[route, new RateLimit(route.perMinute, now)] as const],
      ),
    );
  }

  /**
   * Answers, or throws `ApiError`. The order of its checks: route, method, cross-site, credentials, rate, role, step-up,
   * path, query, `Idempotency-Key`, content type, size, JSON, fields.
   */
  async answer({ request, response, path, query, publicId }: ApiRequest): Promise<void> {
    const { route, params } = this.#router.find(request.method ?? '', path);
    refuseCrossSite(request, this.#services.accountUrl());
    const address = clientAddress(request, this.#trustedProxies()) ?? '';
    const principal = await this.#sender(route, request, address);
    const headers = this.#rate(route, principal, address);
    const left = new AbortController();
    response.on('close', () => left.abort());
    try {
      const named = request.headers['x-account-id'];
      const account = await admit(route, principal, typeof named === 'string' ? named : undefined, this.#services);
      const checks = this.#checksOf(route);
      const call = {
        principal,
        get account(): AccountScope {
          if (account === undefined) throw new Error(`${route.operationId} is about no account`);
          return account;
        },
        params: checks.params(params),
        query: checks.query(query),
        idempotencyKey: idempotencyKeyOf(request),
        body: await checks.body(request, this.#bodies, left.signal),
        requestId: publicId,
        address,
        headers: request.headers,
        services: this.#services,
        signal: left.signal,
        audit: (change: AuditedChange) => this.#audit(change, principal, account, publicId, address),
      } as unknown as Call;
      const answered = await route.handle(call);
      const reply = answered instanceof Reply ? answered : jsonReply(route, answered);
      await send(response, reply, { ...headers, 'x-request-id': publicId, 'request-id': publicId }, this.#listener);
    } catch (error) {
      throw withHeaders(operateError(error), headers);
    }
  }

  async #sender(route: AccountRoute, request: IncomingMessage, address: string): Promise<Principal> {
    if (route.access === 'anyone') return { kind: 'nobody' };
    const networks = networksOf(address);
    this.#failures.check(networks);
    try {
      return await senderOf(request.headers, address, this.#services);
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) this.#failures.takeOf(networks);
      throw operateError(error);
    }
  }

  #rate(route: AccountRoute, principal: Principal, address: string): Readonly<Record<string, string>> {
    switch (principal.kind) {
      case 'key':
        return this.#senders.take(principal.keyId);
      case 'user':
        return this.#senders.take(principal.userId);
      case 'nobody':
        return (this.#ofRoutes.get(route) ?? this.#addresses).takeOf(networksOf(address));
    }
  }

  #checksOf(route: AccountRoute): InputChecks {
    let checks = this.#checks.get(route);
    if (checks === undefined) this.#checks.set(route, (checks = inputChecksOf(route)));
    return checks;
  }

  async #audit(
    { action, target, before, after, accountId, by }: AuditedChange,
    principal: Principal,
    account: AccountScope | undefined,
    requestId: string,
    address: string,
  ): Promise<void> {
    const { repositories, newId, now } = this.#services.operations;
    const print = (value: object | undefined): string | null => (value === undefined ? null : JSON.stringify(value));
    await repositories.recordAudit({
      id: newId(),
      at: now(),
      accountId: accountId ?? account?.id ?? null,
      actor: by === undefined ? actorOf(principal) : { kind: 'user', id: by.userId, name: by.email },
      action,
      target: target ?? null,
      before: print(before),
      after: print(after),
      requestId,
      address,
    });
  }
}

/** A sender's identity in the audit log. */
export function actorOf(principal: Principal): {
  readonly kind: 'user' | 'key' | 'system';
  readonly id: string | null;
  readonly name: string | null;
} {
  switch (principal.kind) {
    case 'key':
      return { kind: 'key', id: principal.keyId, name: principal.name };
    case 'user':
      return { kind: 'user', id: principal.userId, name: principal.email };
    case 'nobody':
      return { kind: 'system', id: null, name: null };
  }
}

const idempotencyKeyLengthMax = 255;

function idempotencyKeyOf({ headers }: IncomingMessage): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || key === '' || key.length > idempotencyKeyLengthMax || !/^[!-~]+$/.test(key))
    throw new ApiError(
      'unsupported_value',
      `Idempotency-Key must have 1 to ${idempotencyKeyLengthMax} visible ASCII characters.`,
      { param: 'Idempotency-Key' },
    );
  return key;
}

function jsonReply({ answers: [first] }: AccountRoute, value: unknown): Reply {
  return first.schema === undefined
    ? new Reply(first.status, {})
    : new Reply(first.status, { 'content-type': first.contentType ?? 'application/json' }, JSON.stringify(value));
}

/** Answers are about one sender: no cache keeps them, and no page of another site reads or frames them. */
const guardHeaders = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
} as const;

async function send(
  response: ServerResponse,
  { status, headers, body }: Reply,
  common: Readonly<Record<string, string>>,
  listener: ListenerLimits,
): Promise<void> {
  const isWhole = typeof body === 'string' || body instanceof Uint8Array;
  response.writeHead(status, {
    ...guardHeaders,
    ...common,
    ...(isWhole ? { 'content-length': Buffer.byteLength(body) } : {}),
    ...(headers as Readonly<Record<string, string | string[]>>),
  });
  if (body === undefined || isWhole) {
    response.end(body);
    return;
  }
  if (response.req.method === 'HEAD') {
    response.end();
    return;
  }
  const closed = new AbortController();
  response.once('close', () => closed.abort());
  try {
    for await (const piece of body) {
      if (!response.write(piece)) {
        const stalled = AbortSignal.timeout(listener.readerStallMs);
        await once(response, 'drain', { signal: combineSignals([stalled, closed.signal]) });
      }
      if (response.destroyed) return;
    }
    response.end();
  } catch {
    // The status has been sent: a cut connection shows the client that the answer is incomplete.
    response.destroy();
  }
}

const withHeaders = (error: ApiError, headers: Readonly<Record<string, string>>): ApiError =>
  new ApiError(error.code, error.message, {
    param: error.param,
    extra: error.extra,
    retryAfterSeconds: error.retryAfterSeconds,
    headers: { ...headers, ...error.headers },
    cause: error.cause,
  });

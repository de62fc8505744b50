import assert from 'node:assert/strict';

import { until } from './service.ts';
import type { TestService } from './service.ts';

// oxlint-disable-next-line typescript/no-explicit-any -- answers of many routes, looked at by tests
export type Shown = any;

export interface Reported {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Shown;
}

export const owner = { email: 'owner@example.org', name: 'Olga', password: 'correct horse battery' };

/** Somebody at the account host of the real program, over plain HTTP: with cookies as a browser keeps them, or with a key. */
export class Visitor {
  readonly #service: TestService;
  readonly #key: string | undefined;
  readonly #cookies: Map<string, string>;

  constructor(service: TestService, key?: string, cookies = new Map<string, string>()) {
    this.#service = service;
    this.#key = key;
    this.#cookies = cookies;
  }

  /** The same somebody, with the same cookies, at another replica. */
  at(service: TestService): Visitor {
    return new Visitor(service, this.#key, this.#cookies);
  }

  async ask(method: string, path: string, json?: object, once?: string): Promise<Reported> {
    return await this.#send(method, path, json === undefined ? undefined : JSON.stringify(json), {
      ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      ...(once === undefined ? {} : { 'idempotency-key': once }),
    });
  }

  /** The same; anything but the status is a failure. */
  async get(path: string): Promise<Shown> {
    const { status, body } = await this.ask('GET', path);
    assert.equal(status, 200, `${path}: ${JSON.stringify(body)}`);
    return body;
  }

  /** Plays an outcome of a payment: what the buttons of its page send, and what no page has a button for. */
  async play(checkoutUrl: string, outcome: string): Promise<Reported> {
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    return await this.#send('POST', new URL(checkoutUrl).pathname, new URLSearchParams({ outcome }).toString(), form);
  }

  /** Opens the link that the start has printed. */
  async becomeOwner(): Promise<void> {
    const token = await ownerToken(this.#service);
    const { status, body } = await this.ask('POST', '/v1/owner', { ...owner, token });
    assert.equal(status, 200, JSON.stringify(body));
  }

  /** A top-up that is paid on the page of the built-in provider; resolves with its id when its credit is there. */
  async topUp(cents: number, once: string): Promise<string> {
    const made = await this.ask('POST', '/v1/credits/topups', { amount_cents: cents }, once);
    assert.deepEqual([made.status, made.body.status], [201, 'pending'], JSON.stringify(made.body));
    assert.equal((await this.play(made.body.checkout_url, 'success')).status, 303);
    await until(async () => (await this.get(`/v1/credits/topups/${made.body.id}`)).status === 'paid', 60_000);
    return String(made.body.id);
  }

  async #send(method: string, path: string, body: string | undefined, more: Record<string, string>): Promise<Reported> {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(this.#service.accountUrl + path, {
      method,
      redirect: 'manual',
      headers: {
        ...(this.#key === undefined ? {} : { authorization: `Bearer ${this.#key}` }),
        ...(this.#key === undefined && method !== 'GET'
          ? { 'sec-fetch-site': 'same-origin', origin: this.#service.accountUrl }
          : {}),
        ...(cookie === '' ? {} : { cookie }),
        ...more,
      },
      ...(body === undefined ? {} : { body }),
    });
    for (const set of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set)!;
      if (value === '' || /max-age=0/i.test(set)) this.#cookies.delete(name!);
      else this.#cookies.set(name!, value!);
    }
    const text = await answer.text();
    const isJson = answer.headers.get('content-type')?.startsWith('application/json') === true;
    return { status: answer.status, headers: answer.headers, body: isJson ? JSON.parse(text) : text };
  }
}

/** It is the last thing that a first start prints. */
export async function ownerToken(service: TestService): Promise<string> {
  const printed = (): string | undefined => /\/welcome#([\w-]+)\s/.exec(service.output)?.[1];
  await until(() => printed() !== undefined, 60_000);
  return printed()!;
}

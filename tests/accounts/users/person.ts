import assert from 'node:assert/strict';

import type { TestHost } from '../../account-api/host.ts';

/** A browser: keeps the cookies of one host, as browsers do. */
export class Browser {
  readonly #host: TestHost;
  readonly cookies = new Map<string, string>();
  /** As they were set. */
  readonly set: string[] = [];

  constructor(host: TestHost) {
    this.#host = host;
  }

  async ask(method: string, path: string, json?: unknown): Promise<{ readonly status: number; readonly body: Answer }> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await this.#host.ask(method, path, {
      ...(json === undefined ? {} : { json }),
      headers: [['origin', this.#host.url], ...(cookie === '' ? [] : [['cookie', cookie] as const])],
    });
    for (const value of answer.headers['set-cookie']?.split(/, (?=[\w.-]+=)/) ?? []) {
      this.set.push(value);
      const [, key, held] = /^([^=]+)=([^;]*)/.exec(value)!;
      if (held === '' || /max-age=0/i.test(value)) this.cookies.delete(key!);
      else this.cookies.set(key!, held!);
    }
    const text = answer.body;
    return { status: answer.status, body: text === '' ? {} : (JSON.parse(text) as Answer) };
  }

  async signIn(email: string, password: string): Promise<Answer> {
    const { status, body } = await this.ask('POST', '/v1/auth/sign-in', { email, password });
    assert.equal(status, 200, JSON.stringify(body));
    return body;
  }
}

// oxlint-disable-next-line typescript/no-explicit-any -- answers of many routes, looked at by tests
export type Answer = Record<string, any>;

/** The token of the newest mail of a kind. */
export function tokenOf(host: TestHost, kind: string): string {
  const mail = host.mails.findLast((one) => one.kind === kind);
  const token = /#([\w.-]+)/.exec(mail?.text ?? '')?.[1];
  assert.ok(token !== undefined, `no mail of ${kind}`);
  return token;
}

export const password = 'correct horse battery';

/** A person with a confirmed address, who is not signed in. */
export async function person(host: TestHost, email: string, name = email): Promise<string> {
  const browser = new Browser(host);
  const { status, body } = await browser.ask('POST', '/v1/auth/sign-up', { email, password, name });
  assert.equal(status, 200, JSON.stringify(body));
  assert.equal(
    (await browser.ask('POST', '/v1/auth/verify-email', { token: tokenOf(host, 'verification') })).status,
    200,
  );
  const { rows } = await host.services.operations.repositories.authStore({
    act: 'find',
    table: 'auth_user',
    where: [{ column: 'email', operator: 'eq', value: email, connector: 'AND' }],
    limit: 1,
  });
  return String(rows[0]!['id']);
}

import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { createAccountHost } from '../../src/account-api/account-server.ts';
import type { AccountRoute, Role } from '../../src/account-api/route.ts';
import type { AccountServices } from '../../src/account-api/services.ts';
import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import type { Config, SignInConfig } from '../../src/config/config.ts';
import { noTax } from '../notifications/webhooks/receiver.ts';
import { defaultListenerLimits } from '../../src/platform/http/listener.ts';
import type { AddressRanges } from '../../src/platform/ip/ranges.ts';
import { Jobs } from '../../src/platform/jobs/jobs.ts';
import { openNotifications } from '../../src/app/notifications.ts';
import type { Mail } from '../../src/notifications/mail/mailer.ts';
import { createLog } from '../../src/platform/log.ts';
import { Users } from '../../src/accounts/users/users.ts';
import { publicIdOf } from '../../src/platform/ids/uuid.ts';
import type { AccountLedger } from '../../src/store/ledger.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer, RawRequest } from '../inference/http/raw.ts';
import { openStore, temporaryFolder, uuid } from '../store/fixture.ts';

export interface TestHost {
  readonly url: string;
  /** The database. */
  readonly file: string;
  readonly services: AccountServices;
  /** What was logged of failures of our own. */
  readonly failures: unknown[];
  /** What is done beside the requests; it has not been started. */
  readonly jobs: Jobs;
  /** What would have been sent. */
  readonly mails: readonly Mail[];
  /** Makes an account; resolves with its id. */
  account(id: string): Promise<string>;
  /** Makes a management key, or one for inference where there is no role. */
  key(accountId: string, role: Role | null, isOperator?: boolean): Promise<string>;
  ask(method: string, path: string, request?: TestRequest): Promise<RawAnswer>;
}

export interface TestRequest {
  readonly key?: string;
  readonly json?: unknown;
  readonly headers?: RawRequest['headers'];
  readonly body?: string | Uint8Array;
}

export interface HostOptions {
  readonly signIn?: SignInConfig;
  /** What else of the configuration the test is about. */
  readonly config?: Partial<Config>;
  readonly trustedProxies?: AddressRanges;
  /** In place of one on a new file. */
  readonly store?: { readonly ledger: AccountLedger; readonly repositories: Repositories };
  /** More of the services, made of the others. */
  readonly more?: (services: AccountServices) => Partial<AccountServices>;
}

/** The account host with these routes on a store in a file, in this process. */
export async function openHost(
  t: TestContext,
  routes: readonly AccountRoute[],
  now: () => number = Date.now,
  { signIn = { signUp: 'invitation', oidc: [] }, config = {}, more = () => ({}), ...options }: HostOptions = {},
): Promise<TestHost> {
  const folder = temporaryFolder(t);
  const file = join(folder, 'store.db');
  const store = options.store ?? (await openStore(t, file));
  const secret = openSecret({ fromEnvironment: undefined, dataFolder: folder, warn: () => {} });
  const failures: unknown[] = [];
  const mails: Mail[] = [];
  let url = '';
  const shared = {
    operations: {
      ledger: store.ledger,
      repositories: store.repositories,
      secret,
      newId: uuid,
      now,
    },
    config: () => ({ invoices: { tax: noTax }, server: { account: { console: false } }, ...config, signIn }) as Config,
    accountUrl: () => url,
    mailer: { send: (mail: Mail) => Promise.resolve(void mails.push(mail)) },
  };
  const log = createLog({ write: () => true, once: () => {} });
  // A hash as production makes it is 0.1 s of a processor; tests/accounts/users/password.test.ts holds that.
  const users = new Users({ ...shared, hashCost: { N: 2 ** 10, r: 8, p: 1 } });
  const jobs = new Jobs({ alone: (work) => work(), log, codeOf: String });
  t.after(() => jobs.close());
  const services: AccountServices = {
    ...shared,
    ...openNotifications({ ...shared, log, jobs, payments: () => services.payments }),
    users,
  };
  Object.assign(services, more(services));
  const host: Server = createAccountHost(
    services,
    {
      version: '0.0.0',
      newRequestId: () => publicIdOf(uuid()),
      metrics: { token: undefined, isProxied: false, text: () => '' },
      limits: defaultListenerLimits,
      trustedProxies: () => options.trustedProxies,
      inferenceUrl: () => 'http://127.0.0.1:8080',
      consoleFolder: join(folder, 'console'),
      docsFolder: join(folder, 'docs'),
      isReady: () => Promise.resolve(true),
      failed: (error) => failures.push(error),
    },
    routes,
  );
  await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    host.close();
    host.closeAllConnections();
  });
  url = `http://127.0.0.1:${(host.address() as AddressInfo).port}`;
  return {
    url,
    file,
    services,
    jobs,
    failures,
    mails,
    account: async (id) => {
      await store.ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
      return id;
    },
    key: async (accountId, role, isOperator = false) => {
      const input = { accountId, name: `${role} of ${accountId}`, role, isOperator, secret, now: Date.now() };
      const { text, row } = issueKey(input);
      await store.repositories.createKey({ key: row, changeId: uuid() });
      return text;
    },
    ask: (method, path, { key, json, headers = [], body } = {}) =>
      exchange(url, {
        method,
        path,
        headers: [
          ...(key === undefined ? [] : ([['authorization', `Bearer ${key}`]] as const)),
          ...(json === undefined ? [] : ([['content-type', 'application/json']] as const)),
          ...headers,
        ],
        ...(json === undefined && body === undefined ? {} : { body: body ?? JSON.stringify(json) }),
      }),
  };
}

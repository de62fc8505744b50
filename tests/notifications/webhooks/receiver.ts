/** A real receiver of webhooks, and an account host that may send to it although it is on this computer. */
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

import { accountRoutes } from '../../../src/account-api/routes.ts';
import type { Config } from '../../../src/config/config.ts';
import { defaultTaxNotes } from '../../../src/tax/tax.ts';
import type { TaxRules } from '../../../src/tax/tax.ts';
import { openHost } from '../../account-api/host.ts';

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export async function startReceiver(
  t: TestContext,
  answer: (received: Received, response: ServerResponse) => void = (_, response) => response.end('ok'),
) {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const one = { path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks).toString() };
      received.push(one);
      answer(one, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { host, url: `http://${host}/hook?x=1`, received };
}

export const noTax: TaxRules = { sellerCountry: null, rate: null, byCountry: [], notes: defaultTaxNotes };

export const configOf = (allowedHosts: readonly string[], dnsServers: readonly string[] = []): Partial<Config> => ({
  webhooks: { allowedHosts, disableAfterMs: 5 * 86_400_000 },
  invoices: { seller: undefined, tax: noTax, prefix: 'TH-', font: undefined },
  images: { fetches: true, allowedHosts: [], dnsServers },
  server: {
    inference: { host: '127.0.0.1', port: 0, publicUrl: 'https://tokens.example.org' },
    account: { host: '127.0.0.1', port: 0, publicUrl: undefined },
  } as Config['server'],
});

/** The whole account host with a clock of its own, and an owner's key of `acct_a`. */
export async function openScene(t: TestContext, allowedHosts: readonly string[], dnsServers: readonly string[] = []) {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, {
    config: configOf(allowedHosts, dnsServers),
  });
  await host.account('acct_a');
  const key = await host.key('acct_a', 'owner');
  const ask = async (method: string, path: string, json?: unknown, as = key) => {
    const answer = await host.ask(method, path, { key: as, ...(json === undefined ? {} : { json }) });
    const text = answer.body.toString();
    return { status: answer.status, json: (text === '' ? undefined : JSON.parse(text)) as never };
  };
  return { host, clock, key, ask };
}

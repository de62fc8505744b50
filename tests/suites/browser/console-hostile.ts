/** What customers, members and servers can choose, and somebody else sees in the console: all of it holds markup. */
import assert from 'node:assert/strict';

import { hostile } from '../../support/hostile.ts';
import type { TestService } from '../../support/service.ts';
import { until } from '../../support/service.ts';
import { chatLine, jsonl } from '../../support/batch-client.ts';
import type { Upstream, UpstreamExchange } from '../../support/upstream.ts';
import { owner, type Visitor } from '../../support/visitor.ts';

/** A server whose messages and names are hostile, too. */
export const hostileAnswer = (exchange: UpstreamExchange): void =>
  exchange.path === '/v1/models'
    ? exchange.json(200, { object: 'list', data: [{ id: 'broken', owned_by: hostile(200), root: hostile(200) }] })
    : exchange.json(exchange.path.includes('completions') ? 400 : 404, {
        object: 'error',
        error: { message: hostile(2000), type: hostile(200), code: hostile(200) },
        message: hostile(2000),
      });

/** The entry of its model, under `models:`. */
export const hostileModel = ({ url }: Pick<Upstream, 'url'>): string => `
  - id: broken
    display_name: ${JSON.stringify(hostile(200))}
    description: ${JSON.stringify(hostile(200))}
    owned_by: ${JSON.stringify(hostile(200))}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, flavor: openai, url: ${JSON.stringify(url)} }
`;

export interface HostileIds {
  /** The account of a stranger. */
  readonly OTHER: string;
  /** A request that its server has refused. */
  readonly FAILED: string;
  readonly ENDPOINT: string;
}

/** By the owner, who is the operator: names of everything, in their own account and in another one. */
export async function fillHostile(service: TestService, visitor: Visitor, key: string): Promise<HostileIds> {
  const done = async (method: string, path: string, json: object, once?: string) => {
    const { status, body } = await visitor.ask(method, path, json, once);
    assert.ok(status === 200 || status === 201, `${path}: ${status} ${JSON.stringify(body)}`);
    return body;
  };
  const billing = {
    ...{ legal_name: hostile(100), address_lines: [hostile(100), hostile(100)], country: 'DE' },
    invoice_email: `"${'w'.repeat(40)}"@example.org`.replaceAll('"', ''),
  };
  await done('PATCH', '/v1/account', { name: hostile(100), billing });
  // People's names stand in headers of mails, and have no angle brackets.
  await done('PATCH', '/v1/me', { name: hostile(100).replaceAll(/[<>]/g, '') });
  const other = await done('POST', '/v1/admin/accounts', {
    ...{ name: hostile(100), credit_cents: 500, key_name: hostile(100), owner_email: 'stranger@example.org' },
  });
  const granted = { account_id: service.accountId, type: 'grant', amount_cents: 500, reason: hostile(100) };
  await done('POST', '/v1/admin/credits', granted, hostile(20).replace(/\W/g, 'x'));
  await done('POST', '/v1/admin/suspensions', { account_id: other.id, reason: hostile(100) });
  const endpoint = await done('POST', '/v1/webhook_endpoints', {
    ...{ url: `https://example.org/${hostile(150)}?q=${hostile(50)}`, description: hostile(100) },
  });
  await done('POST', '/v1/invites', { email: 'guest@example.org', role: 'viewer' });
  await signInFrom(service);
  await sendBatch(service, visitor);
  const refused = await service.chat(
    {
      model: 'broken',
      messages: [{ role: 'user', content: hostile(500) }],
      user: hostile(100),
      metadata: { a: hostile(100) },
    },
    { key, headers: { 'x-request-id': encodeURI(hostile(60)).slice(0, 100), 'user-agent': markup } },
  );
  assert.ok(refused.status >= 400, await refused.text());
  const FAILED = refused.headers.get('x-request-id')!;
  return { OTHER: other.id, FAILED: encodeURIComponent(FAILED), ENDPOINT: endpoint.id };
}

const markup = encodeURI(hostile(60)).replaceAll('%20', ' ').replaceAll('%3C', '<').replaceAll('%3E', '>');

/** A second session, of a browser with such a name. */
async function signInFrom({ accountUrl }: TestService): Promise<void> {
  const { email, password } = owner;
  const answer = await fetch(`${accountUrl}/v1/auth/sign-in`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'user-agent': markup,
      origin: accountUrl,
      'sec-fetch-site': 'same-origin',
    },
    body: JSON.stringify({ email, password }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

async function sendBatch(service: TestService, visitor: Visitor): Promise<void> {
  const made = await visitor.ask('POST', '/v1/keys/session');
  const headers = { authorization: `Bearer ${made.body.key}` };
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', new Blob([jsonl([chatLine(hostile(60), 'hi')])]), `${hostile(100)}.jsonl`);
  const file = await fetch(`${service.url}/v1/files`, { method: 'POST', headers, body: form });
  const { id } = (await file.json()) as { readonly id: string };
  const body = {
    ...{ input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' },
    metadata: { [hostile(60)]: hostile(200) },
  };
  const batch = await fetch(`${service.url}/v1/batches`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.equal(batch.status, 200, await batch.text());
  await until(async () => {
    const { data } = await visitor.get('/v1/batch_runs');
    return data.every(({ status }: { status: string }) => !/validating|in_progress|finalizing/.test(status));
  });
}

/** The metrics say what the ledger says, nothing of what anybody wrote, and are for this computer only. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { after, before, describe, test } from 'node:test';

import { errorTable } from '../../../src/platform/errors.ts';
import { RawConnection, requestBytes } from '../../inference/http/raw.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { parseExposition, total } from './exposition.ts';
import type { Family } from './exposition.ts';

const token = 'a token of more than thirty-two characters';
const config = `${scriptedModel(`
- when: { last_text: fails }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 1, type: error, code: backend_timeout }
- when: { last_text: silence }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: hang }
- when: { last_text: cached }
  say: [ { text: "one two" } ]
  usage: { prompt_tokens: 40, cached_tokens: 30, completion_tokens: 9, reasoning_tokens: 4 }
- say: [ { text: "one two three four" } ]
  pace_ms: 5
`)}
  - id: second
    context_length: 8192
    pricing: { input_cents_per_million: 50, output_cents_per_million: 200 }
    backends: [ { engine: scripted, name: 'quoted "name"', scripts: [ { say: [ { text: "hi" } ] } ] } ]`;
const service = new TestService({ config });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

async function scrape(
  headers: Record<string, string> = {},
): Promise<{ text: string; families: ReadonlyMap<string, Family> }> {
  const answer = await fetch(`${service.accountUrl}/metrics`, { headers });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  const text = await answer.text();
  return { text, families: parseExposition(text) };
}

const ask = (text: string, more: object = {}) => ({
  model: 'demo',
  messages: [{ role: 'user', content: text }],
  ...more,
});

test('after known traffic every figure is what the ledger has', async () => {
  const ledger = new TestLedger(service);
  for (const stream of [false, true]) {
    for (const text of ['hi', 'hi', 'cached', 'fails']) await (await service.chat(ask(text, { stream }))).text();
    await (await service.chat({ ...ask('hi', { stream }), model: 'second' })).text();
  }
  const { client, id } = await leaving('silence');
  await until(() => client.events.length > 1, 30_000);
  client.reset();
  await ledger.row(id, 30_000);
  // Refused before a hold: no row.
  for (const [body, status] of [
    [{ ...ask('hi'), model: 'nobody' }, 404],
    [{ model: 'demo' }, 400],
  ] as const) {
    const refused = await service.chat(body);
    assert.ok([status, 422].includes(refused.status), String(refused.status));
    await refused.text();
  }
  const unknown = await service.chat(ask('hi'), { key: 'tkh_nothing' });
  assert.equal(unknown.status, 401);
  await fetch(`${service.url}/healthz`);
  await fetch(`${service.url}/v1/models`);
  await fetch(`${service.url}/nowhere/${'x'.repeat(50)}`);

  const rows = await ledger.newest(1_000);
  const { families } = await scrape();
  assert.equal(rows.length, 11);
  const sum = (read: (row: (typeof rows)[number]) => number | bigint, which = rows): number =>
    Number(which.reduce((all, row) => all + BigInt(read(row)), 0n));

  const answered = (labels: Record<string, string>) => total(families, 'tokenhouse_requests_total', labels);
  assert.equal(answered({}) - answered({ ending: 'refused' }), rows.length);
  for (const ending of new Set(rows.map((row) => row.ending))) {
    assert.equal(answered({ ending }), rows.filter((row) => row.ending === ending).length, ending);
  }
  for (const code of new Set(rows.map((row) => row.errorCode ?? ''))) {
    const known = rows.filter((row) => (row.errorCode ?? '') === code).length;
    assert.equal(answered({ code }) - answered({ code, ending: 'refused' }), known, code);
  }
  assert.equal(answered({ ending: 'refused', code: 'model_not_found', model: '', status: '404' }), 1);
  assert.equal(answered({ ending: 'refused', code: 'invalid_api_key', status: '401' }), 1);
  assert.equal(answered({ ending: 'refused' }), 3);
  for (const model of ['demo', 'second']) {
    const own = rows.filter((row) => row.modelId === model);
    assert.equal(answered({ model }), own.length);
    assert.equal(answered({ model, streamed: 'yes' }), own.filter((row) => row.streamed).length);
    const tokens = (kind: string) => total(families, 'tokenhouse_tokens_total', { model, kind });
    assert.equal(
      tokens('prompt'),
      sum((row) => row.promptTokens, own),
    );
    assert.equal(
      tokens('cached'),
      sum((row) => row.cachedTokens, own),
    );
    assert.equal(
      tokens('completion'),
      sum((row) => row.completionTokens, own),
    );
    assert.equal(
      tokens('reasoning'),
      sum((row) => row.reasoningTokens, own),
    );
    assert.equal(
      total(families, 'tokenhouse_charged_microcents_total', { model }),
      sum((row) => row.costMicrocents, own),
    );
    assert.equal(
      total(families, 'tokenhouse_uncharged_microcents_total', { model }),
      sum((row) => row.unchargedMicrocents, own),
    );
    assert.equal(total(families, 'tokenhouse_request_seconds_count', { model }), own.length);
    const withToken = own.filter((row) => row.firstTokenMs !== null);
    assert.equal(total(families, 'tokenhouse_first_token_seconds_count', { model }), withToken.length);
    const firstTokens = total(families, 'tokenhouse_first_token_seconds_sum', { model });
    assert.ok(Math.abs(firstTokens - sum((row) => row.firstTokenMs ?? 0, own) / 1_000) < 1e-6);
  }
  assert.ok(sum((row) => row.cachedTokens) > 0 && sum((row) => row.reasoningTokens) > 0, 'the traffic had all kinds');
  assert.ok(sum((row) => row.unchargedMicrocents) > 0);
  // A busy machine may join words into one batch, but never all of an answer.
  assert.ok(total(families, 'tokenhouse_chunk_gap_seconds_count', { model: 'demo' }) >= 4);
  assert.equal(total(families, 'tokenhouse_own_seconds_count'), rows.length);
  const own = total(families, 'tokenhouse_own_seconds_sum');
  const all = total(families, 'tokenhouse_request_seconds_sum');
  assert.ok(own > 0 && own < all + 1, `${own} of ${all}`);

  const http = (route: string, status: number) =>
    total(families, 'tokenhouse_http_requests_total', { route, status: String(status) });
  assert.deepEqual([http('healthz', 200), http('models', 200), http('other', 404), http('chat', 401)], [1, 1, 1, 1]);
  assert.equal(total(families, 'tokenhouse_http_requests_total', { route: 'chat' }), rows.length + 3);
  for (const gauge of ['requests_running', 'holds_open', 'held_microcents', 'settlements_waiting', 'body_bytes']) {
    assert.equal(total(families, `tokenhouse_${gauge}`), 0, gauge);
  }
  assert.deepEqual(
    families
      .get('tokenhouse_backend_ready')
      ?.samples.map(({ labels, value }) => [labels['model'], labels['backend'], value]),
    [
      ['demo', 'scripted', 1],
      ['second', 'quoted "name"', 1],
    ],
  );
  const settled = total(families, 'tokenhouse_ledger_batch_rows_sum');
  assert.equal(settled, rows.length, 'each row was settled once');
  assert.ok(total(families, 'process_resident_memory_bytes') > 1e7);
  assert.ok(total(families, 'tokenhouse_open_sockets', { host: 'account' }) >= 1);
  assert.equal(total(families, 'tokenhouse_build_info'), 1);
});

test('what is tidied up beside the requests is a job, whose successes are counted', async () => {
  const { families } = await scrape();
  const jobs = families
    .get('tokenhouse_job_last_success_timestamp_seconds')!
    .samples.map(({ labels }) => labels['job']);
  for (const name of ['store_tidy', 'mail_tidy', 'people_tidy', 'webhooks_tidy']) assert.ok(jobs.includes(name), name);
});

test('what runs is shown while it runs', async () => {
  const { client } = await leaving('silence');
  await until(() => client.events.length > 1, 30_000);
  const during = (await scrape()).families;
  assert.equal(total(during, 'tokenhouse_backend_running', { model: 'demo' }), 1);
  assert.equal(total(during, 'tokenhouse_holds_open'), 1);
  assert.ok(total(during, 'tokenhouse_held_microcents') > 0);
  client.reset();
  await until(async () => total((await scrape()).families, 'tokenhouse_held_microcents') === 0, 30_000);
});

test('10,000 hostile model names, keys, paths and ids make no series, and no text of a request is in a metric', async () => {
  const series = (families: ReadonlyMap<string, Family>): number =>
    [...families.values()].reduce((count, { samples }) => count + samples.length, 0);
  const canary = 'canaryQ7zWkP4vTn';
  /** One after the other without waiting on one connection: what is looked at is not how they arrive. */
  const hostile = async (from: number, count: number): Promise<void> => {
    const connection = await RawConnection.open(service.url);
    const requests = Array.from({ length: count }, (_, index) => {
      const name = `${canary}"\\${from + index}{}`;
      return requestBytes(service.url, {
        method: 'POST',
        path: '/v1/chat/completions',
        headers: [
          ['authorization', `Bearer ${service.key}`],
          ['content-type', 'application/json'],
          ['x-request-id', `${canary}-${from + index}`],
          ['user-agent', canary],
        ],
        body: JSON.stringify({ model: name, user: name, messages: [{ role: 'user', content: name }] }),
      });
    });
    connection.write(Buffer.concat(requests));
    for (let index = 0; index < count; index++) assert.equal((await connection.answer()).status, 404);
    connection.close();
  };
  await hostile(-1, 1);
  await (await service.chat(ask(canary, { stream: true, user: canary, stop: [canary] }))).text();
  await (await fetch(`${service.url}/${canary}`)).text();
  const before = series((await scrape()).families);
  const count = 10_000;
  const together = 250;
  for (let next = 0; next < count; next += together) await hostile(next, together);
  for (let index = 0; index < 50; index++)
    await (await fetch(`${service.url}/${canary}/${index}`, { method: 'PUT' })).text();
  const { text, families } = await scrape();
  assert.equal(series(families) - before, 0);
  assert.ok(!text.includes(canary.slice(0, 8)));
  for (const secret of [service.key, service.accountId, service.key.slice(4, 16)]) assert.ok(!text.includes(secret));
  assert.ok(total(families, 'tokenhouse_requests_total', { code: 'model_not_found' }) > count);
  // Every label value is of a closed set.
  const codes = new Set(['', ...Object.keys(errorTable)]);
  for (const { labels } of families.get('tokenhouse_requests_total')!.samples) {
    assert.ok(codes.has(labels['code']!) && ['', 'demo', 'second'].includes(labels['model']!), JSON.stringify(labels));
  }
});

describe('who may read them', () => {
  const status = async (url: string, headers: Record<string, string> = {}): Promise<number> => {
    const { hostname, port } = new URL(url);
    return await new Promise((resolve, reject) => {
      const socket = connect(Number(port), hostname, () => {
        const lines = Object.entries({ host: `localhost:${port}`, connection: 'close', ...headers });
        socket.write(`GET /metrics HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
      });
      let text = '';
      socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
      socket.on('error', reject);
      socket.on('close', () => resolve(Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1])));
    });
  };

  test('without a token: this computer, by its own name, and not through a proxy', async () => {
    assert.equal(await status(service.accountUrl), 200);
    for (const header of [
      { host: 'tokens.example.org' },
      { 'x-forwarded-for': '127.0.0.1' },
      { forwarded: 'for=127.0.0.1' },
      { 'x-real-ip': '127.0.0.1' },
      { via: '1.1 proxy' },
    ]) {
      assert.equal(
        await status(service.accountUrl, header as unknown as Record<string, string>),
        403,
        JSON.stringify(header),
      );
    }
  });

  test('with a token: its bearer, and nobody else; from elsewhere nobody without one', async (t) => {
    const open = (environment: Record<string, string>, account: string): TestService => {
      const other = new TestService({ config, environment });
      other.writeConfig(`server: { inference: { port: 0 }, account: ${account} }\n${config}\n`);
      t.after(() => other.dispose());
      return other;
    };
    const guarded = await open({ TOKENHOUSE_METRICS_TOKEN: token }, '{ port: 0 }').start();
    assert.equal(await status(guarded.accountUrl), 403);
    assert.equal(await status(guarded.accountUrl, { authorization: `Bearer ${token}x` }), 403);
    assert.equal(
      await status(guarded.accountUrl, { authorization: `Bearer ${token}`, host: 'tokens.example.org' }),
      200,
    );
    assert.ok(!guarded.output.includes(token));

    const address = Object.values(networkInterfaces())
      .flatMap((list) => list ?? [])
      .find(({ internal, family }) => !internal && family === 'IPv4')?.address;
    if (address === undefined) {
      t.diagnostic('this machine has no address but its own, so nobody comes from elsewhere');
      return;
    }
    const published = await open({}, '{ port: 0, host: 0.0.0.0 }').start();
    const { port } = new URL(published.accountUrl);
    assert.equal(await status(`http://127.0.0.1:${port}`), 200);
    assert.equal(await status(`http://${address}:${port}`), 403);
  });
});

async function leaving(text: string): Promise<{ client: RawClient; id: string }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url);
  client.send(chatBytes(service.key, id, ask(text, { stream: true })));
  return { client, id };
}

/** The account host as it is published: behind a proxy that ends TLS (docs/operations.md, docs/people.md). */
import assert from 'node:assert/strict';
import { request as ask, createServer as createProxy } from 'node:https';
import { request as pass } from 'node:http';
import type { AddressInfo, LookupFunction } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { readFileSync } from 'node:fs';

import { freePort } from '../../bench/contender.ts';
import { inRepository } from '../support/repository.ts';
import { testAuthority } from '../support/https-server.ts';
import { noFeatures, scriptedModel, TestService, until } from '../support/service.ts';
import { owner } from '../support/visitor.ts';

const pem = (name: string): string => readFileSync(inRepository('tests/fixtures/tls', name), 'utf8');

/** At a name that the test's certificate has; passes everything on to a port of this computer, and says who asked as proxies do: behind what was there. */
async function startProxy(t: TestContext, port: number): Promise<string> {
  const proxy = createProxy({ cert: pem('cert.pem'), key: pem('key.pem') }, (request, response) => {
    const before = request.headers['x-forwarded-for'];
    const headers = {
      ...request.headers,
      'x-forwarded-for': before === undefined ? '203.0.113.9' : `${String(before)}, 203.0.113.9`,
      'x-forwarded-proto': 'https',
    };
    const passed = pass({ host: '127.0.0.1', port, method: request.method, path: request.url, headers }, (answer) => {
      response.writeHead(answer.statusCode!, answer.rawHeaders);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    request.pipe(passed);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    proxy.close();
    proxy.closeAllConnections();
  });
  return `https://images.test:${(proxy.address() as AddressInfo).port}`;
}

/** Whatever the name is, it is this computer. */
const ourselves: LookupFunction = (_name, _options, reported) => reported(null, [{ address: '127.0.0.1', family: 4 }]);

interface Reported {
  readonly status: number;
  readonly cookies: readonly string[];
  readonly body: string;
}

function send(url: string, method: string, headers: Record<string, string>, json?: object): Promise<Reported> {
  return new Promise((resolve, reject) => {
    const body = json === undefined ? undefined : JSON.stringify(json);
    const typed = body === undefined ? {} : { 'content-type': 'application/json' };
    const options = { method, ca: testAuthority(), lookup: ourselves, headers: { ...typed, ...headers } };
    const asked = ask(url, options, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (piece: string) => (text += piece));
      answer.on('end', () =>
        resolve({ status: answer.statusCode!, cookies: answer.headers['set-cookie'] ?? [], body: text }),
      );
    });
    asked.on('error', reject).end(body);
  });
}

test('behind a proxy that ends TLS: cookies of this host alone, no other site, and the address of the client', async (t) => {
  const port = await freePort();
  const home = await startProxy(t, port);
  const service = new TestService({ config: '' });
  t.after(() => service.dispose());
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: ${port}, public_url: "${home}" }\n  trusted_proxies: [127.0.0.1]\n` +
      scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }),
  );
  await service.start();
  assert.equal(service.accountUrl, home);
  const link = (): string | undefined => /https:\S+\/welcome#([\w-]{43})/.exec(service.output)?.[1];
  await until(() => link() !== undefined, 60_000);

  const made = await send(`${home}/v1/owner`, 'POST', { origin: home }, { ...owner, token: link()! });
  assert.equal(made.status, 200, made.body);
  const set = made.cookies.find((cookie) => cookie.includes('session_token'))!;
  assert.match(set, /^__Host-tokenhouse\.session_token=/);
  for (const attribute of [/; HttpOnly/i, /; Secure/i, /; SameSite=Lax/i, /; Path=\/(;|$)/i])
    assert.match(set, attribute);
  for (const cookie of made.cookies) assert.match(cookie, /; Secure/i);
  assert.doesNotMatch(set, /; Domain/i, 'with one, browsers drop the whole cookie');

  const cookie = set.split(';')[0]!;
  const { email, password } = owner;
  const person = { cookie, origin: home };
  assert.equal((await send(`${home}/v1/me`, 'GET', { cookie })).status, 200);
  const planted = cookie.replace('__Host-', '');
  assert.equal(
    (await send(`${home}/v1/me`, 'GET', { cookie: planted })).status,
    401,
    'what any host of a domain can set',
  );

  const rename = (headers: Record<string, string>) => send(`${home}/v1/account`, 'PATCH', headers, { name: 'mine' });
  for (const headers of [
    { cookie, origin: home.replace('https:', 'http:') },
    { cookie, origin: 'https://tokens.example.org' },
    { cookie, origin: 'null' },
    { ...person, 'sec-fetch-site': 'cross-site' },
    { ...person, 'sec-fetch-site': 'same-site' },
  ])
    assert.equal((await rename(headers)).status, 403, JSON.stringify(headers));
  assert.equal((await rename({ ...person, 'sec-fetch-site': 'same-origin' })).status, 200);

  const claimed = { origin: home, 'x-forwarded-for': '198.51.100.1' };
  assert.equal((await send(`${home}/v1/auth/sign-in`, 'POST', claimed, { email, password })).status, 200);
  const { body } = await send(`${home}/v1/audit_logs?limit=10`, 'GET', { cookie });
  const seen = (JSON.parse(body) as { data: readonly { action: string; address: string }[] }).data;
  const signIns = seen.filter(({ action }) => action === 'session.create');
  assert.ok(signIns.length > 0, body);
  assert.deepEqual(
    new Set(signIns.map(({ address }) => address)),
    new Set(['203.0.113.9']),
    'not what the client claims',
  );
});

for (const scheme of ['https', 'http']) {
  test(`hosts that are published at ${scheme} ${scheme === 'https' ? 'tell browsers to stay with it' : 'say nothing of https'}, on every answer`, async (t) => {
    const ports = [await freePort(), await freePort()] as const;
    const service = new TestService({ config: '' });
    t.after(() => service.dispose());
    service.writeConfig(
      `server:\n  inference: { port: ${ports[0]}, public_url: "${scheme}://tokens.test" }\n` +
        `  account: { port: ${ports[1]}, public_url: "${scheme}://account.test" }\n` +
        scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }),
    );
    await service.start();
    for (const path of ['/readyz', '/v1/models', '/v1/me', '/nowhere', '/docs', '/openapi.json'])
      for (const port of ports) {
        const answer = await fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual' });
        await answer.body?.cancel();
        const expected = scheme === 'https' ? 'max-age=31536000' : null;
        assert.equal(answer.headers.get('strict-transport-security'), expected, `${port}${path}`);
      }
    const streamed = await fetch(`http://127.0.0.1:${ports[0]}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo', stream: true, messages: [{ role: 'user', content: 'hi' }] }),
    });
    assert.match(await streamed.text(), /\[DONE\]/);
    assert.equal(streamed.headers.has('strict-transport-security'), scheme === 'https');
    assert.match(streamed.headers.get('content-type')!, /^text.event-stream/);
  });
}

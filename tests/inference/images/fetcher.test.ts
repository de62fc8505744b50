import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { ImageFetcher } from '../../../src/inference/images/fetcher.ts';
import type { ImageFetcherOptions } from '../../../src/inference/images/fetcher.ts';
import type { ImageRules } from '../../../src/platform/outbound/check-url.ts';
import { createNameResolver } from '../../../src/platform/outbound/resolver.ts';
import { DnsServer } from '../../support/dns-server.ts';
import type { DnsZone } from '../../support/dns-server.ts';
import { HttpsServer, redirect, reply, testAuthority } from '../../support/https-server.ts';
import type { HttpsRequest } from '../../support/https-server.ts';
import { pngOf } from '../../support/image-files.ts';
import { defaultImageRules } from '../../support/image-settings.ts';
import { until } from '../../support/service.ts';
import { forbiddenUrls } from '../../platform/outbound/forbidden-urls.ts';

const at = 'messages[0].content[1].image_url.url';
const png = pngOf(5, 5);

interface Fixture {
  readonly server: HttpsServer;
  readonly dns: DnsServer;
  readonly fetcher: ImageFetcher;
  readonly counted: { bytes: number };
  fetch(url: string, signal?: AbortSignal): Promise<Buffer>;
  /** The code that a URL is refused with. */
  refusal(url: string): Promise<string>;
}

/**
 * A server on loopback, a name server that answers what the test says, and a fetcher for which https is the port of that
 * server: whatever it lets through to loopback arrives there and is counted. `open.images.test` is a host that the
 * operator allows, so that what comes after the gates can be seen too.
 */
async function openFixture(
  t: TestContext,
  answer: (request: HttpsRequest) => void,
  { zone = () => ['A 127.0.0.1'], ...options }: ImageFetcherOptions & { readonly zone?: DnsZone } = {},
): Promise<Fixture> {
  const server = await HttpsServer.start(answer);
  const dns = await DnsServer.start(zone);
  t.after(() => Promise.all([server.close(), dns.close()]));
  const fetcher = new ImageFetcher({ httpsPort: server.port, certificates: testAuthority(), ...options });
  const rules: ImageRules = { ...defaultImageRules, allowedHosts: new Set(['open.images.test']) };
  const counted = { bytes: 0 };
  const settings = { rules, resolver: createNameResolver([dns.address]), accountId: 'a' };
  const fetch = (url: string, signal = AbortSignal.timeout(60_000)): Promise<Buffer> =>
    fetcher.fetch(url, settings, at, (bytes) => void (counted.bytes += bytes), signal);
  const refusal = async (url: string): Promise<string> => {
    try {
      const bytes = await fetch(url);
      return `fetched ${bytes.length} bytes`;
    } catch (error) {
      assert.ok(error instanceof ApiError, `${url}: ${String(error)}`);
      assert.deepEqual([error.status, error.param], [400, at], url);
      assert.ok(!/127\.0\.0\.1|ECONN|certificate|images\.test/.test(error.message), error.message);
      return error.code;
    }
  };
  return { server, dns, fetcher, counted, fetch, refusal };
}

const pngAnswer = (request: HttpsRequest): void => reply(request, png);

test('an image is fetched from the host that is meant, with nothing of ours in the request', async (t) => {
  process.env['HTTPS_PROXY'] = process.env['https_proxy'] = 'http://127.0.0.1:9';
  t.after(() => {
    delete process.env['HTTPS_PROXY'];
    delete process.env['https_proxy'];
  });
  const fixture = await openFixture(t, pngAnswer);
  assert.deepEqual(await fixture.fetch('https://open.images.test/a%20b.png?x=1#fragment'), png);
  const [request] = fixture.server.requests;
  assert.deepEqual([request?.path, request?.serverName], ['/a%20b.png?x=1', 'open.images.test']);
  const names = request!.fields.map((field) => field.split(':')[0]!.toLowerCase()).sort();
  assert.deepEqual(names, ['accept', 'accept-encoding', 'connection', 'host', 'user-agent']);
  assert.ok(
    request!.fields.includes('host: open.images.test') && request!.fields.includes('accept-encoding: identity'),
  );
  assert.equal(fixture.counted.bytes, png.length);
  await until(() => fixture.server.open === 0);
});

test('reliability §3.2, forms 1 to 106: none of them gets as far as a connection or a question', async (t) => {
  const fixture = await openFixture(t, pngAnswer);
  for (const url of forbiddenUrls) assert.equal(await fixture.refusal(url), 'unsupported_value', url);
  assert.deepEqual([fixture.server.connections, fixture.dns.queries], [0, []]);
  // The listener does see who comes.
  connect(fixture.server.port, '127.0.0.1')
    .on('error', () => {})
    .end();
  await until(() => fixture.server.connections === 1);
});

test('reliability §3.2: a name that stands for a private address, in whatever way, is never dialled', async (t) => {
  const zones: Readonly<Record<string, DnsZone>> = {
    loopback: () => ['A 127.0.0.1'],
    'IPv6 loopback': () => ['AAAA ::1'],
    mapped: () => ['AAAA ::ffff:7f00:1'],
    metadata: () => ['A 169.254.169.254'],
    'host of a virtual machine': () => ['A 168.63.129.16'],
    'public and private': () => ['A 93.184.215.14', 'A 127.0.0.1'],
    'private and public': () => ['A 127.0.0.1', 'A 93.184.215.14'],
    'public A, private AAAA': () => ['A 93.184.215.14', 'AAAA ::1'],
    'private A, public AAAA': () => ['A 127.0.0.1', 'AAAA 2606:2800:21f:cb07::1'],
    'alias of a private name': () => ['CNAME inside.example', 'A 127.0.0.1'],
    'alias that stands for an IPv6 one': () => ['CNAME inside.example', 'AAAA fd00::1'],
    '200 addresses, the last private': () => [
      ...Array.from({ length: 30 }, (_, index) => `A 93.184.215.${index}` as const),
      'A 10.0.0.1',
    ],
  };
  for (const [name, zone] of Object.entries(zones)) {
    const fixture = await openFixture(t, pngAnswer, { zone });
    assert.equal(await fixture.refusal('https://evil.images.test/a.png'), 'unsupported_value', name);
    assert.equal(fixture.server.connections, 0, name);
  }
});

test('reliability §3.2: a name that is public when it is judged and private when it is asked again is asked once', async (t) => {
  const zone: DnsZone = (_, type, query) => (type === 'A' ? [query === 0 ? 'A 192.0.2.1' : 'A 127.0.0.1'] : []);
  // 192.0.2.1 is for documentation and refused too; the first answer must be one that nobody reaches, but public.
  const rebinding: DnsZone = (_, type, query) =>
    type === 'A' ? [query === 0 ? 'A 93.184.215.14' : 'A 127.0.0.1'] : [];
  const first = await openFixture(t, pngAnswer, { zone });
  assert.equal(await first.refusal('https://evil.images.test/'), 'unsupported_value');
  const second = await openFixture(t, pngAnswer, { zone: rebinding });
  const leaving = AbortSignal.timeout(1_500);
  await assert.rejects(second.fetch('https://evil.images.test/', leaving));
  assert.deepEqual(second.dns.queries.sort(), ['A evil.images.test', 'AAAA evil.images.test']);
  assert.equal(second.server.connections, 0);
  // Each further fetch is judged anew.
  assert.equal(await second.refusal('https://evil.images.test/'), 'unsupported_value');
  assert.equal(second.server.connections, 0);
});

test('reliability §3.2: a redirect is judged like the first URL, whatever its number and target', async (t) => {
  let status = 302;
  const fixture = await openFixture(t, (request) => {
    redirect(request, Buffer.from(request.path.slice(1), 'base64url').toString(), status);
  });
  const targets = [
    ...forbiddenUrls.filter((url) => /^https?:\/\/[^ ]/.test(url) && !/[\n\t]/.test(url)).filter((_, i) => i % 6 === 0),
    'http://open.images.test/',
    'http://127.0.0.1/',
    'https://127.0.0.1/',
    'https://[::1]/',
    '//127.0.0.1/',
    'https://evil.images.test/',
    'https://user@open.images.test/',
    'file:///etc/passwd',
    'ftp://open.images.test/',
    'data:image/png;base64,AAAA',
  ];
  for (status of [301, 302, 303, 307, 308]) {
    for (const target of targets) {
      const ascii = URL.canParse(target) && !/[^ -~]/.test(target) ? target : encodeURI(target);
      const url = `https://open.images.test/${Buffer.from(ascii).toString('base64url')}`;
      const before = fixture.server.connections;
      const code = await fixture.refusal(url);
      assert.match(code, /^(unsupported_value|model_request_rejected)$/, `${status} ${target}`);
      assert.equal(fixture.server.connections, before + 1, `${status} ${target}`);
    }
  }
});

test('three redirects are followed, relative ones too; a fourth is one too many', async (t) => {
  const fixture = await openFixture(t, (request) => {
    const left = Number(request.path.slice(1));
    if (left === 0) reply(request, png);
    else redirect(request, left % 2 === 0 ? `/${left - 1}` : `https://open.images.test/${left - 1}`);
  });
  assert.deepEqual(await fixture.fetch('https://open.images.test/3'), png);
  assert.equal(await fixture.refusal('https://open.images.test/4'), 'model_request_rejected');
  assert.equal(fixture.server.connections, 8);
});

test('§4.2.4(2): whatever a server does wrong is 400 model_request_rejected', async (t) => {
  const answers: Readonly<Record<string, (request: HttpsRequest) => void>> = {
    '404': (request) => reply(request, png, {}, 404),
    '500': (request) => reply(request, png, {}, 500),
    '204': ({ socket }) => void socket.write('HTTP/1.1 204 X\r\n\r\n'),
    '206': (request) => reply(request, png, {}, 206),
    'a redirect to nowhere': (request) => reply(request, '', {}, 302),
    'a redirect to no URL': (request) => redirect(request, 'https://'),
    'a page': (request) => reply(request, '<html>', { 'content-type': 'text/html' }),
    SVG: (request) => reply(request, '<svg/>', { 'content-type': 'image/svg+xml' }),
    compressed: (request) => reply(request, png, { 'content-encoding': 'gzip' }),
    'compressed twice': (request) => reply(request, png, { 'content-encoding': 'gzip, br' }),
    'declared too long': (request) => reply(request, png, { 'content-length': 5_000_000_000 }),
    'cut off': ({ socket }) =>
      socket.end('HTTP/1.1 200 X\r\ncontent-type: image/png\r\ncontent-length: 100\r\n\r\nabc'),
    'cut off in its head': ({ socket }) => socket.end('HTTP/1.1 200 X\r\ncontent-type: ima'),
    'two lengths': ({ socket }) =>
      void socket.write('HTTP/1.1 200 X\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd'),
    'a negative length': ({ socket }) => void socket.write('HTTP/1.1 200 X\r\ncontent-length: -3\r\n\r\nabcd'),
    'a head of a megabyte': ({ socket }) =>
      void socket.write(`HTTP/1.1 200 X\r\n${'x: yyyyyyyyyyyyyyyy\r\n'.repeat(50_000)}\r\n`),
    'no HTTP': ({ socket }) => void socket.write('SSH-2.0-OpenSSH_9.9\r\n\r\n'),
    'nothing but the end': ({ socket }) => void socket.end(),
    'a reset': ({ socket }) => socket.destroy(),
    'switching protocols': ({ socket }) =>
      void socket.write('HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'),
    'a body without end': ({ socket }) => {
      socket.write('HTTP/1.1 200 X\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n');
      const chunk = Buffer.from(`10000\r\n${'x'.repeat(65_536)}\r\n`);
      const more = (): void => {
        while (!socket.destroyed && socket.write(chunk));
      };
      socket.on('drain', more);
      more();
    },
  };
  const fixture = await openFixture(t, (request) => answers[decodeURIComponent(request.path.slice(1))]!(request), {
    limits: { bytesMax: 3_000_000 },
  });
  for (const name of Object.keys(answers)) {
    fixture.counted.bytes = 0;
    const code = await fixture.refusal(`https://open.images.test/${encodeURIComponent(name)}`);
    assert.equal(code, 'model_request_rejected', name);
    assert.ok(fixture.counted.bytes <= 3_000_000, `${name}: ${fixture.counted.bytes} bytes`);
  }
  // Nothing stays open, also of the answers that never end.
  await until(() => fixture.server.open === 0);
});

test('more than the declared length is not read', async (t) => {
  const fixture = await openFixture(t, ({ socket }) => {
    socket.write(`HTTP/1.1 200 X\r\ncontent-length: ${png.length}\r\n\r\n`);
    socket.write(Buffer.concat([png, Buffer.from('HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\nabc')]));
  });
  assert.deepEqual(await fixture.fetch('https://open.images.test/'), png);
});

test('TLS is verified: another authority, or a certificate for another name', async (t) => {
  const fixture = await openFixture(t, pngAnswer);
  const rules = { ...defaultImageRules, allowedHosts: new Set(['other.test', 'open.images.test', '127.0.0.1']) };
  const settings = { rules, resolver: createNameResolver([fixture.dns.address]), accountId: 'a' };
  const fetchWith = (fetcher: ImageFetcher, url: string): Promise<Buffer> =>
    fetcher.fetch(url, settings, at, () => {}, AbortSignal.timeout(60_000));
  const isRejected = (error: unknown): boolean => error instanceof ApiError && error.code === 'model_request_rejected';
  await assert.rejects(fetchWith(fixture.fetcher, 'https://other.test/'), isRejected);
  const others = new ImageFetcher({ httpsPort: fixture.server.port });
  await assert.rejects(fetchWith(others, 'https://open.images.test/'), isRejected);
  assert.equal(fixture.server.requests.length, 0);
  // A literal is compared with the addresses of the certificate.
  assert.deepEqual(await fetchWith(fixture.fetcher, 'https://127.0.0.1/'), png);
});

test('an unknown name, a name server that is silent and a port where nobody listens are failed fetches', async (t) => {
  const zone: DnsZone = (name) =>
    name === 'open.images.test' ? ['A 127.0.0.1'] : name === 'silent.images.test' ? 'silent' : [];
  const fixture = await openFixture(t, pngAnswer, { zone });
  assert.equal(await fixture.refusal('https://unknown.images.test/'), 'model_request_rejected');
  const leaving = new AbortController();
  const waiting = fixture.fetch('https://silent.images.test/', leaving.signal);
  await until(() => fixture.dns.queries.some((query) => query.endsWith(' silent.images.test')));
  leaving.abort('client-left');
  await assert.rejects(waiting, (reason) => reason === 'client-left');
  await fixture.server.close();
  assert.equal(await fixture.refusal('https://open.images.test/'), 'model_request_rejected');
});

test('another address is tried when the first does not answer', async (t) => {
  // Nobody listens on 127.0.0.2, at this port.
  const fixture = await openFixture(t, pngAnswer, { zone: () => ['A 127.0.0.2', 'A 127.0.0.1'] });
  assert.deepEqual(await fixture.fetch('https://open.images.test/'), png);
});

test('a fetch ends with its signal, wherever it is, and leaves no connection', async (t) => {
  const phases: Readonly<Record<string, (request: HttpsRequest) => void>> = {
    '/silent': () => {},
    '/head': ({ socket }) => void socket.write('HTTP/1.1 200 X\r\ncontent-type: image/png\r\n'),
    '/early': ({ socket }) => void socket.write('HTTP/1.1 103 X\r\n\r\n'.repeat(10)),
    '/drip': ({ socket }) => {
      socket.write('HTTP/1.1 200 X\r\ncontent-type: image/png\r\ncontent-length: 1000\r\n\r\n');
      const drip = setInterval(() => socket.write('x'), 20);
      socket.on('close', () => clearInterval(drip));
    },
  };
  const fixture = await openFixture(t, (request) => phases[request.path]!(request));
  for (const path of Object.keys(phases)) {
    const leaving = new AbortController();
    const waiting = fixture.fetch(`https://open.images.test${path}`, leaving.signal);
    await until(() => fixture.server.requests.some((request) => request.path === path));
    leaving.abort('client-left');
    await assert.rejects(waiting, (reason) => reason === 'client-left', path);
    await until(() => fixture.server.open === 0);
  }
});

test('fetches at once are bounded, of one host more than of all, and waiting ones go when they are called off', async (t) => {
  const held: HttpsRequest[] = [];
  const fixture = await openFixture(t, (request) => void held.push(request), {
    limits: { parallelMax: 5, parallelPerAccountMax: 5, parallelPerHostMax: 3, parallelPerHostAndAccountMax: 3 },
  });
  const rules = { ...defaultImageRules, allowedHosts: new Set(['a.images.test', 'b.images.test']) };
  const settings = { rules, resolver: createNameResolver([fixture.dns.address]), accountId: 'a' };
  const leaving = new AbortController();
  const start = (host: string, signal = AbortSignal.timeout(60_000)): Promise<Buffer> =>
    fixture.fetcher.fetch(`https://${host}.images.test/`, settings, at, () => {}, signal);
  const called = Promise.allSettled(Array.from({ length: 4 }, () => start('a', leaving.signal)));
  const all = [...Array.from({ length: 8 }, () => start('a')), ...Array.from({ length: 8 }, () => start('b'))];
  const outcome = Promise.all(all);
  const heldOf = (host: string): number => held.filter(({ serverName }) => serverName === `${host}.images.test`).length;
  await until(() => held.length === 5);
  assert.deepEqual([heldOf('a'), heldOf('b')], [3, 2]);
  leaving.abort('client-left');
  for (const ended of await called) assert.deepEqual(ended, { status: 'rejected', reason: 'client-left' });
  let most = 0;
  let answered = 0;
  const answering = setInterval(() => {
    const open = held.filter(({ socket }) => !socket.destroyed);
    most = Math.max(most, open.length);
    const next = open[0];
    if (next === undefined) return;
    held.splice(held.indexOf(next), 1);
    answered++;
    reply(next, png);
  }, 5);
  t.after(() => clearInterval(answering));
  for (const bytes of await outcome) assert.deepEqual(bytes, png);
  assert.ok(most <= 5 && answered === 16, `${most} at once, ${answered} answered`);
});

/** §4.2.4 as a checklist: through the whole service, with a backend that shows what it got. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { sendAgainWhenBusy, slowness } from '../support/busy.ts';
import { DnsServer } from '../support/dns-server.ts';
import { HttpsServer, redirect, reply, testAuthorityFile } from '../support/https-server.ts';
import { dataUri, gifOf, jpegOf, pngOf, webpOf } from '../support/image-files.ts';
import { TestService, until } from '../support/service.ts';
import { chatChunk, Upstream, usageChunk } from '../support/upstream.ts';

const options = { timeout: 300_000 };
/** Text that stands in an image, and must stand nowhere else. */
const canary = Buffer.from('canary of an image 7f3a9c');
const png = Buffer.concat([pngOf(640, 480), canary]);

/** What the backend was sent, newest last. */
const bodies: Record<string, unknown>[] = [];
const counted: Record<string, unknown>[] = [];
let backend: Upstream;
let images: HttpsServer;
let dns: DnsServer;
let service: TestService;

/** Tokens of every prompt, as the backend counts them in the end. */
const promptTokens = 321;

before(async () => {
  backend = await Upstream.start((exchange) => {
    const body = JSON.parse(exchange.body === '' ? '{}' : exchange.body) as Record<string, unknown>;
    if (exchange.path.endsWith('/tokenize')) {
      counted.push(body);
      exchange.json(200, { count: 20 });
      return;
    }
    if (exchange.method === 'GET') {
      exchange.json(200, { data: [] });
      return;
    }
    bodies.push(body);
    exchange.events();
    if (JSON.stringify(body).includes('say nothing')) return;
    exchange.chunk(chatChunk({ role: 'assistant', content: 'a cat' }) + chatChunk({}, 'stop'));
    exchange.chunk(
      `${usageChunk({ prompt_tokens: promptTokens, completion_tokens: 2, total_tokens: promptTokens + 2 })}data: [DONE]\n\n`,
    );
    exchange.endChunks();
  });
  images = await HttpsServer.start((request) => {
    const [, kind = '', detail = ''] = request.path.replace(/\?.*$/, '').split('/');
    switch (kind) {
      case 'png':
        return reply(request, png);
      case 'large':
        return reply(request, pngOf(640, 480, { pixels: Number(detail) }));
      case 'jpeg-as-png':
        return reply(request, jpegOf(64, 64));
      case 'html-as-png':
        return reply(request, '<!doctype html><title>x</title>');
      case 'huge':
        return reply(request, pngOf(1_000_000, 1_000_000));
      case 'missing':
        return reply(request, '', {}, 404);
      case 'to':
        return redirect(request, decodeURIComponent(detail));
      case 'drip': {
        request.socket.write('HTTP/1.1 200 X\r\ncontent-type: image/png\r\ncontent-length: 100000\r\n\r\n');
        const drip = setInterval(() => request.socket.write('x'), 50);
        request.socket.on('close', () => clearInterval(drip));
        return;
      }
      default:
        return;
    }
  });
  dns = await DnsServer.start(() => ['A 127.0.0.1']);
  service = new TestService({ config: configOf(), environment: { NODE_EXTRA_CA_CERTS: testAuthorityFile() } });
  await service.start();
});
after(async () => {
  await service?.dispose();
  await Promise.all([backend?.close(), images?.close(), dns?.close()]);
});

const model = (id: string, vision: boolean, contextLength = 32_768): string => `
  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 1000, output_cents_per_million: 1000 }
    capabilities: { vision: ${vision} }
    backends: [ { engine: openai, flavor: vllm, url: "${backend.url}" } ]`;
const configOf = (): string =>
  `images: { allow_hosts: ["open.images.test:${images.port}"], dns_servers: ["${dns.address}"] }
models:${model('eyes', true)}${model('small', true, 1_024)}${model('blind', false)}`;

const hostUrl = (path: string): string => `https://open.images.test:${images.port}/${path}`;
const imagePart = (url: string): unknown => ({ type: 'image_url', image_url: { url } });
const says = (...content: readonly unknown[]): unknown[] => [
  { role: 'user', content: [{ type: 'text', text: 'what is it?' }, ...content] },
];

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly error: { readonly code?: string; readonly param?: string; readonly message?: string };
  readonly usage: { readonly prompt_tokens?: number };
}

async function ask(messages: unknown[], more: Record<string, unknown> = {}, by = service): Promise<Answer> {
  const response = await by.chat({ model: 'eyes', max_tokens: 10, messages, ...more });
  const text = await response.text();
  const json = (text.startsWith('{') ? JSON.parse(text) : {}) as Pick<Answer, 'error' | 'usage'>;
  return { status: response.status, text, error: json.error ?? {}, usage: json.usage ?? {} };
}

/** Asks with one image; the backend must not be asked. */
async function refusal(url: string, by = service): Promise<string> {
  const before = bodies.length;
  const { status, error, text } = await ask(says(imagePart(url)), {}, by);
  assert.equal(bodies.length, before, url);
  assert.ok(!text.includes('127.0.0.1') && !text.includes('images.test'), text);
  return `${status} ${error.code} ${error.param ?? '-'}`;
}
const at = 'messages[0].content[1].image_url.url';

/** The image URLs in the newest request to the backend. */
function seen(): readonly string[] {
  const { messages } = bodies.at(-1) as { messages: { content: string | { image_url?: { url: string } }[] }[] };
  return messages.flatMap(({ content }) =>
    typeof content === 'string' ? [] : content.flatMap((part) => part.image_url?.url ?? []),
  );
}

describe('§4.2.4 Vision', options, () => {
  test('§4.2.4(1) `capabilities.vision` and `supports_vision` say which models take images', async () => {
    const { data } = (await (await fetch(`${service.url}/v1/models`)).json()) as {
      data: { id: string; supports_vision: boolean; service: { capabilities: { vision: boolean } } }[];
    };
    for (const card of data) {
      const takes = card.id !== 'blind';
      assert.deepEqual([card.supports_vision, card.service.capabilities.vision], [takes, takes], card.id);
    }
  });

  test('§4.2.4(1) an image_url part may be a base64 data URI, which the model gets as it is', async () => {
    const uris = [
      dataUri('image/png', png),
      dataUri('image/jpeg', jpegOf(10, 10)),
      dataUri('image/gif', gifOf(10, 10)),
      dataUri('image/webp', webpOf(10, 10, 'lossy')),
      dataUri('image/png', pngOf(640, 480, { pixels: 3_000_000 })),
    ];
    for (const uri of uris) {
      for (const stream of [false, true]) {
        const { status, text } = await ask(says(imagePart(uri)), { stream });
        assert.deepEqual([status, text.includes('a cat')], [200, true], text.slice(0, 500));
        assert.deepEqual(seen(), [uri]);
      }
    }
    await ask(says(...uris.slice(0, 4).map(imagePart), { type: 'image_url', image_url: uris[0] }));
    assert.deepEqual(seen(), [...uris.slice(0, 4), uris[0]]);
  });

  test('§4.2.4(1) it may be a public https URL', async () => {
    for (const stream of [false, true]) {
      const { status, text } = await ask(says(imagePart(hostUrl('png'))), { stream });
      assert.deepEqual([status, text.includes('a cat')], [200, true], text);
      assert.deepEqual(seen(), [dataUri('image/png', png)]);
    }
  });

  test('§4.2.4(2) the service fetches the URL itself: the backend gets a data URI, of what the bytes are', async () => {
    const before = images.requests.length;
    const part = imagePart(hostUrl('jpeg-as-png'));
    await ask(says(part, imagePart(hostUrl('png')), part));
    const jpeg = dataUri('image/jpeg', jpegOf(64, 64));
    assert.deepEqual(seen(), [jpeg, dataUri('image/png', png), jpeg]);
    assert.equal(images.requests.length, before + 2, 'the same URL is fetched once');
    assert.ok(!JSON.stringify(bodies.at(-1)).includes('images.test'));
  });

  test('§4.2.4(2) a failed fetch returns 400 `model_request_rejected`, and costs nothing', async () => {
    const before = (await service.usage()).balanceMicrocents;
    for (const path of ['missing', 'html-as-png', 'huge', `to/${encodeURIComponent('https://')}`]) {
      assert.equal(await refusal(hostUrl(path)), `400 model_request_rejected ${at}`, path);
    }
    // In a stream, too: the status is the error's own.
    const { status, error } = await ask(says(imagePart(hostUrl('missing'))), { stream: true });
    assert.deepEqual([status, error.code], [400, 'model_request_rejected']);
    assert.equal((await service.usage()).balanceMicrocents, before);
  });

  test('§4.2.4(2) a fetch that takes longer than ten seconds has failed', async () => {
    assert.equal(await refusal(hostUrl('drip')), `400 model_request_rejected ${at}`);
    await until(() => images.open === 0);
  });

  test('§4.2.4(2) URLs to private networks or local paths return 400 `unsupported_value`', async () => {
    const before = images.connections;
    for (const url of [
      `https://127.0.0.1:${images.port}/png`,
      'https://127.0.0.1/png',
      'https://169.254.169.254/latest/meta-data/',
      'https://localhost/',
      'https://[::1]/',
      `http://open.images.test:${images.port}/png`,
      'file:///etc/passwd',
      '/etc/passwd',
      // Found out by asking the name server.
      'https://evil.images.test/png',
    ]) {
      assert.equal(await refusal(url), `400 unsupported_value ${at}`, url);
    }
    assert.equal(images.connections, before);
    for (const target of ['https://127.0.0.1/', 'https://evil.images.test/', 'http://open.images.test/']) {
      assert.equal(await refusal(hostUrl(`to/${encodeURIComponent(target)}`)), `400 unsupported_value ${at}`, target);
    }
    const { error } = await ask(says({ type: 'image_url', image_url: 'https://127.0.0.1/' }));
    assert.equal(error.param, 'messages[0].content[1].image_url');
  });

  test('§4.2.4(1) what is no image, or more than twenty of them, returns 400 `unsupported_value`', async () => {
    for (const uri of [
      'data:image/png;base64,!',
      dataUri('image/png', jpegOf(1, 1)),
      dataUri('image/png', pngOf(9e5, 1)),
    ])
      assert.equal(await refusal(uri), `400 unsupported_value ${at}`);
    const { status, error } = await ask(says(...new Array<unknown>(21).fill(imagePart(dataUri('image/png', png)))));
    assert.deepEqual(
      [status, error.code, error.param],
      [400, 'unsupported_value', 'messages[0].content[21].image_url.url'],
    );
  });

  test('§4.2.4(3) image tokens count toward `prompt_tokens`, as the backend counts them', async () => {
    const { usage } = await ask(says(imagePart(dataUri('image/png', png))));
    assert.equal(usage.prompt_tokens, promptTokens);
    const [line] = (await service.usage(1)).requests;
    assert.equal(line?.prompt_tokens, promptTokens);
  });

  test('§4.2.4(3) and toward a request whose backend told nothing: text as counted, image by its pixels', async () => {
    const leaving = new AbortController();
    const before = bodies.length;
    const messages = says({ type: 'text', text: 'say nothing' }, imagePart(hostUrl('png')));
    const response = service
      .chat({ model: 'eyes', max_tokens: 10, messages }, { signal: leaving.signal })
      .catch(() => undefined);
    await until(() => bodies.length > before);
    leaving.abort();
    await response;
    await until(async () => (await service.usage(1)).requests[0]?.ending === 'client_left');
    const [line] = (await service.usage(1)).requests;
    // 20 from /tokenize, which is never shown an image, and 23 × 18 squares of 28 pixels.
    assert.equal(line?.prompt_tokens, 20 + 23 * 18);
    assert.ok(counted.length > 0 && !JSON.stringify(counted).includes('image_url'));
  });

  test('§4.2.4(3) image tokens count toward the context window', async () => {
    const before = bodies.length;
    const large = imagePart(dataUri('image/png', pngOf(1_024, 1_024)));
    const { status, error } = await ask(says(large), { model: 'small' });
    assert.deepEqual([status, error.code], [400, 'context_length_exceeded']);
    assert.equal(bodies.length, before);
    const fits = await ask(says(imagePart(dataUri('image/png', png))), { model: 'small' });
    assert.equal(fits.status, 200);
  });

  test('§4.2.4(5) images sent to a model without vision are removed without an error, and never fetched', async () => {
    const before = images.connections;
    const wrong = ['https://127.0.0.1/', 'file:///etc/passwd', 'data:image/png;base64,!', '', hostUrl('png')];
    const { status, text } = await ask(says(...wrong.map(imagePart)), { model: 'blind' });
    assert.deepEqual([status, text.includes('a cat')], [200, true]);
    assert.deepEqual(seen(), []);
    assert.equal(images.connections, before);
  });

  test('§4.2.4(5) what was removed is told by a header and the receipt, in every family, whole and streamed', async () => {
    const url = dataUri('image/png', png);
    const source = { type: 'base64', media_type: 'image/png', data: png.toString('base64') };
    const text = 'what is it?';
    const asked = {
      'chat/completions': { messages: says(imagePart(url)) },
      messages: {
        max_tokens: 10,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'image', source },
              { type: 'text', text },
            ],
          },
        ],
      },
      'messages/count_tokens': {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'image', source },
              { type: 'text', text },
            ],
          },
        ],
      },
      responses: {
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_image', image_url: url },
              { type: 'input_text', text },
            ],
          },
        ],
      },
    };
    const receipts: string[] = [];
    for (const [path, body] of Object.entries(asked))
      for (const stream of [false, true])
        for (const model of ['blind', 'eyes']) {
          if (stream && path.endsWith('count_tokens')) continue;
          const response = await fetch(`${service.url}/v1/${path}`, {
            method: 'POST',
            headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
            body: JSON.stringify({ model, ...body, ...(stream ? { stream } : {}) }),
          });
          const answer = await response.text();
          assert.equal(response.status, 200, `${path} ${answer}`);
          const warned = response.headers.get('x-tokenhouse-warning');
          if (model === 'eyes') assert.equal(warned, null, path);
          else assert.match(warned ?? '', /^images_removed;text="[ -!#-~]+"$/, `${path} ${stream}`);
          if (!path.endsWith('count_tokens')) receipts.push(`${response.headers.get('x-request-id')} ${model}`);
        }
    for (const receipt of receipts) {
      const [id = '', model] = receipt.split(' ');
      const { stdout } = await service.command('explain', id);
      assert.equal(/^warning {2}images_removed: /m.test(stdout), model === 'blind', stdout);
    }
  });

  test('an image stands in no log and no file (reliability §4)', async () => {
    const base64 = png.toString('base64');
    await ask(says(imagePart(dataUri('image/png', png)), imagePart(hostUrl('png?canary-of-a-url'))));
    await refusal(hostUrl('missing?canary-of-a-url'));
    await until(() => service.log.length > 0);
    const files = readdirSync(service.folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => readFileSync(join(entry.parentPath, entry.name)).toString('latin1'));
    for (const text of [service.output, ...files]) {
      for (const word of [canary.toString('latin1'), base64.slice(40, 80), 'canary-of-a-url']) {
        assert.ok(!text.includes(word), word);
      }
    }
  });

  test('a client that leaves while its image is fetched ends the fetch', async () => {
    const { requests } = await service.usage(1);
    const leaving = new AbortController();
    const asked = images.requests.length;
    const messages = says(imagePart(hostUrl('silence')));
    const response = service.chat({ model: 'eyes', messages }, { signal: leaving.signal }).catch(() => undefined);
    await until(() => images.requests.length > asked);
    leaving.abort();
    await response;
    await until(() => images.open === 0);
    assert.deepEqual((await service.usage(1)).requests, requests, 'it had no hold and has no line');
  });
});

describe('the place of images in the order of checks (contracts decisions 10 and 18)', options, () => {
  let tight: TestService;
  before(async () => {
    const limits = [
      '  concurrency_per_account_max: 1',
      '  body_bytes_max: 300000',
      '  bodies_in_flight_bytes_max: 380000',
    ].join('\n');
    const environment = { NODE_EXTRA_CA_CERTS: testAuthorityFile() };
    tight = new TestService({ config: configOf(), limits, environment, firstCreditCents: '1' });
    await tight.start();
  });
  after(() => tight?.dispose());

  test('after a slot: without one nothing is fetched', async () => {
    const leaving = new AbortController();
    const before = bodies.length;
    const running = tight.chat(
      { model: 'blind', max_tokens: 1, messages: says({ type: 'text', text: 'say nothing' }) },
      { signal: leaving.signal },
    );
    running.catch(() => {});
    await until(() => bodies.length > before);
    const connections = images.connections;
    assert.equal(await refusal(hostUrl('png'), tight), '429 concurrency_limit_exceeded -');
    assert.equal(images.connections, connections);
    leaving.abort();
    await running.catch(() => {});
    await until(async () => (await refusal(hostUrl('missing'), tight)) === `400 model_request_rejected ${at}`);
  });

  test('before the credit, which is asked for the tokens of the image', async () => {
    // 1 cent buys a thousand tokens, and the image may be four thousand: 402 says that the image was fetched and measured.
    const connections = images.connections;
    assert.equal(await refusal(hostUrl('missing'), tight), `400 model_request_rejected ${at}`);
    assert.equal(await refusal(hostUrl('png'), tight), '402 insufficient_credits -');
    assert.equal(images.connections, connections + 2);
  });

  test('fetched bytes count in the budget of bodies, and are released', async () => {
    assert.equal(await refusal(hostUrl('large/3000000'), tight), '429 backend_at_capacity -');
    for (let i = 0; i < 3; i++) {
      assert.equal(await refusal(hostUrl('large/1400000'), tight), '402 insufficient_credits -');
    }
    const metrics = await (await fetch(`${tight.accountUrl}/metrics`)).text();
    assert.match(metrics, /body_bytes\S* 0$/m);
  });

  test('literal addresses and syntax before the features of the card', async () => {
    const { error } = await ask(says(imagePart('https://127.0.0.1/')), { n: 2 }, tight);
    assert.equal(error.param, at);
  });
});

describe('§4.2.4(4) a body of almost 50 MB', options, () => {
  test('with one image is taken and passed on whole, while others are answered', async () => {
    const received: { bytes: number; head: string; tail: string }[] = [];
    const server = createServer((request, response) => {
      let bytes = 0;
      let head = '';
      let tail = '';
      request.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (head.length < 2_000) head += chunk.toString('latin1').slice(0, 2_000);
        tail = (tail + chunk.toString('latin1')).slice(-200);
      });
      request.on('end', () => {
        if (request.method === 'GET') {
          response.end('{"data":[]}');
          return;
        }
        received.push({ bytes, head, tail });
        response.setHeader('content-type', 'text/event-stream');
        response.end(
          chatChunk({ content: 'a cat' }, 'stop') +
            usageChunk({ prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 }) +
            'data: [DONE]\n\n',
        );
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const large = new TestService({ config: `models:${model('eyes', true).replace(backend.url, url)}` });
    try {
      await large.start();
      const uri = dataUri('image/png', pngOf(4_000, 3_000, { pixels: 38_000_000 }));
      const body = Buffer.from(JSON.stringify({ model: 'eyes', max_tokens: 10, messages: says(imagePart(uri)) }));
      const looking = lookAt(`${large.url}/healthz`);
      const { status, text } = await sendAgainWhenBusy(() => post(`${large.url}/v1/chat/completions`, large.key, body));
      const slowestMs = await looking.end();
      assert.deepEqual([status, text.includes('a cat')], [200, true], text.slice(0, 500));
      const [request] = received;
      assert.ok(request !== undefined && request.bytes > uri.length && request.bytes < uri.length + 2_000);
      assert.ok(request.head.includes(uri.slice(0, 200)) && request.tail.includes(uri.slice(-20)));
      // Ten times the figure of 100 ms (reliability C12), of a quiet machine.
      assert.ok(slowestMs < 1_000 * slowness, `${slowestMs} ms`);
    } finally {
      await large.dispose();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    }
  });
});

/** Looks at a URL again and again, on a thread of its own, because this one makes and reads 50 MB. */
function lookAt(url: string): { end(): Promise<number> } {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    let slowestMs = 0;
    let isOver = false;
    parentPort.on('message', () => (isOver = true));
    (async () => {
      while (!isOver) {
        const begunMs = performance.now();
        await (await fetch(workerData)).text();
        slowestMs = Math.max(slowestMs, performance.now() - begunMs);
      }
      parentPort.postMessage(slowestMs);
      parentPort.close();
    })();`;
  const worker = new Worker(code, { eval: true, workerData: url });
  const slowest = new Promise<number>((resolve, reject) => worker.once('message', resolve).once('error', reject));
  return {
    end: () => {
      worker.postMessage('end');
      return slowest;
    },
  };
}

function post(url: string, key: string, body: Buffer): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-length': body.length,
    };
    const request = httpRequest(url, { method: 'POST', headers }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

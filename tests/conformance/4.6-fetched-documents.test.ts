/** Documents by address (contracts §1.2 `document`, §1.3 `input_file`): fetched like images, read like files. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { forbiddenUrls } from '../platform/outbound/forbidden-urls.ts';
import { DnsServer } from '../support/dns-server.ts';
import { HttpsServer, redirect, reply, testAuthorityFile } from '../support/https-server.ts';
import { pngOf } from '../support/image-files.ts';
import { pdfOf } from '../support/pdf-files.ts';
import { TestService } from '../support/service.ts';
import { chatChunk, Upstream, usageChunk } from '../support/upstream.ts';

/** Texts of the user's message in what the backend was sent, newest last. */
const sent: string[] = [];
let backend: Upstream;
let documents: HttpsServer;
let dns: DnsServer;
let service: TestService;

before(async () => {
  backend = await Upstream.start((exchange) => {
    if (!exchange.path.endsWith('/chat/completions')) return exchange.json(404, {});
    const { messages } = JSON.parse(exchange.body) as { messages: { content: string | { text: string }[] }[] };
    const content = messages.at(-1)?.content ?? '';
    sent.push(typeof content === 'string' ? content : content.map(({ text }) => text).join('\n'));
    exchange.events();
    exchange.chunk(
      chatChunk({ role: 'assistant', content: 'read' }) +
        chatChunk({}, 'stop') +
        usageChunk({ prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 }) +
        'data: [DONE]\n\n',
    );
    exchange.endChunks();
  });
  documents = await HttpsServer.start((request) => {
    switch (request.path.replace(/\?.*$/, '')) {
      case '/a.pdf':
        return reply(request, pdfOf(['Hello PDF.']), { 'content-type': 'application/pdf' });
      case '/unnamed':
        return reply(request, pdfOf(['No type.']), { 'content-type': 'application/octet-stream' });
      case '/notes.md':
        return reply(request, '# Notes', { 'content-type': 'text/markdown; charset=utf-8' });
      case '/moved':
        return redirect(request, '/a.pdf');
      case '/inside':
        return redirect(request, 'https://127.0.0.1/a.pdf');
      case '/picture':
        return reply(request, pngOf(2, 2), { 'content-type': 'application/octet-stream' });
      case '/picture.png':
        return reply(request, pngOf(2, 2), { 'content-type': 'image/png' });
      case '/binary':
        return reply(request, Buffer.from([0, 1, 2, 0xff]), { 'content-type': 'application/octet-stream' });
      case '/missing':
        return reply(request, '', {}, 404);
      default:
        // Never answers.
        return;
    }
  });
  dns = await DnsServer.start(() => ['A 127.0.0.1']);
  service = new TestService({
    environment: { NODE_EXTRA_CA_CERTS: testAuthorityFile() },
    config: `images: { allow_hosts: ["open.images.test:${documents.port}"], dns_servers: ["${dns.address}"] }
models:
  - id: blind
    context_length: 32768
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${backend.url}" } ]`,
  });
  await service.start();
});
after(async () => {
  await service?.dispose();
  await Promise.all([backend?.close(), documents?.close(), dns?.close()]);
});

interface Wire {
  readonly path: string;
  readonly at: string;
  body(url: string): unknown;
}

const wires: readonly Wire[] = [
  {
    path: '/v1/messages',
    at: 'messages[0].content[1].source.url',
    body: (url) => ({
      model: 'blind',
      max_tokens: 10,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look.' },
            { type: 'document', source: { type: 'url', url } },
          ],
        },
      ],
    }),
  },
  {
    path: '/v1/responses',
    at: 'input[0].content[1].file_url',
    body: (url) => ({
      model: 'blind',
      max_output_tokens: 10,
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Look.' },
            { type: 'input_file', file_url: url },
          ],
        },
      ],
    }),
  },
];

const ask = (wire: Wire, url: string, signal?: AbortSignal): Promise<Response> =>
  fetch(`${service.url}${wire.path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': service.key },
    body: JSON.stringify(wire.body(url)),
    ...(signal === undefined ? {} : { signal }),
  });
const hostUrl = (path: string): string => `https://open.images.test:${documents.port}${path}`;

async function refusal(wire: Wire, url: string): Promise<string> {
  const before = sent.length;
  const answer = await ask(wire, url);
  const text = await answer.text();
  assert.ok(!/127\.0\.0\.1|images\.test/.test(text), text);
  assert.equal(sent.length, before, 'no backend is asked');
  const { error } = JSON.parse(text) as { error: { code: string; param: string } };
  assert.deepEqual([answer.status, error.param], [400, wire.at], text);
  return error.code;
}

for (const wire of wires) {
  test(`${wire.path}: a PDF and texts are read, by what their bytes say`, async () => {
    for (const [path, text] of [
      ['/a.pdf?token=secret', 'Attached file a.pdf:\nHello PDF.'],
      ['/unnamed', 'Attached file unnamed:\nNo type.'],
      ['/notes.md', 'Attached file notes.md:\n# Notes'],
      ['/moved', 'Attached file moved:\nHello PDF.'],
    ] as const) {
      const answer = await ask(wire, hostUrl(path));
      assert.equal(answer.status, 200, await answer.text());
      assert.equal(sent.at(-1), `Look.\n${text}`);
    }
  });

  test(`${wire.path}: what is no document, or cannot be had, is refused by its field`, async () => {
    for (const [path, code] of [
      ['/picture', 'unsupported_value'],
      ['/picture.png', 'model_request_rejected'],
      ['/binary', 'unsupported_value'],
      ['/missing', 'model_request_rejected'],
      ['/inside', 'unsupported_value'],
      // Never answered: the time for it has a bound.
      ['/silent', 'model_request_rejected'],
    ] as const)
      assert.equal(await refusal(wire, hostUrl(path)), code, path);
  });

  test(`${wire.path}: no address that is not public is asked for (reliability §3.2)`, async () => {
    const { connections } = documents;
    const questions = dns.queries.length;
    for (const url of forbiddenUrls.slice(0, 40)) assert.equal(await refusal(wire, url), 'unsupported_value', url);
    assert.deepEqual([documents.connections, dns.queries.length], [connections, questions]);
  });
}

test('a client that leaves ends the fetching of its document', async () => {
  const [wire] = wires;
  const leaving = new AbortController();
  const asked = ask(wire!, hostUrl('/silent'), leaving.signal);
  const seen = documents.requests.length;
  while (documents.requests.length === seen) await new Promise((resolve) => setTimeout(resolve, 10));
  leaving.abort();
  await assert.rejects(asked);
  while (documents.open > 0) await new Promise((resolve) => setTimeout(resolve, 10));
});

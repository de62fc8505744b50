import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import {
  anthropicVersion,
  askFiles,
  bodyOf,
  multipartType,
  part,
  sendUpload,
  upload,
  uploadBody,
} from '../inference/http/file-requests.ts';
import { exchange } from '../inference/http/raw.ts';
import { dataUri, pngOf } from '../support/image-files.ts';
import { pdfOf } from '../support/pdf-files.ts';
import type { TestService } from '../support/service.ts';
import { InnerService, scriptedModel } from '../support/service.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';

/** Specification §4.6, §5.5 and §7.4; contracts §1.4 and decision 6. */
let upstream: Upstream;
let service: TestService;
/** A key of the same account, of no user; and one of another account. */
let legacyKey = '';
let otherKey = '';

before(async () => {
  upstream = await Upstream.start((request) => {
    request.events({});
    request.chunk(chatChunk({ role: 'assistant', content: 'Seen.' }, null));
    request.chunk(chatChunk({}, 'stop'));
    request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
    request.chunk('data: [DONE]\n\n');
    request.endChunks();
  });
  const remote = (id: string, vision: boolean): string => `
  - id: ${id}
    context_length: 8192
    capabilities: { vision: ${vision} }
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}", zdr: true } ]`;
  service = new InnerService({
    config: `${scriptedModel('- say: [ { text: "hello" } ]')}${remote('blind', false)}${remote('seeing', true)}
files: { files_per_account_max: 40, bytes_per_account_max: 1000000 }`,
  });
  await service.start();
  const keyOf = async (...args: string[]) => (await service.command('keys', 'create', ...args)).stdout.trim();
  legacyKey = await keyOf('--name', 'legacy');
  const path = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(path, { kind: 'create_account', name: 'other' });
  assert.ok(account !== undefined);
  otherKey = await keyOf('--account', account.accountId, '--user', 'eve');
  await service.command('credits', 'grant', '--account', account.accountId, '--cents', '100');
});
after(async () => {
  await service.dispose();
  await upstream.close();
});

const openAiFields = ['id', 'object', 'bytes', 'created_at', 'filename', 'purpose', 'status'];
const anthropicFields = [
  'id',
  'type',
  'filename',
  'mime_type',
  'size_bytes',
  'created_at',
  'downloadable',
  'expires_at',
];

describe('the two shapes', () => {
  test('upload, metadata, content, deletion as OpenAI has them', async () => {
    const answer = await sendUpload(service, uploadBody('hello', 'a.txt'));
    assert.equal(answer.status, 200, answer.body);
    const file = answer.json();
    assert.deepEqual(Object.keys(file), openAiFields);
    assert.match(String(file['id']), /^file-[0-9a-f]{32}$/);
    const { object, bytes, filename, purpose, status } = file;
    assert.deepEqual([object, bytes, filename, purpose, status], ['file', 5, 'a.txt', 'user_data', 'processed']);
    assert.ok(Math.abs(Number(file['created_at']) - Date.now() / 1000) < 600);
    assert.deepEqual((await askFiles(service, `/${String(file['id'])}`)).json(), file);
    const content = await askFiles(service, `/${String(file['id'])}/content`);
    assert.equal(content.body, 'hello');
    assert.equal(content.headers['content-type'], 'text/plain; charset=utf-8');
    assert.equal(content.headers['x-content-type-options'], 'nosniff');
    assert.equal(content.headers['content-security-policy'], 'sandbox');
    assert.equal(content.headers['content-disposition'], `attachment; filename="a.txt"; filename*=UTF-8''a.txt`);
    const deleted = await askFiles(service, `/${String(file['id'])}`, [], 'DELETE');
    assert.deepEqual(deleted.json(), { id: file['id'], object: 'file', deleted: true });
    for (const path of ['', '/content'])
      assertEnvelope(await askFiles(service, `/${String(file['id'])}${path}`), 'http_404', { param: 'file_id' });
    assertEnvelope(await askFiles(service, `/${String(file['id'])}`, [], 'DELETE'), 'http_404', { param: 'file_id' });
  });

  test('upload, metadata, content, deletion as Anthropic has them', async () => {
    const answer = await sendUpload(service, bodyOf(part('file', '{"a":1}', 'a.json')), [anthropicVersion]);
    assert.equal(answer.status, 200, answer.body);
    const file = answer.json();
    assert.deepEqual(Object.keys(file), anthropicFields);
    const { type, filename, mime_type, size_bytes, downloadable, expires_at } = file;
    assert.deepEqual(
      [type, filename, mime_type, size_bytes, downloadable, expires_at],
      ['file', 'a.json', 'application/json', 7, true, null],
    );
    assert.match(String(file['id']), /^file_[0-9a-f]{32}$/);
    assert.equal(new Date(String(file['created_at'])).toISOString(), file['created_at']);
    const path = `/${String(file['id'])}`;
    assert.deepEqual((await askFiles(service, path, [anthropicVersion])).json(), file);
    assert.equal((await askFiles(service, `${path}/content`, [anthropicVersion])).body, '{"a":1}');
    // One namespace: the other family sees the same file.
    assert.equal((await askFiles(service, path)).json()['id'], String(file['id']).replace('_', '-'));
    assert.deepEqual((await askFiles(service, path, [anthropicVersion], 'DELETE')).json(), {
      id: file['id'],
      type: 'file_deleted',
    });
    const gone = await askFiles(service, path, [anthropicVersion]);
    assert.equal(gone.status, 404);
    assert.deepEqual(Object.keys(gone.json()).slice(0, 2), ['type', 'error']);
    assert.equal(gone.json()['type'], 'error');
  });

  test('expiry in the words of each family', async () => {
    const nowSeconds = Date.now() / 1000;
    const openAi = await sendUpload(
      service,
      bodyOf(
        part('file', 'x', 'x.txt'),
        part('purpose', 'vision'),
        part('expires_after[anchor]', 'created_at'),
        part('expires_after[seconds]', '3600'),
      ),
    );
    assert.ok(Math.abs(Number(openAi.json()['expires_at']) - nowSeconds - 3600) < 600, openAi.body);
    const anthropic = await sendUpload(
      service,
      bodyOf(part('expires_in_seconds', '7776000'), part('file', 'x', 'x.txt')),
      [anthropicVersion],
    );
    const expiresAt = Date.parse(String(anthropic.json()['expires_at'])) / 1000;
    assert.ok(Math.abs(expiresAt - nowSeconds - 7_776_000) < 600, anthropic.body);
  });
});

describe('what is refused', () => {
  const file = part('file', 'x', 'x.txt');
  const purpose = part('purpose', 'user_data');
  const anchor = part('expires_after[anchor]', 'created_at');
  const rows: readonly (readonly [string, Buffer, string])[] = [
    ['no file', bodyOf(purpose), 'file'],
    ['two files', bodyOf(file, file, purpose), 'file'],
    ['no purpose', bodyOf(file), 'purpose'],
    ['an unknown purpose', bodyOf(file, part('purpose', 'fun')), 'purpose'],
    ['two purposes', bodyOf(file, purpose, purpose), 'purpose'],
    ['a huge purpose', bodyOf(file, part('purpose', 'p'.repeat(5_000))), 'purpose'],
    [
      'seconds without an anchor',
      bodyOf(file, purpose, part('expires_after[seconds]', '3600')),
      'expires_after[anchor]',
    ],
    ['an anchor without seconds', bodyOf(file, purpose, anchor), 'expires_after[seconds]'],
    ...['3599', '2592001', '1e4', '-3600', '3600.5', ''].map(
      (seconds) =>
        [
          `${seconds} seconds`,
          bodyOf(file, purpose, anchor, part('expires_after[seconds]', seconds)),
          'expires_after[seconds]',
        ] as const,
    ),
  ];
  for (const [name, body, param] of rows) {
    test(`${name}: 422`, async () => {
      assertEnvelope(await sendUpload(service, body), 'schema_validation_failed', { param });
    });
  }

  test('the messages wrapper for that family, and its own bounds', async () => {
    const answer = await sendUpload(service, bodyOf(part('expires_in_seconds', '7776001'), file), [anthropicVersion]);
    assert.equal(answer.status, 422);
    const { type, error } = answer.json() as { type: string; error: { code: string; param: string } };
    assert.deepEqual([type, error.code, error.param], ['error', 'schema_validation_failed', 'expires_in_seconds']);
  });

  test('§5.5, §7.4: a key of no user uploads nothing, and may do all else', async () => {
    const id = await upload(service, 'mine', 'mine.txt');
    const legacy = ['Authorization', `Bearer ${legacyKey}`] as const;
    assertEnvelope(await sendUpload(service, uploadBody('x', 'x.txt'), [legacy]), 'files_require_user_key');
    const read = await exchange(service.url, { method: 'GET', path: `/v1/files/${id}`, headers: [legacy] });
    assert.equal(read.status, 200, read.body);
    assert.equal((await ask('blind', { file_id: id }, { key: legacyKey })).status, 200);
  });

  test('§4.2.6: nothing is stored with zero data retention', async () => {
    assertEnvelope(
      await sendUpload(service, uploadBody('x', 'x.txt'), [['Service-ZDR', 'required']]),
      'unsupported_parameter',
      { param: 'Service-ZDR' },
    );
    assertEnvelope(
      await sendUpload(service, uploadBody('x', 'x.txt'), [['Service-ZDR', 'Required']]),
      'invalid_zdr_header',
      { param: 'Service-ZDR' },
    );
  });

  test('no key, another type of body, another method, another path', async () => {
    const send = (method: string, path: string, headers: readonly (readonly [string, string])[] = []) =>
      exchange(service.url, { method, path, headers, body: method === 'POST' ? uploadBody('x', 'x.txt') : '' });
    assertEnvelope(await send('POST', '/v1/files', [['Content-Type', multipartType]]), 'missing_api_key');
    assertEnvelope(await send('GET', '/v1/files/file-1'), 'missing_api_key');
    assertEnvelope(await sendUpload(service, Buffer.from('{}'), [['Content-Type', 'application/json']]), 'http_415');
    assertEnvelope(await sendUpload(service, uploadBody('x', 'x'), [['Content-Encoding', 'gzip']]), 'http_415');
    for (const [method, path, allow] of [
      ['PUT', '/v1/files', 'GET, HEAD, POST'],
      ['POST', '/v1/files/file-1', 'GET, HEAD, DELETE'],
      ['DELETE', '/v1/files/file-1/content', 'GET, HEAD'],
    ] as const) {
      const answer = await send(method, path);
      assertEnvelope(answer, 'http_405');
      assert.equal(answer.headers['allow'], allow);
    }
    for (const path of ['/v1/files/', '/v1/files/a/b', '/v1/files/a/content/', '/v1/filesystem'])
      assertEnvelope(await send('GET', path), 'http_404');
  });

  test('what the account may have, at the same time too', async () => {
    const half = Buffer.alloc(450_000, 'x');
    const answers = await Promise.all(
      Array.from({ length: 4 }, (_, index) => sendUpload(service, uploadBody(half, `half ${index}.txt`))),
    );
    const statuses = answers.map(({ status }) => status).toSorted();
    assert.deepEqual(statuses.slice(-2), [403, 403], 'two do not fit beside two');
    for (const answer of answers) if (answer.status !== 200) assertEnvelope(answer, 'http_403');
    for (const answer of answers)
      if (answer.status === 200) await askFiles(service, `/${String(answer.json()['id'])}`, [], 'DELETE');
    // There is room again.
    const id = await upload(service, half, 'half.txt');
    await askFiles(service, `/${id}`, [], 'DELETE');
  });
});

describe('other accounts (reliability §3.5)', () => {
  test('a file of another account is not there, on any route and in any request', async () => {
    assert.match(otherKey, /^tkh_/, 'the test needs a second account');
    const id = await upload(service, 'secret', 'secret.txt');
    const other = [['Authorization', `Bearer ${otherKey}`]] as const;
    const send = (method: string, path: string) => exchange(service.url, { method, path, headers: other });
    for (const [method, path] of [
      ['GET', `/v1/files/${id}`],
      ['GET', `/v1/files/${id}/content`],
      ['DELETE', `/v1/files/${id}`],
    ] as const) {
      const theirs = await send(method, path);
      const nobodys = await send(method, path.replace(id, `file-${'0'.repeat(32)}`));
      assertEnvelope(theirs, 'http_404', { param: 'file_id' });
      assert.equal(theirs.body.length, nobodys.body.length);
    }
    assert.deepEqual((await send('GET', '/v1/files')).json()['data'], []);
    assert.equal((await send('GET', `/v1/files?after=${id}`)).status, 400);
    assert.equal((await ask('blind', { file_id: id }, { key: otherKey })).status, 400);
    assert.equal((await askFiles(service, `/${id}/content`)).body, 'secret');
  });
});

describe('lists', () => {
  const names = ['1.txt', '2.txt', '3.txt', '4.txt', '5.txt'];
  let ids: readonly string[] = [];
  before(async () => {
    const { data } = (await askFiles(service)).json() as { data: { id: string }[] };
    for (const { id } of data) await askFiles(service, `/${id}`, [], 'DELETE');
    const made: string[] = [];
    for (const name of names) made.push(await upload(service, name, name));
    ids = made;
  });
  const namesOf = (answer: { json(): Readonly<Record<string, unknown>>; body: string }): readonly string[] =>
    (answer.json()['data'] as { filename: string }[] | undefined)?.map(({ filename }) => filename) ?? [answer.body];

  test('by `after`, in both orders, to the end', async () => {
    for (const order of ['asc', 'desc']) {
      const seen: string[] = [];
      let after = '';
      for (let hasMore = true; hasMore;) {
        const answer = await askFiles(service, `?limit=2&order=${order}${after}`);
        const page = answer.json() as { object: string; first_id: string; last_id: string; has_more: boolean };
        assert.equal(page.object, 'list');
        const data = answer.json()['data'] as { id: string }[];
        assert.deepEqual([page.first_id, page.last_id], [data[0]?.id, data.at(-1)?.id]);
        seen.push(...namesOf(answer));
        hasMore = page.has_more;
        after = `&after=${page.last_id}`;
      }
      assert.deepEqual(seen, order === 'asc' ? names : names.toReversed());
    }
  });

  test('by `page`, and by `after_id` and `before_id` of earlier clients', async () => {
    const seen: string[] = [];
    for (let page: string | null = ''; page !== null;) {
      const answer = await askFiles(service, `?limit=2&page=${page}`, [anthropicVersion]);
      seen.push(...namesOf(answer));
      page = answer.json()['next_page'] as string | null;
      assert.equal(answer.json()['has_more'], page !== null);
    }
    assert.deepEqual(seen, names.toReversed());
    const list = async (query: string) => namesOf(await askFiles(service, query, [anthropicVersion]));
    const third = ids[2]!.replace('-', '_');
    assert.deepEqual(await list(`?after_id=${third}&limit=1`), ['2.txt']);
    assert.deepEqual(await list(`?before_id=${third}&limit=1`), ['4.txt']);
    assert.deepEqual(await list(`?before_id=${third}`), ['5.txt', '4.txt']);
    assert.deepEqual(await list(`?ids[]=${third}&ids[]=${ids[0]}&ids[]=file_unknown`), ['3.txt', '1.txt']);
  });

  test('by purpose', async () => {
    await sendUpload(service, bodyOf(part('file', 'v', 'v.txt'), part('purpose', 'vision')));
    assert.deepEqual(namesOf(await askFiles(service, '?purpose=vision')), ['v.txt']);
    assert.deepEqual(namesOf(await askFiles(service, '?purpose=nothing')), []);
  });

  test('what is no number, no order and no place', async () => {
    for (const limit of ['0', '-1', '10001', 'x', '1.5'])
      assertEnvelope(await askFiles(service, `?limit=${limit}`), 'schema_validation_failed', { param: 'limit' });
    assertEnvelope(await askFiles(service, '?order=up'), 'schema_validation_failed', { param: 'order' });
    assertEnvelope(await askFiles(service, '?after=file-1'), 'unsupported_value', { param: 'after' });
    assert.equal((await askFiles(service, '?page=nonsense', [anthropicVersion])).status, 400);
    const many = Array.from({ length: 101 }, (_, index) => `ids[]=file_${index}`).join('&');
    assert.equal((await askFiles(service, `?${many}`, [anthropicVersion])).status, 422);
  });
});

interface Asked {
  readonly status: number;
  readonly error: { readonly code: string; readonly param: string; readonly message: string } | undefined;
  /** What the backend was sent as the user's message. */
  readonly content: unknown;
}

async function ask(
  model: string,
  file: Readonly<Record<string, unknown>>,
  init: { readonly key?: string; readonly headers?: Record<string, string> } = {},
): Promise<Asked> {
  const before = upstream.exchanges.length;
  const content = [
    { type: 'text', text: 'Look.' },
    { type: 'file', file },
  ];
  const answer = await service.chat({ model, messages: [{ role: 'user', content }] }, init);
  const { error } = (await answer.json()) as { error?: Asked['error'] };
  // The one before it may have counted the prompt.
  const sent = upstream.exchanges.slice(before).at(-1);
  const body = sent === undefined ? undefined : (JSON.parse(sent.body) as { messages: { content: unknown }[] });
  return { status: answer.status, error, content: body?.messages[0]?.content };
}

describe('files in requests', () => {
  const inline = (content: string | Uint8Array, type = 'application/octet-stream'): string =>
    dataUri(type, Buffer.from(content));
  const at = { id: 'messages[0].content[1].file.file_id', data: 'messages[0].content[1].file.file_data' };

  test('text, CSV, JSON and Markdown become text with a line that names the file, stored or not', async () => {
    for (const [name, text] of [
      ['a.txt', 'plain'],
      ['b.csv', 'a,b\n1,2\n'],
      ['c.json', '{"a":[1]}'],
      ['d.md', '# Title\n\nüñí'],
      ['e.txt', '\ufeffwith a mark'],
    ] as const) {
      const expected = `Look.\nAttached file ${name}:\n${text.replace('\ufeff', '')}`;
      const id = await upload(service, text, name);
      assert.equal((await ask('blind', { file_id: id })).content, expected);
      assert.equal((await ask('blind', { file_id: id.replace('-', '_') })).content, expected);
      assert.equal((await ask('blind', { file_data: inline(text), filename: `../${name}` })).content, expected);
    }
  });

  test('the text of a PDF, page by page', async () => {
    const pdf = pdfOf(['Hello PDF.', 'Second page.']);
    const text = (name: string) => `Look.\nAttached file ${name}:\nHello PDF.\n\nSecond page.`;
    const id = await upload(service, pdf, 'stored.pdf');
    assert.equal((await ask('blind', { file_id: id })).content, text('stored.pdf'));
    assert.equal((await ask('seeing', { file_id: id })).content, text('stored.pdf'));
    const data = { file_data: inline(pdf, 'application/pdf'), filename: 'in line.pdf' };
    assert.equal((await ask('blind', data)).content, text('in line.pdf'));
    // With zero data retention too: nothing of it is stored.
    assert.equal((await ask('blind', data, { headers: { 'service-zdr': 'required' } })).content, text('in line.pdf'));
  });

  test('for a PDF without text, as a scan is, the prompt says so', async () => {
    const { content } = await ask('blind', { file_data: inline(pdfOf([''])), filename: 'scan.pdf' });
    assert.match(String(content), /^Look\.\nAttached file scan\.pdf is a PDF without text: it is empty, or a scan/);
  });

  test('an image is one for a model with vision, and removed for the others, whatever its name says', async () => {
    const png = pngOf(3, 2);
    const id = await upload(service, png, 'not an image.txt');
    const url = dataUri('image/png', png);
    for (const file of [{ file_id: id }, { file_data: inline(png, 'text/plain') }]) {
      assert.deepEqual((await ask('seeing', file)).content, [
        { type: 'text', text: 'Look.' },
        { type: 'image_url', image_url: { url } },
      ]);
      assert.equal((await ask('blind', file)).content, 'Look.');
    }
  });

  test('each family names a file in its own words: the same content, and a bad id by its own path', async () => {
    const pdf = await upload(service, pdfOf(['In a PDF.']), 'p.pdf');
    const png = await upload(service, pngOf(3, 2), 'i.png');
    const wires = [
      {
        path: '/v1/messages',
        body: (document: string, image: string) => ({
          max_tokens: 10,
          messages: [
            {
              role: 'user',
              content: [
                { type: 'document', source: { type: 'file', file_id: document } },
                { type: 'image', source: { type: 'file', file_id: image } },
              ],
            },
          ],
        }),
        at: ['messages[0].content[0].source.file_id', 'messages[0].content[1].source.file_id'],
      },
      {
        path: '/v1/responses',
        body: (document: string, image: string) => ({
          input: [
            {
              role: 'user',
              content: [
                { type: 'input_file', file_id: document },
                { type: 'input_image', file_id: image },
              ],
            },
          ],
        }),
        at: ['input[0].content[0].file_id', 'input[0].content[1].file_id'],
      },
    ];
    for (const { path, body, at: paths } of wires) {
      const send = async (document: string, image: string) =>
        await exchange(service.url, {
          method: 'POST',
          path,
          headers: [
            ['Authorization', `Bearer ${service.key}`],
            ['Content-Type', 'application/json'],
          ],
          body: JSON.stringify({ model: 'seeing', ...body(document, image) }),
        });
      const answer = await send(pdf, png);
      assert.equal(answer.status, 200, answer.body);
      const sent = upstream.exchanges.at(-1)?.body ?? '';
      assert.ok(sent.includes('p.pdf') && sent.includes('In a PDF.') && sent.includes('data:image/png;base64,'), sent);
      for (const [index, at] of paths.entries()) {
        const refused = await send(index === 0 ? 'file-none' : pdf, index === 1 ? 'file-none' : png);
        assert.equal(refused.status, 400, refused.body);
        assert.equal((refused.json()['error'] as { param: string }).param, at);
      }
    }
  });

  test('what cannot be used is refused by the name of its field', async () => {
    const binary = Buffer.from([0, 1, 2, 0xff]);
    const stored = async (content: Uint8Array) => ({ file_id: await upload(service, content, 'x.txt') });
    const rows: readonly (readonly [Readonly<Record<string, unknown>>, string, RegExp])[] = [
      [{ file_id: 'file-unknown' }, at.id, /does not exist/],
      [{ file_id: `file-${'0'.repeat(32)}` }, at.id, /does not exist/],
      [await stored(binary), at.id, /neither/],
      [await stored(pdfOf(['x']).subarray(0, 300)), at.id, /damaged/],
      [await stored(pdfOf(['x'], { isEncrypted: true })), at.id, /encrypted/],
      [{ file_data: inline(binary) }, at.data, /neither/],
      [{ file_data: 'data:text/plain,hi' }, at.data, /base64/],
      [{ file_data: 'data:text/plain;base64,!!!!' }, at.data, /base64/],
      [{ file_data: 'data:text/plain;base64,abc' }, at.data, /base64/],
      [{}, 'messages[0].content[1].file', /needs/],
    ];
    for (const [file, param, message] of rows) {
      const { status, error } = await ask('blind', file);
      assert.deepEqual([status, error?.code, error?.param], [400, 'unsupported_value', param], JSON.stringify(file));
      assert.match(error?.message ?? '', message);
    }
  });

  test('§4.2.6: a stored file cannot be named with zero data retention', async () => {
    const id = await upload(service, 'x', 'x.txt');
    const { status, error } = await ask('blind', { file_id: id }, { headers: { 'service-zdr': 'required' } });
    assert.deepEqual([status, error?.code, error?.param], [400, 'unsupported_parameter', at.id]);
  });

  test('the text counts: what does not fit the window is refused before any backend', async () => {
    const id = await upload(service, 'word '.repeat(30_000), 'long.txt');
    const answer = await service.chat({
      model: 'demo',
      messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: id } }] }],
    });
    assert.equal(answer.status, 400);
    assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'context_length_exceeded');
  });

  test('memory that files took is released', async () => {
    const metrics = await (await fetch(`${service.accountUrl}/metrics`)).text();
    assert.match(metrics, /^tokenhouse_body_bytes 0$/m);
  });
});

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { toFile } from 'openai';

import { pngOf } from '../support/image-files.ts';
import { pdfOf } from '../support/pdf-files.ts';
import type { TestService } from '../support/service.ts';
import type { Upstream } from '../support/upstream.ts';
import { startSeeingService } from './seeing-service.ts';

/** Files with both official clients, unmodified, over all their methods (contracts §1.4). */
let upstream: Upstream;
let service: TestService;
let openai: OpenAI;
let anthropic: Anthropic;
before(async () => {
  ({ service, upstream } = await startSeeingService());
  openai = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.key, maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: service.url, authToken: service.key, apiKey: null, maxRetries: 0 });
});
after(async () => {
  await service.dispose();
  await upstream.close();
});

/** What the backend was sent as the last user's message. */
function contentSent(): unknown {
  const { messages } = JSON.parse(upstream.exchanges.at(-1)?.body ?? '{}') as { messages: { content: unknown }[] };
  return messages.at(-1)?.content;
}

describe('openai', () => {
  test('create, retrieve, content, list over pages, delete', async () => {
    const made: string[] = [];
    for (const name of ['1.txt', '2.txt', '3.txt']) {
      const file = await openai.files.create({
        file: await toFile(Buffer.from(`content of ${name}`), name),
        purpose: 'user_data',
        expires_after: { anchor: 'created_at', seconds: 3600 },
      });
      assert.deepEqual([file.object, file.filename, file.bytes], ['file', name, 16]);
      assert.equal(file.expires_at, file.created_at + 3600);
      made.push(file.id);
    }
    const [first] = made;
    assert.ok(first);
    assert.equal((await openai.files.retrieve(first)).filename, '1.txt');
    assert.equal(await (await openai.files.content(first)).text(), 'content of 1.txt');
    const listed: string[] = [];
    for await (const file of openai.files.list({ limit: 2, order: 'asc' })) listed.push(file.id);
    assert.deepEqual(listed, made);
    for (const id of made) assert.equal((await openai.files.delete(id)).deleted, true);
    await assert.rejects(openai.files.retrieve(first), OpenAI.NotFoundError);
    await assert.rejects(openai.files.content(first), OpenAI.NotFoundError);
    assert.deepEqual((await openai.files.list()).data, []);
  });

  test('waitForProcessing ends at once', async () => {
    const { id } = await openai.files.create({ file: await toFile(Buffer.from('x'), 'x.txt'), purpose: 'assistants' });
    assert.equal((await openai.files.waitForProcessing(id)).status, 'processed');
  });

  test('what is refused is the error class of its status, with its code and param', async () => {
    const file = await toFile(Buffer.from('x'), 'x.txt');
    await assert.rejects(
      openai.files.create({ file, purpose: 'nothing' as 'user_data' }),
      (error) =>
        error instanceof OpenAI.UnprocessableEntityError &&
        error.code === 'schema_validation_failed' &&
        error.param === 'purpose',
    );
    const legacy = (await service.command('keys', 'create', '--name', 'legacy')).stdout.trim();
    const other = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: legacy, maxRetries: 0 });
    await assert.rejects(
      other.files.create({ file, purpose: 'user_data' }),
      (error) => error instanceof OpenAI.PermissionDeniedError && error.code === 'files_require_user_key',
    );
    // Larger than what is allowed; the answer comes before all of it is sent.
    const large = await toFile(Buffer.alloc(53_000_000), 'large.bin');
    await assert.rejects(openai.files.create({ file: large, purpose: 'user_data' }), (error) => {
      return error instanceof OpenAI.APIError && (error.status === 413 || error instanceof OpenAI.APIConnectionError);
    });
  });

  test('in chat: text, a PDF and an image by id, a PDF in line; a bad id by its path', async () => {
    const add = async (bytes: Uint8Array, name: string) =>
      (await openai.files.create({ file: await toFile(bytes, name), purpose: 'user_data' })).id;
    const png = pngOf(3, 2);
    const pdf = pdfOf(['Page one.']);
    const ask = (file: { file_id?: string; file_data?: string; filename?: string }) =>
      openai.chat.completions.create({
        model: 'seeing',
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'Look.' },
              { type: 'file', file },
            ],
          },
        ],
      });
    assert.equal((await ask({ file_id: await add(Buffer.from('a,b'), 't.csv') })).choices[0]?.message.content, 'Seen.');
    assert.equal(contentSent(), 'Look.\nAttached file t.csv:\na,b');
    await ask({ file_id: await add(pdf, 'p.pdf') });
    assert.equal(contentSent(), 'Look.\nAttached file p.pdf:\nPage one.');
    await ask({ file_id: await add(png, 'i.png') });
    const url = `data:image/png;base64,${png.toString('base64')}`;
    assert.deepEqual((contentSent() as unknown[])[1], { type: 'image_url', image_url: { url } });
    await ask({ file_data: `data:application/pdf;base64,${pdf.toString('base64')}`, filename: 'in line.pdf' });
    assert.equal(contentSent(), 'Look.\nAttached file in line.pdf:\nPage one.');
    await assert.rejects(
      ask({ file_id: 'file-none' }),
      (error) =>
        error instanceof OpenAI.BadRequestError &&
        error.code === 'unsupported_value' &&
        error.param === 'messages[0].content[1].file.file_id',
    );
  });
});

describe('@anthropic-ai/sdk', () => {
  test('upload, retrieveMetadata, download, list over pages, delete', async () => {
    for await (const file of anthropic.beta.files.list()) await anthropic.beta.files.delete(file.id);
    const made: string[] = [];
    for (const name of ['1.md', '2.md', '3.md']) {
      const file = await anthropic.beta.files.upload({
        file: await Anthropic.toFile(Buffer.from(`# ${name}`), name, { type: 'application/octet-stream' }),
        expires_in_seconds: 3600,
      });
      const { type, filename, mime_type, size_bytes, downloadable } = file;
      assert.deepEqual([type, filename, mime_type, size_bytes, downloadable], ['file', name, 'text/markdown', 6, true]);
      assert.equal(Date.parse(file.expires_at ?? '') - Date.parse(file.created_at), 3_600_000);
      made.unshift(file.id);
    }
    const [newest] = made;
    assert.ok(newest);
    assert.equal((await anthropic.beta.files.retrieveMetadata(newest)).filename, '3.md');
    assert.equal(await (await anthropic.beta.files.download(newest)).text(), '# 3.md');
    const listed: string[] = [];
    for await (const file of anthropic.beta.files.list({ limit: 2 })) listed.push(file.id);
    assert.deepEqual(listed, made);
    const some = await anthropic.beta.files.list({ ids: [newest, 'file_none'] });
    assert.deepEqual(
      some.data.map(({ id }) => id),
      [newest],
    );
    for (const id of made) assert.equal((await anthropic.beta.files.delete(id)).type, 'file_deleted');
    await assert.rejects(anthropic.beta.files.retrieveMetadata(newest), Anthropic.NotFoundError);
  });

  test('what is refused is the error class of its status', async () => {
    const file = await Anthropic.toFile(Buffer.from('x'), 'x.txt');
    await assert.rejects(
      anthropic.beta.files.upload({ file, expires_in_seconds: 1 }),
      Anthropic.UnprocessableEntityError,
    );
    const legacy = (await service.command('keys', 'create', '--name', 'legacy')).stdout.trim();
    const other = new Anthropic({ baseURL: service.url, authToken: legacy, apiKey: null, maxRetries: 0 });
    await assert.rejects(other.beta.files.upload({ file }), Anthropic.PermissionDeniedError);
  });

  test('in messages: a document and an image by id', async () => {
    const png = pngOf(3, 2);
    const upload = async (bytes: Uint8Array, name: string) =>
      (await anthropic.beta.files.upload({ file: await Anthropic.toFile(bytes, name) })).id;
    const document = await upload(pdfOf(['Page one.']), 'p.pdf');
    const image = await upload(png, 'i.png');
    const answer = await anthropic.beta.messages.create({
      model: 'seeing',
      max_tokens: 100,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'document', source: { type: 'file', file_id: document } },
            { type: 'image', source: { type: 'file', file_id: image } },
            { type: 'text', text: 'Look.' },
          ],
        },
      ],
      betas: ['files-api-2025-04-14'],
    });
    assert.equal(answer.content[0]?.type, 'text');
    const sent = JSON.stringify(contentSent());
    assert.ok(sent.includes('Page one.'), sent);
    assert.ok(sent.includes(png.toString('base64')), sent);
    await assert.rejects(
      anthropic.beta.messages.create({
        model: 'seeing',
        max_tokens: 100,
        messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'file_none' } }] }],
      }),
      Anthropic.BadRequestError,
    );
  });
});

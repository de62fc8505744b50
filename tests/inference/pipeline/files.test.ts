import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';
import { after, test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { PdfTexts } from '../../../src/inference/files/pdf-text.ts';
import { FileParts } from '../../../src/inference/pipeline/request-files.ts';
import type { FilePart } from '../../../src/inference/pipeline/request-files.ts';
import { ImageFetcher } from '../../../src/inference/images/fetcher.ts';
import { dataUri, pngOf } from '../../support/image-files.ts';
import { defaultFetchSettings } from '../../support/image-settings.ts';
import { pdfOf } from '../../support/pdf-files.ts';

const pdfs = new PdfTexts();
after(() => pdfs.close());
/** None is stored: everything here comes with the request. */
const nothing = { find: () => Promise.resolve(undefined), read: () => Promise.resolve(undefined) };
const never = new AbortController().signal;
setMaxListeners(0, never);
const inline = (bytes: Uint8Array): FilePart => ({
  type: 'file',
  fileId: undefined,
  data: dataUri('application/octet-stream', Buffer.from(bytes)),
  filename: 'a',
  at: 'x',
});
const callOf = (accountId: string, signal: AbortSignal = never) => ({
  accountId,
  zdr: false,
  signal,
  fetching: defaultFetchSettings,
  waited: () => {},
  holdBytes: () => undefined,
});

test('few files are read at a time, accounts take turns, and what waits too much is refused', async () => {
  const parts = new FileParts(nothing, pdfs, new ImageFetcher());
  const stopping = new AbortController();
  setMaxListeners(0, stopping.signal);
  const slow = inline(pdfOf(['x'], { bombBytes: 2e8 }));
  const greedy = parts.for(callOf('greedy', stopping.signal));
  await greedy.find(slow);
  const outcomes = Promise.all(Array.from({ length: 100 }, () => greedy.read(slow).catch((error: unknown) => error)));
  const other = parts.for(callOf('other'));
  const [text, pdf] = [inline(Buffer.from('hello')), inline(pdfOf(['mine']))];
  await other.find(text);
  await other.find(pdf);
  assert.deepEqual(await other.read(text), { type: 'text', text: 'Attached file a:\nhello' });
  assert.deepEqual(await other.read(pdf), { type: 'text', text: 'Attached file a:\nmine' });
  stopping.abort('client-left');
  const errors = await outcomes;
  assert.ok(errors.every((error) => error === 'client-left' || error instanceof ApiError));
  assert.ok(errors.some((error) => error instanceof ApiError && error.code === 'backend_at_capacity'));
  // Everything is released.
  const again = parts.for(callOf('greedy'));
  await again.find(text);
  const all = await Promise.all(Array.from({ length: 16 }, () => again.read(text)));
  assert.equal(all.length, 16);
});

test('memory beyond the body is held before it is taken, and a request that finds none is refused', async () => {
  const parts = new FileParts(nothing, pdfs, new ImageFetcher());
  const image = inline(pngOf(30, 20));
  const bytes = pngOf(30, 20).length;
  let held = 0;
  const files = parts.for({ ...callOf('a'), holdBytes: (count) => void (held += count) });
  assert.equal(await files.find(image), 'image');
  assert.equal(held, 0, 'looking takes nothing');
  assert.equal((await files.read(image)).type, 'image');
  assert.equal(held, bytes + Math.ceil(bytes / 3) * 4);
  const full = parts.for({
    ...callOf('a'),
    holdBytes: () => {
      throw new ApiError('backend_at_capacity', 'full');
    },
  });
  await full.find(image);
  await assert.rejects(full.read(image), (error) => error instanceof ApiError && error.code === 'backend_at_capacity');
});

test('a file is looked at before anything of it is decoded: what it is, from its first bytes', () => {
  const files = new FileParts(nothing, pdfs, new ImageFetcher()).for(callOf('a'));
  for (const [bytes, kind] of [
    [pngOf(1, 1), 'image'],
    [Buffer.from('\xff\xd8\xff\xe0', 'latin1'), 'image'],
    [Buffer.from('GIF89a'), 'image'],
    [Buffer.from('RIFF\x00\x00\x00\x00WEBP', 'latin1'), 'image'],
    [Buffer.from('%PDF-1.7'), 'text'],
    [Buffer.from('text'), 'text'],
    [Buffer.alloc(0), 'text'],
  ] as const)
    assert.equal(files.check(inline(bytes)), kind);
});

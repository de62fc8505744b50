import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { readDataUri } from '../../../src/inference/images/data-uri.ts';
import { dataUri, gifOf, jpegOf, jpegSegment, pngOf, webpOf } from '../../support/image-files.ts';

const at = 'messages[0].content[0].image_url.url';
const read = (uri: string, signal = new AbortController().signal) => readDataUri(uri, at, signal);
const png = pngOf(3, 4);

test('§4.2.4(1): data URIs of all four formats are taken as they are', async () => {
  const table: readonly (readonly [string, string, Buffer])[] = [
    ['image/png', 'image/png', pngOf(3, 4)],
    ['IMAGE/PNG', 'image/png', pngOf(3, 4)],
    ['image/png;charset=utf-8', 'image/png', pngOf(3, 4)],
    ['image/jpeg', 'image/jpeg', jpegOf(3, 4)],
    ['image/jpg', 'image/jpeg', jpegOf(3, 4)],
    ['image/gif', 'image/gif', gifOf(3, 4)],
    ['image/webp', 'image/webp', webpOf(3, 4, 'lossless')],
  ];
  for (const [declared, mediaType, bytes] of table) {
    const size = { width: 3, height: 4 };
    assert.deepEqual(await read(dataUri(declared, bytes)), {
      type: 'image',
      mediaType,
      base64: bytes.toString('base64'),
      size,
      at,
    });
  }
});

test('the header is found wherever it stands in the base64, also behind a megabyte of other segments', async () => {
  for (const padding of [0, 1, 2, 3, 1_000, 65_000]) {
    for (const count of [1, 20]) {
      const before = Buffer.concat(new Array<Buffer>(count).fill(jpegSegment(0xe2, Buffer.alloc(padding, 9))));
      const { size } = await read(dataUri('image/jpeg', jpegOf(1_234, 567, { before })));
      assert.deepEqual(size, { width: 1_234, height: 567 });
    }
  }
});

test('§7.2: what is no image in base64 is 400 unsupported_value, and `param` names the field', async () => {
  const base64 = png.toString('base64');
  const uris = [
    'data:',
    'data:,',
    'data:image/png,AAAA',
    'data:image/png;base64',
    'data:image/png;base64,',
    'data:;base64,AAAA',
    'data:text/plain;base64,AAAA',
    `data:image/svg+xml;base64,${Buffer.from('<svg/>').toString('base64')}`,
    `data:text/html;base64,${base64}`,
    `data:image/png;base64,${base64.slice(0, -1)}`,
    `data:image/png;base64,${base64.replace(/^(.{20})./, '$1\n')}`,
    `data:image/png;base64,${base64.replace(/^(.{20})./, '$1 ')}`,
    `data:image/png;base64,${base64.replace(/^(.{20})./, '$1-')}`,
    `data:image/png;base64,${base64.replace(/^(.{20})./, '$1=')}`,
    `data:image/png;base64,${base64.replace(/^(.{20})./, '$1é')}`,
    `data:image/png;base64,${base64}====`,
    'data:image/png;base64,====',
    'data:image/png;base64,AAAA',
    dataUri('image/jpeg', png),
    dataUri('image/png', jpegOf(3, 4)),
    dataUri('image/png', Buffer.from('<!doctype html><title>not an image</title>')),
    dataUri('image/png', pngOf(1_000_000, 1_000_000)),
    `data:${'x'.repeat(1_000_000)}`,
    `data:image/png;${';'.repeat(100_000)}base64,AAAA`,
  ];
  for (const uri of uris) {
    await assert.rejects(read(uri), (error) => {
      assert.ok(error instanceof ApiError, String(error));
      assert.deepEqual([error.code, error.status, error.param], ['unsupported_value', 400, at], uri.slice(0, 60));
      assert.ok(!error.message.includes(base64.slice(0, 8)), 'the message repeats the image');
      return true;
    });
  }
});

test('one character that is not base64 is found wherever it stands, in any of the steps', async () => {
  const base64 = pngOf(3, 4, { pixels: 700_000 }).toString('base64');
  await read(`data:image/png;base64,${base64}`);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: base64.length - 3 }),
      fc.constantFrom('\n', ' ', '-', '_', '=', '\0', 'ä', '!'),
      async (place, character) => {
        const broken = base64.slice(0, place) + character + base64.slice(place + 1);
        await assert.rejects(read(`data:image/png;base64,${broken}`), /base64/);
      },
    ),
    { numRuns: 60 },
  );
});

test('a large image is checked in steps, between which others run and the client may leave', async () => {
  const uri = dataUri('image/png', pngOf(3, 4, { pixels: 4_000_000 }));
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await read(uri);
  isOver = true;
  // One step is 262,144 characters.
  assert.ok(turns >= Math.floor(uri.length / 262_144) - 1, `${turns} turns`);
  const leaving = new AbortController();
  const pending = read(uri, leaving.signal);
  leaving.abort('client-left');
  await assert.rejects(pending, (reason) => reason === 'client-left');
});

test('what is wrong with base64 is said as it is', async () => {
  const lines = pngOf(3, 4, { pixels: 300 }).toString('base64');
  const [one, two] = [1, 2].map((padding) =>
    [0, 1, 2]
      .map((more) => Buffer.concat([pngOf(3, 4), Buffer.alloc(more)]).toString('base64'))
      .find((text) => text.split('=').length - 1 === padding)!,
  );
  const faults: readonly (readonly [base64: string, said: RegExp])[] = [
    [lines.replace(/.{76}/g, '$&\r\n'), /line breaks or blanks/],
    [`${lines}\n`, /line breaks or blanks/],
    [`${lines}\n\n\n\n`, /line breaks or blanks/],
    [encodeURIComponent(one!), /percent-encoded/],
    [one!.replace(/=+$/, ''), /add the padding/],
    [two!.replace(/=+$/, ''), /add the padding/],
    [lines.replace(/^(.{8}).{4}/, '$1-_-_'), /letters of URLs/],
    [lines.replace(/^(.{8}).{4}/, '$1!!!!'), /other characters/],
  ];
  for (const [base64, said] of faults) await assert.rejects(read(`data:image/png;base64,${base64}`), said);
});

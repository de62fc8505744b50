// Alone in its process: it counts the memory of the process.
/** Hostile PDFs harm nobody: each has a process of its own with little memory and time (reliability §3.4). */
import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';
import { after, test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { defaultPdfLimits, PdfTexts, UnreadablePdf } from '../../../src/inference/files/pdf-text.ts';
import { drawsItself, pdfOf } from '../../support/pdf-files.ts';
import { until } from '../../support/service.ts';

/** What a slow machine needs. */
const patient = { ...defaultPdfLimits, timeoutMs: 300_000, waitMsMax: 300_000 };
const pdfs = new PdfTexts(patient);
const small = new PdfTexts({ ...patient, pagesMax: 2, charactersMax: 20 });
after(() => {
  pdfs.close();
  small.close();
});
const never = new AbortController().signal;
const unreadable = (why: RegExp) => (error: unknown) => error instanceof UnreadablePdf && why.test(error.message);

test('the text of each page, in order', async () => {
  assert.equal(await pdfs.read('a', pdfOf(['One', '', 'Three']), never), 'One\n\n\n\nThree');
});

test('nothing but the first line: no page, no text, no failure', async () => {
  for (const text of ['%PDF-1.1', '%PDF-1.7\n', '%PDF-2.0\r\n'])
    assert.equal(await pdfs.read('a', Buffer.from(text), never), '');
});

test('what is damaged, encrypted, too long, or without text is distinguished', async () => {
  const whole = pdfOf(['Some text.']);
  await assert.rejects(
    pdfs.read('a', Buffer.from('%PDF-1.7\njunk that goes on for a while'), never),
    unreadable(/damaged/),
  );
  await assert.rejects(pdfs.read('a', whole.subarray(0, 200), never), unreadable(/damaged/));
  await assert.rejects(pdfs.read('a', pdfOf(['x'], { isEncrypted: true }), never), unreadable(/encrypted/));
  assert.equal(await pdfs.read('a', pdfOf(['', '']), never), '', 'pages without text, as a scan has them');
  await assert.rejects(small.read('a', pdfOf(['a', 'b', 'c']), never), unreadable(/3 pages/));
  await assert.rejects(small.read('a', pdfOf(['a text that is too long for it']), never), unreadable(/characters/));
});

test('a page that inflates to 3 GB ends its own process, and nothing else', async () => {
  const before = process.memoryUsage().rss;
  let peak = 0;
  const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage().rss)), 20);
  try {
    await assert.rejects(pdfs.read('a', pdfOf(['x'], { bombBytes: 3e9 }), never), UnreadablePdf);
  } finally {
    clearInterval(watch);
  }
  assert.ok(peak - before < 400_000_000, `${peak - before} bytes more in this process`);
  assert.equal(pdfs.count, 0);
  assert.equal(await pdfs.read('a', pdfOf(['And on']), never), 'And on');
});

test('one that the machine does not get read in time is ended, and may be tried again', async () => {
  const hasty = new PdfTexts({ ...defaultPdfLimits, timeoutMs: 1 });
  for (let tries = 1; tries <= 2; tries++) {
    await assert.rejects(hasty.read('a', pdfOf(['x']), never), { code: 'backend_at_capacity' });
    assert.equal(hasty.places.begun, tries);
  }
  assert.equal(hasty.count, 0);
});

test('one that takes too much of the processor is ended, and not tried again; its account alone is told so at once', async () => {
  const busy = new PdfTexts({ ...patient, processorSecondsMax: 1 });
  const bomb = drawsItself();
  for (const account of ['a', 'a', 'b']) await assert.rejects(busy.read(account, bomb, never), unreadable(/too long/));
  assert.equal(busy.places.begun, 2);
  assert.equal(await busy.read('a', pdfOf(['Fine']), never), 'Fine');
});

test('the PDFs of one account do not keep those of another waiting', async () => {
  const both = new PdfTexts(patient);
  const leaving = new AbortController();
  setMaxListeners(0, leaving.signal);
  const bombs = Array.from({ length: 20 }, (_, index) =>
    both.read('a', drawsItself(` ${index}`), leaving.signal).catch((error: unknown) => error),
  );
  for (let round = 0; round < 3; round++) {
    const before = both.places.begun;
    assert.equal(await both.read('b', pdfOf([`${round}`]), never), `${round}`);
    const others = both.places.begun - before - 1;
    assert.ok(others <= 1, `${others} of the other account began meanwhile`);
  }
  leaving.abort('client-left');
  const outcomes = await Promise.all(bombs);
  assert.ok(outcomes.some((error) => error instanceof ApiError && error.code === 'backend_at_capacity'));
});

test('a client that leaves takes the process along; those that wait go on, and more than may wait are refused', async () => {
  const narrow = new PdfTexts({ ...patient, childrenMax: 1, waitingMax: 2 });
  const leaving = new AbortController();
  const first = narrow.read('a', pdfOf(['x'], { bombBytes: 3e8 }), leaving.signal);
  const second = narrow.read('a', pdfOf(['second']), never);
  await assert.rejects(narrow.read('a', pdfOf(['third']), never), (error) => {
    return error instanceof ApiError && error.code === 'backend_at_capacity';
  });
  leaving.abort('client-left');
  await assert.rejects(first, (error) => error === 'client-left');
  assert.equal(await second, 'second');
  await until(() => narrow.count === 0, 60_000);
});

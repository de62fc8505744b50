/** What both stores promise of the history of the service. */
import assert from 'node:assert/strict';
import type { Store } from '../../src/app/stores.ts';
import { historySpans, noFigures } from '../../src/store/history-steps.ts';
import type { HistoryRow } from '../../src/store/history-steps.ts';
import type { HistoryRequest } from '../../src/store/repositories/history.ts';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const begin = Math.floor(1_800_000_000_000 / hourMs) * hourMs;

const row = (at: number, changes: Partial<HistoryRow> = {}): HistoryRow => ({
  at,
  model: 'demo',
  backend: '',
  ...noFigures,
  requests: 1,
  ...changes,
});

const times = (...counts: readonly number[]): readonly number[] =>
  noFigures.firstTokens.map((_, index) => counts[index] ?? 0);

export async function keepsHistory({ repositories }: Pick<Store, 'repositories'>): Promise<void> {
  const read = (now: number, more: Partial<HistoryRequest> = {}) =>
    repositories.readHistory({ span: 'hour', by: 'total', now, ...more });
  const shown = async (now: number, more: Partial<HistoryRequest> = {}) =>
    (await read(now, more)).rows.map(({ at, model, backend, requests }) => [
      (at - begin) / minuteMs,
      model,
      backend,
      requests,
    ]);
  const rowsAt = async (span: HistoryRequest['span'], now: number): Promise<number> =>
    (await read(now, { span })).rows.length;
  assert.deepEqual(await read(begin), { since: undefined, rows: [] });

  // Two processes that have seen the same minutes, in another order.
  const one = [
    row(begin, {
      requests: 3,
      refused: 1,
      failed: 1,
      waits: 2,
      waitMs: 30,
      waitLongestMs: 25,
      firstTokens: times(1, 2),
    }),
    row(begin + minuteMs, { requests: 2, model: '' }),
    row(begin, { requests: 2, backend: 'a', answerTokens: 5, answerMs: 7 }),
  ];
  const other = [
    row(begin, { requests: 4, promptTokens: 9, waits: 1, waitMs: 5, waitLongestMs: 10, firstTokens: times(0, 1, 1) }),
    row(begin, { requests: 1, backend: 'b' }),
    row(begin, { requests: 6, backend: 'a' }),
  ];
  const now = begin + 3 * minuteMs;
  await Promise.all([
    repositories.addHistory({ rows: one, now }),
    repositories.addHistory({ rows: other.toReversed(), now }),
  ]);
  const { since, rows } = await read(now);
  assert.equal(since, begin);
  assert.deepEqual(rows[0], {
    ...row(begin, { model: '', requests: 7, refused: 1, failed: 1, promptTokens: 9 }),
    ...{ waits: 3, waitMs: 35, waitLongestMs: 25, firstTokens: times(1, 3, 1) },
  });
  assert.deepEqual(await shown(now), [
    [0, '', '', 7],
    [1, '', '', 2],
  ]);
  assert.deepEqual(await shown(now, { by: 'model' }), [
    [0, 'demo', '', 7],
    [1, '', '', 2],
  ]);
  assert.deepEqual(await shown(now, { by: 'backend' }), [
    [0, 'demo', 'a', 8],
    [0, 'demo', 'b', 1],
  ]);
  assert.deepEqual(await shown(now, { model: 'demo', backend: 'a' }), [[0, '', '', 8]]);
  assert.deepEqual(await shown(now, { model: 'nobody' }), []);
  for (const span of ['day', 'week'] as const) assert.deepEqual(await shown(now, { span }), [[0, '', '', 9]]);
  // The minute that runs, and the one that has just ended, are not shown.
  assert.deepEqual(await shown(begin + minuteMs + 1), []);

  // A batch of several minutes, as after an outage, has one row in the longer steps.
  await repositories.addHistory({ rows: [2, 3, 4].map((minute) => row(begin + minute * minuteMs)), now });
  assert.deepEqual(await shown(begin + 10 * minuteMs, { span: 'week' }), [[0, '', '', 12]]);

  // However long it goes on, a series has a bounded number of rows in each step, and each ends where it is no longer shown.
  const days = 9;
  for (let quarter = 1; quarter <= days * 96; quarter += 8) {
    const batch = Array.from({ length: 8 }, (_, index) => row(begin + (quarter + index) * 15 * minuteMs));
    await repositories.addHistory({ rows: batch, now: begin + (quarter + 8) * 15 * minuteMs });
  }
  const end = begin + days * 24 * hourMs;
  for (const [span, { stepMs, kept }] of Object.entries(historySpans)) {
    const found = await rowsAt(span as HistoryRequest['span'], end + 20 * minuteMs);
    assert.ok(found > 0 && found <= kept + 1, `${span}: ${found} rows`);
    if (stepMs >= 15 * minuteMs) assert.ok(found >= kept - 1, `${span}: ${found} rows`);
  }
  // What is older came before the span, so it begins with the span and not with the first row in it.
  const late = end + 30 * minuteMs;
  assert.ok((await read(late)).since! <= late - 59 * minuteMs);
  await repositories.addHistory({ rows: [], now: end + 8 * 24 * hourMs });
  for (const span of Object.keys(historySpans) as HistoryRequest['span'][])
    assert.deepEqual(await read(end, { span }), { since: undefined, rows: [] });
}

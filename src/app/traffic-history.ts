import { withDeadline } from '../platform/deadline.ts';
import { minuteMs } from '../platform/calendar/time-zone.ts';
import type { Job } from '../platform/jobs/jobs.ts';
import { labelsOf, type BucketFigures, type FamilyFigures, type SeriesFigures } from '../platform/metrics/figures.ts';
import { begunAt, firstTokenBounds, merged, noFigures, others } from '../store/history-steps.ts';
import type { HistoryFigures, HistoryRow } from '../store/history-steps.ts';
import type { Store } from './stores.ts';

export interface TrafficHistoryOptions {
  readonly repositories: Pick<Store['repositories'], 'addHistory'>;
  readonly now: () => number;
  /** The metrics of all processes of this service, counted since its start. */
  readonly figures: () => readonly FamilyFigures[] | Promise<readonly FamilyFigures[]>;
}

/** Models and backends that this service keeps apart in a step; the others are summed. */
const seriesMax = 200;
/** Minutes that wait while the store does not take them; older ones are lost. */
const minutesMax = 60;
const closingMaxMs = 2_000;

/**
 * Keeps what the service does in each minute, from the metrics that it counts anyway: requests know nothing of it. Each service on a database
 * adds what it has done itself.
 */
export class TrafficHistory {
  readonly #options: TrafficHistoryOptions;
  /** The counters as they were read last, by name and labels. */
  #before: Counted = new Map();
  /** Minutes that are not written yet, the oldest first. */
  #minutes: (readonly HistoryRow[])[] = [];
  readonly #series = new KeptSeries();

  constructor(options: TrafficHistoryOptions) {
    this.#options = options;
  }

  /** Runs as each minute ends. */
  get job(): Job {
    const { now } = this.#options;
    return {
      name: 'traffic_history',
      get everyMs() {
        return minuteMs - (now() % minuteMs);
      },
      runs: 'anywhere',
      run: () => this.write(),
    };
  }

  /** Writes what was counted since the last call, as of the minute that it came in. */
  async write(): Promise<void> {
    const { repositories, now, figures } = this.#options;
    const counted = countedIn(await figures());
    // Called a moment after the minute has ended, or, when the service stops, within it.
    const at = begunAt(now() - minuteMs / 2, minuteMs);
    const rows = this.#series.kept(rowsOf(this.#before, counted, at), at);
    this.#before = counted;
    if (rows.length > 0) this.#minutes.push(rows);
    this.#minutes = this.#minutes.slice(-minutesMax);
    const due = this.#minutes;
    // Also without rows: what is older than is shown goes.
    await repositories.addHistory({ rows: due.flat(), now: now() });
    this.#minutes = this.#minutes.filter((minute) => !due.includes(minute));
  }

  /** Writes a last time, within a time: a database that does not answer must not delay the stop. */
  async close(): Promise<void> {
    await withDeadline(
      this.write().catch(() => {}),
      closingMaxMs,
      () => {},
    );
  }
}

/** Which models and backends are kept apart: the first of an hour, the busiest of a minute first. A bound for all rows of a step. */
class KeptSeries {
  readonly #names = new Set<string>();
  #hour = 0;

  kept(rows: readonly HistoryRow[], at: number): readonly HistoryRow[] {
    const hour = begunAt(at, 60 * minuteMs);
    if (hour !== this.#hour) this.#names.clear();
    this.#hour = hour;
    const busiest = rows.toSorted((one, other) => other.requests - one.requests);
    return merged(
      busiest.map((row) => {
        const name = `${row.backend} ${row.model}`;
        if (this.#names.size < seriesMax) this.#names.add(name);
        return this.#names.has(name) ? row : { ...row, model: others, backend: row.backend === '' ? '' : others };
      }),
    );
  }
}

type Counted = ReadonlyMap<string, { readonly name: CountedName; readonly labels: string; readonly value: Value }>;
type Value = SeriesFigures[1];

/** What is read of each metric: labels, and what was counted since the last time. */
const counting = {
  tokenhouse_requests_total: ({ model, ending, code }, count) => [
    model,
    '',
    {
      requests: count,
      refused: ending === 'refused' && code !== '' ? count : 0,
      failed: ending !== 'refused' && code !== '' ? count : 0,
    },
  ],
  tokenhouse_tokens_total: ({ model, kind }, count) => [
    model,
    '',
    { promptTokens: kind === 'prompt' ? count : 0, completionTokens: kind === 'completion' ? count : 0 },
  ],
  tokenhouse_first_token_seconds: ({ model }, _, times) => [model, '', { firstTokens: regrouped(times) }],
  tokenhouse_queue_seconds: ({ model }, _, times) => [model, '', waitsOf(times)],
  tokenhouse_backend_answers_total: ({ model, backend, outcome }, count) => [
    model,
    backend,
    { requests: count, failed: outcome === 'failed' ? count : 0 },
  ],
  tokenhouse_backend_answer_tokens_total: ({ model, backend, kind }, count) => [
    model,
    backend,
    {
      promptTokens: kind === 'prompt' ? count : 0,
      completionTokens: kind === 'completion' ? count : 0,
      answerTokens: kind === 'completion' ? count : 0,
    },
  ],
  tokenhouse_backend_answer_seconds_total: ({ model, backend }, count) => [
    model,
    backend,
    { answerMs: Math.round(count * 1_000) },
  ],
  tokenhouse_backend_first_token_seconds: ({ model, backend }, _, times) => [
    model,
    backend,
    { firstTokens: regrouped(times) },
  ],
} as const satisfies Readonly<Record<string, Counting>>;
type CountedName = keyof typeof counting;

type Counting = (
  labels: Readonly<Record<string, string>>,
  count: number,
  times: BucketFigures,
) => readonly [model: string | undefined, backend: string | undefined, figures: Partial<HistoryFigures>];

function countedIn(families: readonly FamilyFigures[]): Counted {
  const found = new Map<string, { readonly name: CountedName; readonly labels: string; readonly value: Value }>();
  for (const { description, series } of families) {
    if (!(description.name in counting)) continue;
    const name = description.name as CountedName;
    for (const [labels, value] of series) found.set(`${name} ${labels}`, { name, labels, value });
  }
  return found;
}

function rowsOf(before: Counted, counted: Counted, at: number): readonly HistoryRow[] {
  const rows: HistoryRow[] = [];
  for (const [key, { name, labels, value }] of counted) {
    const since = sinceThen(before.get(key)?.value, value);
    if (since === undefined) continue;
    const [count, times] = typeof since === 'number' ? [since, noTimes] : [0, since];
    const read: Counting = counting[name];
    const [model = '', backend = '', figures] = read(Object.fromEntries(labelsOf(labels)), count, times);
    const row = { at, model, backend, ...noFigures, ...figures };
    rows.push(row);
    // The speed of a model's answers is that of its backends.
    const { answerTokens, answerMs } = row;
    if (backend !== '' && answerTokens + answerMs > 0)
      rows.push({ at, model, backend: '', ...noFigures, answerTokens, answerMs });
  }
  return merged(rows);
}

const noTimes: BucketFigures = { bounds: [], counts: [], sum: 0 };

/** What a counter has counted; undefined: nothing, or it is smaller, because its backend was opened anew, and that minute is not known. */
function sinceThen(before: Value | undefined, value: Value): Value | undefined {
  if (typeof value === 'number') {
    const count = value - (typeof before === 'number' ? before : 0);
    return count > 0 ? count : undefined;
  }
  const earlier = typeof before === 'object' ? before : noTimes;
  const counts = value.counts.map((count, index) => count - (earlier.counts[index] ?? 0));
  const isGrown = counts.every((count) => count >= 0) && counts.some((count) => count > 0);
  return isGrown ? { bounds: value.bounds, counts, sum: value.sum - earlier.sum } : undefined;
}

/** In the buckets of the history, of which each bucket of the metrics is a part. */
function regrouped({ bounds, counts }: BucketFigures): readonly number[] {
  const buckets = [...firstTokenBounds, 0].map(() => 0);
  for (const [index, count] of counts.entries()) {
    const endMs = (bounds[index] ?? Infinity) * 1_000;
    const into = firstTokenBounds.findIndex((bound) => endMs <= bound);
    buckets[into === -1 ? firstTokenBounds.length : into]! += count;
  }
  return buckets;
}

function waitsOf({ bounds, counts, sum }: BucketFigures): Partial<HistoryFigures> {
  const longest = counts.findLastIndex((count) => count > 0);
  return {
    waits: counts.reduce((all, count) => all + count, 0),
    waitMs: Math.round(sum * 1_000),
    waitLongestMs: (bounds[longest] ?? bounds.at(-1) ?? 0) * 1_000,
  };
}

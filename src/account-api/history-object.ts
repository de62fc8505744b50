/** What the service has done, over time: for the operator alone. */
import { historySpans, merged, noFigures, others, shownSpan, firstTokenBounds } from '../store/history-steps.ts';
import type { HistoryRow } from '../store/history-steps.ts';
import type { HistoryRequest } from '../store/repositories/history.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import { secondsOf } from './wire.ts';

export const historyGroups = ['total', 'model', 'backend'] as const;

/** Groups that are shown apart, those with the most requests; a service may have hundreds of backends. */
const groupsMax = 20;

export type HistoryObject = ReturnType<typeof historyObject>;

/** The steps of a span since something is known, in their order; of groups, those in which they had something. */
export async function historyOf(
  repositories: Pick<Repositories, 'readHistory'>,
  request: HistoryRequest,
): Promise<readonly HistoryObject[]> {
  const { span, now, by } = request;
  const { stepMs } = historySpans[span];
  const { to } = shownSpan(span, now);
  const { since, rows } = await repositories.readHistory(request);
  const shown = by === 'total' ? withEmpty(rows, since ?? to, to, stepMs) : largest(rows);
  return shown.map((row) => historyObject(row, by, Math.min(row.at + stepMs, to)));
}

function withEmpty(rows: readonly HistoryRow[], from: number, to: number, stepMs: number): readonly HistoryRow[] {
  const found = new Map(rows.map((row) => [row.at, row]));
  const steps = Array.from(
    { length: Math.max(0, Math.ceil((to - from) / stepMs)) },
    (_, index) => from + index * stepMs,
  );
  return steps.map((at) => found.get(at) ?? { at, model: '', backend: '', ...noFigures });
}

function largest(rows: readonly HistoryRow[]): readonly HistoryRow[] {
  const nameOf = ({ model, backend }: HistoryRow): string => JSON.stringify([model, backend]);
  const requests = new Map<string, number>();
  for (const row of rows) requests.set(nameOf(row), (requests.get(nameOf(row)) ?? 0) + row.requests);
  const kept = new Set(
    [...requests]
      .toSorted(([, one], [, other]) => other - one)
      .slice(0, groupsMax)
      .map(([name]) => name),
  );
  return merged(
    rows.map((row) =>
      kept.has(nameOf(row)) ? row : { ...row, model: others, backend: row.backend === '' ? '' : others },
    ),
  );
}

function historyObject(row: HistoryRow, by: HistoryRequest['by'], end: number) {
  const { at, model, backend, waits, waitMs, waitLongestMs, answerTokens, answerMs, firstTokens } = row;
  const perSecond = (count: number, ms: number): number | null => (ms === 0 ? null : rounded((1_000 * count) / ms));
  return {
    object: 'history' as const,
    start_time: secondsOf(at),
    end_time: secondsOf(end),
    model: by === 'total' ? null : model,
    backend: by === 'backend' ? backend : null,
    requests: row.requests,
    refused: row.refused,
    failed: row.failed,
    prompt_tokens: row.promptTokens,
    completion_tokens: row.completionTokens,
    tokens_per_second: perSecond(row.completionTokens, end - at) ?? 0,
    answer_tokens_per_second: perSecond(answerTokens, answerMs),
    first_token_p50_ms: quantile(firstTokens, 0.5),
    first_token_p95_ms: quantile(firstTokens, 0.95),
    waited: waits,
    wait_mean_ms: waits === 0 ? null : Math.round(waitMs / waits),
    wait_longest_ms: waits === 0 ? null : waitLongestMs,
  };
}

const rounded = (value: number): number => Math.round(value * 1_000) / 1_000;

/** As Prometheus estimates it: evenly spread within a bucket, and in the last one its lower end. */
export function quantile(counts: readonly number[], share: number): number | null {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let left = share * all;
  for (const [index, count] of counts.entries()) {
    const [low, high] = [firstTokenBounds[index - 1] ?? 0, firstTokenBounds[index] ?? firstTokenBounds.at(-1)!];
    if (left <= count) return Math.round(low + (high - low) * (left / count));
    left -= count;
  }
  return firstTokenBounds.at(-1)!;
}

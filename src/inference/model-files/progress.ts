import type { FetchProgress } from './meter.ts';

/** Where progress is shown: standard error, or a test. */
export interface ProgressOutput {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  write(text: string): unknown;
}

const lineEveryMs = 10_000;
const barWidth = 20;

/**
 * Shows progress: one line that is redrawn on a terminal, otherwise a line when an activity begins, every ten seconds, and when it ends.
 * Numbers are bytes and never decrease within one stage. Before anything else is printed there, call `end` when it is over, and
 * `hide` when it goes on: the line is then drawn again below.
 */
export function progressDisplay(
  output: ProgressOutput,
  now: () => number = () => performance.now(),
  what = 'model',
): { show(progress: FetchProgress): void; hide(): void; end(): void } {
  let current: FetchProgress | undefined;
  let printed: FetchProgress | undefined;
  let printedAt = -Infinity;
  let drawn = false;
  const print = (progress: FetchProgress) => {
    if (printed !== progress) output.write(`${describe(what, progress)}\n`);
    [printed, printedAt] = [progress, now()];
  };
  const hide = () => {
    if (drawn) output.write('\r\x1b[K');
    drawn = false;
  };
  const end = () => {
    if (drawn) output.write('\n');
    else if (current !== undefined && current.activity === 'downloading') print(current);
    current = printed = undefined;
    drawn = false;
  };
  return {
    show: (progress) => {
      // A check that takes no time is not worth a line.
      if (progress.activity === 'checking' && progress.bytes === 0) return;
      const sameStage = current?.source === progress.source && current.activity === progress.activity;
      if (!sameStage) end();
      current = progress;
      if (output.isTTY === true) {
        output.write(
          `\r${fitted(`${describe(what, progress, lineBar(progress.bytes, progress.total))}`, output.columns ?? 80)}\x1b[K`,
        );
        drawn = true;
      } else if (!sameStage || now() - printedAt >= lineEveryMs) print(progress);
    },
    hide,
    end,
  };
}

const verbs = {
  checking: 'checking',
  waiting: 'waiting for',
  downloading: 'fetching',
  unpacking: 'unpacking',
} as const;

function describe(what: string, progress: FetchProgress, bar = ''): string {
  const { bytes, total, bytesPerSecond, secondsLeft } = progress;
  const amount = total === undefined ? inMegabytes(bytes) : `${inMegabytes(bytes, false)}/${inMegabytes(total)}`;
  const rate = progress.activity === 'downloading' && bytesPerSecond > 0 ? ` ${inMegabytes(bytesPerSecond)}/s` : '';
  const left = rate !== '' && secondsLeft !== undefined && secondsLeft > 0 ? ` ${inTime(secondsLeft)} left` : '';
  return `${what.padEnd(8)} ${bar}${amount}${rate}${left}${progress.resumed ? ' (resumed)' : ''}  ${verbs[progress.activity]} ${progress.source}`;
}

/** A bar with a space behind it; nothing where the whole is unknown. */
export function lineBar(done: number, total: number | undefined): string {
  if (total === undefined || total === 0) return '';
  const filled = Math.floor((Math.min(done, total) / total) * barWidth);
  return `▕${'█'.repeat(filled)}${' '.repeat(barWidth - filled)}▏ `;
}

function inMegabytes(bytes: number, unit = true): string {
  return `${(bytes / 1e6).toFixed(1)}${unit ? ' MB' : ''}`;
}

function inTime(seconds: number): string {
  if (seconds < 90) return `${seconds} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Shortens a line to the terminal's width: a line that wraps cannot be redrawn. */
export function fitted(line: string, columns: number): string {
  const characters = [...line];
  return characters.length < columns ? line : `${characters.slice(0, Math.max(1, columns - 2)).join('')}…`;
}

import type { Log } from '../platform/log.ts';

/** The exit code of a fault in the service itself (EX_SOFTWARE). */
export const crashExitCode = 70;

/** How long running requests may continue after a crash (reliability S10), and how long their last bytes may then take. */
const drainMs = 10_000;
const graceMs = 3_000;

export interface CrashOptions {
  readonly log: Log;
  /** Begins to stop: takes no new work. */
  readonly stop: () => void;
  /** Ends all running requests, each with its error. */
  readonly cut: () => void;
}

export interface CrashWatch {
  readonly happened: boolean;
  /** Called when the stop is complete, or there is nothing left to stop. */
  end(): void;
}

/**
 * Handles uncaught exceptions and rejections (reliability S10): one line in the log, no new work, at most ten seconds for running
 * requests, and the end of the process, because its state can no longer be trusted. A second crash ends it immediately. Nothing is
 * repaired here: a killed process could not do so either (S2), so the next start does all of that.
 */
export function watchForCrashes({ log, stop, cut }: CrashOptions): CrashWatch {
  let happened = false;
  const timers: NodeJS.Timeout[] = [];
  // Unhandled rejections arrive here too; `origin` distinguishes them.
  const onCrash = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin): void => {
    if (happened) process.exit(crashExitCode);
    happened = true;
    log.service({ level: 'error', event: 'crash', detail: { origin, ...nameAndPlace(error) } });
    timers.push(setTimeout(cut, drainMs));
    timers.push(setTimeout(() => process.exit(crashExitCode), drainMs + graceMs));
    stop();
  };
  process.on('uncaughtException', onCrash);
  return {
    get happened() {
      return happened;
    },
    end: () => timers.forEach(clearTimeout),
  };
}

/** The kind of an error and where in our code it was created. Its message may hold client input, so it is left out. */
export function nameAndPlace(error: unknown): { readonly error: string; readonly place: string | null } {
  try {
    if (!(error instanceof Error)) return { error: typeof error, place: null };
    const { name, message, stack = '' } = error;
    const head = message === '' ? name : `${name}: ${message}`;
    const code = 'code' in error && typeof error.code === 'string' && /^[A-Z0-9_]{1,40}$/.test(error.code);
    return {
      error: (/^[A-Za-z]{1,40}$/.test(name) ? name : 'Error') + (code ? ` ${String(error.code)}` : ''),
      // A message may have lines that look like frames.
      place: stack.startsWith(head) ? placeIn(stack.slice(head.length)) : null,
    };
  } catch {
    // A getter of the error itself threw.
    return { error: 'Error', place: null };
  }
}

/** The innermost frame that is ours: `src/inference/pipeline/run.ts:40:5`. */
const placeIn = (frames: string): string | null =>
  /^ {4}at .*[/\\](src[/\\][\w./\\-]+\.[jt]s:\d+:\d+)\)?$/m.exec(frames)?.[1] ?? null;

import { stat, watch, type FSWatcher, type WatchListener } from 'node:fs';
import path from 'node:path';

export interface FileWatch {
  /** Accepts the current file, so that it is not reported. */
  note(): void;
  close(): void;
}

/** A file is read once it has not changed for this long, since it may still be being written. */
const settleMs = 150;
/** Changes that a folder does not report (network file systems, links into other folders) are found by polling. */
const lookEveryMs = 2_000;

/**
 * Calls `onChange` when the file has changed: written in place, replaced by a rename, removed, or created. The folder is watched,
 * because editors replace files; the file is also polled every two seconds, because not every folder reports changes. Does not keep
 * the process alive.
 */
export function watchFile(file: string, onChange: () => void): FileWatch {
  let known: string | undefined;
  let candidate: string | undefined;
  let closed = false;
  let settling: NodeJS.Timeout | undefined;

  const look = (): void => {
    identify(file, (found) => {
      if (closed) return;
      known ??= found;
      if (found === known) {
        candidate = undefined;
        return;
      }
      if (found === candidate) {
        known = found;
        candidate = undefined;
        onChange();
        return;
      }
      candidate = found;
      lookSoon();
    });
  };
  const lookSoon = (): void => {
    clearTimeout(settling);
    settling = setTimeout(look, settleMs).unref();
  };
  const note = (): void =>
    identify(file, (found) => {
      known = found;
      candidate = undefined;
    });

  note();
  const base = path.basename(file);
  // What is written into other files of the folder, such as a log, is no change: a request has a line there, and each would start a timer.
  const folder = watchFolder(path.dirname(file), (kind, name) => {
    if (kind === 'rename' || name === null || name === base) lookSoon();
  });
  const timer = setInterval(look, lookEveryMs).unref();
  return {
    note,
    close: () => {
      closed = true;
      clearTimeout(settling);
      clearInterval(timer);
      folder?.close();
    },
  };
}

function watchFolder(folder: string, onEvent: WatchListener<string>): FSWatcher | undefined {
  try {
    const watcher = watch(folder, { persistent: false }, onEvent);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    // No more watches available, or none on this file system: polling finds it too.
    return undefined;
  }
}

function identify(file: string, found: (identity: string) => void): void {
  stat(file, (error, stats) =>
    found(error === null ? `${stats.dev}:${stats.ino}:${stats.size}:${stats.mtimeMs}:${stats.ctimeMs}` : 'none'),
  );
}

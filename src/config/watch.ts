import { stat, watch, type FSWatcher } from 'node:fs';
import path from 'node:path';

export interface FileWatch {
  /** The file as it is now is known: no need to tell of it. */
  note(): void;
  close(): void;
}

/** A file that is being written is left alone until it has not changed for so long. */
const settleMs = 150;
/** What a folder does not tell (network file systems, links into other folders) is found by looking. */
const lookEveryMs = 2_000;

/**
 * Calls `onChange` when the file has become another one: written in place, replaced by a rename, removed, or made. The
 * folder is watched, because editors replace files; the file is also looked at every two seconds, because not every
 * folder tells. Keeps no process alive.
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
  const folder = watchFolder(path.dirname(file), lookSoon);
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

function watchFolder(folder: string, onEvent: () => void): FSWatcher | undefined {
  try {
    const watcher = watch(folder, { persistent: false }, onEvent);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    // No more watches to be had, or none on this file system: looking finds it too.
    return undefined;
  }
}

function identify(file: string, found: (identity: string) => void): void {
  stat(file, (error, stats) =>
    found(error === null ? `${stats.dev}:${stats.ino}:${stats.size}:${stats.mtimeMs}:${stats.ctimeMs}` : 'none'),
  );
}

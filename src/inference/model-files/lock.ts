import { randomUUID } from 'node:crypto';
import { open, readFile, rm, stat, utimes } from 'node:fs/promises';
import os from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';

/** The exclusive right to write one file, among all processes that see its folder. */
export interface Lock {
  /** Aborts when the lock was lost, for example to another process while this one was stopped. */
  readonly signal: AbortSignal;
  release(): Promise<void>;
}

const heartbeatMs = 1_000;
/** After this long without a sign of life the holder is considered dead, wherever it ran. */
const silentMaxMs = 60_000;
/** A shorter limit for a holder on this computer whose process is gone. */
const deadMaxMs = 3 * heartbeatMs;

/**
 * Waits until the lock file can be created, or the signal aborts. Breaks a lock whose holder died: the holder touches it every second and
 * is looked up by process id. Calls `onWait` about five times a second with the holder's process id.
 */
export async function acquireLock(
  file: string,
  signal: AbortSignal,
  onWait: (pid: number | undefined) => void = () => {},
): Promise<Lock> {
  const token = randomUUID();
  const content = JSON.stringify({ pid: process.pid, host: os.hostname(), token });
  for (;;) {
    signal.throwIfAborted();
    if (await create(file, content)) return held(file, token);
    const holder = await look(file);
    if (holder !== undefined && isDead(holder)) {
      await breakLock(file, holder);
      continue;
    }
    onWait(holder?.pid);
    await pause(200, undefined, { signal });
  }
}

interface Holder {
  readonly pid: number | undefined;
  readonly host: string | undefined;
  readonly token: string | undefined;
  readonly heartbeatAgoMs: number;
}

async function create(file: string, content: string): Promise<boolean> {
  try {
    const handle = await open(file, 'wx');
    try {
      await handle.writeFile(content);
    } finally {
      await handle.close();
    }
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function look(file: string): Promise<Holder | undefined> {
  try {
    const [{ mtimeMs }, text] = await Promise.all([stat(file), readFile(file, 'utf8')]);
    return { ...parse(text), heartbeatAgoMs: Date.now() - mtimeMs };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined; // Released in between.
    throw error;
  }
}

/** Parses a lock file. One that a crash cut off names no owner; it ages like any other. */
function parse(text: string): { pid: number | undefined; host: string | undefined; token: string | undefined } {
  try {
    const { pid, host, token } = JSON.parse(text) as { pid?: number; host?: string; token?: string };
    return { pid, host, token };
  } catch {
    return { pid: undefined, host: undefined, token: undefined };
  }
}

function isDead(holder: Holder): boolean {
  if (holder.heartbeatAgoMs > silentMaxMs) return true;
  return (
    holder.heartbeatAgoMs > deadMaxMs &&
    holder.host === os.hostname() &&
    holder.pid !== undefined &&
    !isRunning(holder.pid)
  );
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Several waiters may find the same dead holder; a second lock lets only one of them remove it, and only if it is still there. */
async function breakLock(file: string, dead: Holder): Promise<void> {
  const breaking = `${file}.breaking`;
  if (!(await create(breaking, ''))) {
    const holder = await look(breaking);
    if (holder !== undefined && holder.heartbeatAgoMs > silentMaxMs) await rm(breaking, { force: true });
    await pause(50);
    return;
  }
  try {
    const now = await look(file);
    if (now !== undefined && now.token === dead.token && isDead(now)) await rm(file, { force: true });
  } finally {
    await rm(breaking, { force: true });
  }
}

function held(file: string, token: string): Lock {
  const lost = new AbortController();
  const heartbeat = setInterval(() => {
    void stillOurs(file, token)
      .then(async (ours) => {
        if (!ours) return lost.abort(new Error('another process took the lock'));
        await utimes(file, new Date(), new Date());
      })
      .catch(() => {}); // The next heartbeat follows a failed one, and notices if the lock is gone.
  }, heartbeatMs);
  heartbeat.unref();
  return {
    signal: lost.signal,
    release: async () => {
      clearInterval(heartbeat);
      if (await stillOurs(file, token)) await rm(file, { force: true });
    },
  };
}

async function stillOurs(file: string, token: string): Promise<boolean> {
  return (await look(file))?.token === token;
}

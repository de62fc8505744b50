import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { withDeadline } from '../../../platform/deadline.ts';
import { statFields } from '../../../platform/process-stat.ts';

/** What is remembered of one server's process, so that it is found again when the service and its guard were killed. */
export interface Owned {
  /** `ended` resolves when it has ended. */
  started(pid: number | undefined, ended: Promise<unknown>): void;
  ended(pid: number | undefined): void;
  /**
   * Resolves when the server has no process: waits that long for one of this service, which may still answer requests of an earlier
   * configuration, and ends one that an earlier service has left behind.
   */
  gone(waitMs: number): Promise<void>;
}

/** Processes of this service by their files, until they have ended. */
export type Running = Map<string, Promise<unknown>>;

/** `file` belongs to this server alone, in all configurations that `running` is shared by. */
export function ownedProcess(file: string, running: Running): Owned {
  return {
    started: (pid, ended) => {
      running.set(file, ended);
      const begun = begunOf(pid);
      if (pid === undefined || begun === undefined) return;
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, `${pid} ${begun}\n`, { mode: 0o600 });
    },
    ended: (pid) => {
      running.delete(file);
      if (readOwned(file)?.pid === pid) forget(file);
    },
    gone: async (waitMs) => {
      await withDeadline(running.get(file) ?? Promise.resolve(), waitMs, () => {});
      const owned = readOwned(file);
      if (owned === undefined) return;
      const isThere = (): boolean => begunOf(owned.pid) === owned.begun;
      for (let turn = 0; isThere() && turn < turnsMax; turn++) {
        killGroup(owned.pid);
        await delay(50);
      }
      forget(file);
    },
  };
}

const turnsMax = 200;

/** A file that stays names a process that is gone. */
function forget(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // The folder cannot be written.
  }
}

function readOwned(file: string): { readonly pid: number; readonly begun: string } | undefined {
  try {
    const [pid, begun = ''] = readFileSync(file, 'utf8').trim().split(' ');
    return /^\d+$/.test(pid ?? '') && Number(pid) > 1 ? { pid: Number(pid), begun } : undefined;
  } catch {
    return undefined;
  }
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It is gone.
  }
}

/**
 * When a process began, in the kernel's words: another process that gets its number later began at another time, also after the computer was
 * started again. `undefined`: it is gone, or this system does not say (elsewhere than on Linux the guard alone ends what is left).
 */
function begunOf(pid: number | undefined): string | undefined {
  try {
    // The state is the first field, the time of the start the twentieth.
    const fields = statFields(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    if (fields[0] === 'Z') return undefined;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}.${fields[19]}`;
  } catch {
    return undefined;
  }
}

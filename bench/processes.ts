import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import os from 'node:os';

/** A program that runs in a session of its own, so that it can be stopped with everything it has started. */
export interface ActiveRequests {
  readonly pid: number;
  readonly child: ChildProcess;
  /** Why it ended, `undefined` while it runs. */
  ended(): string | undefined;
}

export interface StartOptions {
  readonly command: readonly string[];
  /** The core it is kept on; `undefined`: the scheduler's choice. */
  readonly core: number | undefined;
  readonly cwd: string;
  /** Where its output goes. */
  readonly logFile: string;
}

const stopTimeoutMs = 10_000;

/** The programs of this run; none of them outlives it. */
export class Processes {
  readonly #running = new Set<ActiveRequests>();

  constructor() {
    process.once('exit', () => this.#killAll());
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(130));
  }

  start({ command, core, cwd, logFile }: StartOptions): ActiveRequests {
    const [program, ...parameters] = onCore(command, core);
    const log = openSync(logFile, 'a');
    const child = spawn(program!, parameters, { cwd, detached: true, stdio: ['ignore', log, log] });
    closeSync(log);
    if (child.pid === undefined) {
      child.once('error', () => undefined);
      throw new Error(`${program} cannot be started`);
    }
    const running: ActiveRequests = {
      pid: child.pid,
      child,
      ended: () =>
        child.exitCode === null && child.signalCode === null
          ? undefined
          : `ended with ${child.signalCode ?? child.exitCode}`,
    };
    this.#running.add(running);
    child.once('exit', () => this.#running.delete(running));
    raiseSession(child.pid);
    return running;
  }

  /** Asks it to stop, and makes it after ten seconds. */
  async stop(running: ActiveRequests): Promise<void> {
    if (running.ended() !== undefined) return;
    const exit = once(running.child, 'exit');
    process.kill(-running.pid, 'SIGTERM');
    const timer = setTimeout(() => process.kill(-running.pid, 'SIGKILL'), stopTimeoutMs);
    try {
      await exit;
    } finally {
      clearTimeout(timer);
    }
  }

  #killAll(): void {
    for (const { pid } of this.#running) {
      try {
        process.kill(-pid, 'SIGKILL');
      } catch {
        // It has just ended by itself.
      }
    }
  }
}

/** `taskset` replaces itself with the program, so the process keeps its id. */
export const onCore = (command: readonly string[], core: number | undefined): readonly string[] =>
  core === undefined ? command : ['taskset', '-c', String(core), ...command];

/** The cores that this process may use. */
export function allowedCores(): readonly number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0';
  return list.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number);
    return Array.from({ length: last! - first! + 1 }, (_, index) => first! + index);
  });
}

const raisedPriority = -15;

/** Keeps other work on a shared machine out of the figures; what is started later inherits it. false: not allowed. */
export function raisePriority(): boolean {
  try {
    os.setPriority(raisedPriority);
  } catch {
    return false;
  }
  raiseSession('self');
  return true;
}

/** With automatic groups a priority counts only inside its session, so the session is raised too. */
function raiseSession(pid: number | 'self'): void {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(raisedPriority));
  } catch {
    // Not allowed, or a kernel without automatic groups.
  }
}

/** Ticks of the figures in /proc: 100 a second on every Linux that Node runs on. */
const ticksPerSecond = 100;

/** Processor time of a process with all its threads and descendants, those that have ended included. */
export function processorSeconds(pid: number): number {
  let ticks = 0;
  for (const fields of tree(pid).values()) for (const field of fields.slice(11, 15)) ticks += Number(field);
  return ticks / ticksPerSecond;
}

/**
 * Processor time of a process and its descendants, as the scheduler counts it: ticks are too coarse for what hardly works. Without
 * that of threads and processes that have ended.
 */
export function nanosecondsOnCore(pid: number): number {
  let nanoseconds = 0;
  for (const id of tree(pid).keys())
    for (const thread of readdirSync(`/proc/${id}/task`))
      nanoseconds += Number(readProc(`${id}/task/${thread}/schedstat`).split(' ')[0]);
  return nanoseconds;
}

/** Processor time of each thread of a process that still runs, by the thread's id. */
export function threadSeconds(pid: number): ReadonlyMap<string, number> {
  const threads = readdirSync(`/proc/${pid}/task`).map((id): [string, number] => {
    const fields = statFields(readProc(`${pid}/task/${id}/stat`));
    return [id, (Number(fields[11]) + Number(fields[12])) / ticksPerSecond];
  });
  return new Map(threads);
}

/** Memory of a process and its descendants that is in RAM. */
export function residentMegabytes(pid: number): number {
  let kilobytes = 0;
  for (const id of tree(pid).keys()) kilobytes += Number(/^VmRSS:\s*(\d+)/m.exec(readProc(`${id}/status`))?.[1] ?? 0);
  return kilobytes / 1024;
}

/** Seconds in which a core did anything, since the machine started. */
export function coreBusySeconds(core: number): number {
  const fields = new RegExp(`^cpu${core} (.*)$`, 'm').exec(readProc('stat'))?.[1]?.split(' ').map(Number) ?? [];
  const [user = 0, nice = 0, system = 0, _idle, _ioWait, interrupts = 0, softInterrupts = 0, stolen = 0] = fields;
  return (user + nice + system + interrupts + softInterrupts + stolen) / ticksPerSecond;
}

/** A process and its descendants, with the fields of their stat files. */
function tree(root: number): ReadonlyMap<number, readonly string[]> {
  const all = new Map<number, readonly string[]>();
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? readProc(`${name}/stat`) : '';
    if (stat !== '') all.set(Number(name), statFields(stat));
  }
  const members = new Map<number, readonly string[]>();
  const add = (id: number): void => {
    const fields = all.get(id);
    if (fields === undefined) return;
    members.set(id, fields);
    for (const [child, childFields] of all) if (childFields[1] === String(id)) add(child);
  };
  add(root);
  return members;
}

/** What follows the name, which may hold anything: state, parent, …; 11 to 14 are utime, stime, cutime, cstime. */
const statFields = (stat: string): readonly string[] => stat.slice(stat.lastIndexOf(')') + 2).split(' ');

function readProc(path: string): string {
  try {
    return readFileSync(`/proc/${path}`, 'utf8');
  } catch {
    return '';
  }
}

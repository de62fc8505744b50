import { setTimeout as delay } from 'node:timers/promises';
import { RestartBackoff } from '../../../platform/rpc/restart-backoff.ts';
import type { Demand, Engine } from '../engine.ts';
import type { LeaveReason, Occupant, RoomClaim } from '../shared-room.ts';
import { answersOk, freePort } from './free-port.ts';
import { isForeign } from './port-owner.ts';
import { turnMsMin, type GpuRooms, type ServerNeeds } from './gpu-rooms.ts';
import type { Owned } from './owned-processes.ts';
import { ServerProcess, type ServerCommand } from './server-process.ts';

export interface ManagedServerOptions {
  /** What to run at this port. */
  readonly command: (port: number) => ServerCommand;
  /** The path of a page that answers 200 when the model is loaded. */
  readonly healthPath: string;
  /** The engine for the server at this port. */
  readonly open: (port: number) => Engine;
  readonly rooms: GpuRooms;
  readonly needs: ServerNeeds;
  /** What is remembered of its process beyond the end of this one. */
  readonly owned: Owned;
  /** Started with the service; otherwise when it is asked for. */
  readonly startsAtOnce: boolean;
  readonly startTimeoutMs: number;
  /** Stopped after this time without a request; never when left out. */
  readonly idleMs?: number | undefined;
  /** It is put to sleep instead of being stopped: its process stays, without the GPU's memory. */
  readonly sleeps: boolean;
  /** Its output after it was ready may be kept, because what it answers may be retained. */
  readonly keepsOutput: boolean;
  readonly onEvent: (event: ServerEvent) => void;
  /** How often a ready server is looked at, and how often in a row it may not answer. */
  readonly lookMs?: number;
  readonly silentLooksMax?: number;
}

/** One line of the log. `output`: what it wrote before it had any request. */
export type ServerEvent =
  | { readonly event: 'starting'; readonly pid: number | undefined; readonly port: number }
  | { readonly event: 'ready'; readonly pid: number | undefined; readonly port: number; readonly loadMs: number }
  | { readonly event: 'stopped' | 'asleep'; readonly pid: number | undefined; readonly reason: LeaveReason }
  | { readonly event: 'silent'; readonly pid: number | undefined }
  | {
      readonly event: 'failed';
      readonly pid: number | undefined;
      readonly reason: string;
      readonly output: string;
      readonly pauseMs: number;
    };

type State =
  /** It is started when it is asked for. `problem`: how its last process has failed. */
  | { readonly kind: 'stopped'; readonly problem?: string | undefined }
  | { readonly kind: 'starting'; readonly process: ServerProcess | undefined }
  | ({ readonly kind: 'ready'; readonly sinceMs: number } & Running)
  | ({ readonly kind: 'sleeping' } & Running)
  | { readonly kind: 'stopping'; readonly process: ServerProcess | undefined }
  /** It is not started before that time. `isHopeless`: nothing should wait for it. */
  | { readonly kind: 'failed'; readonly problem: string; readonly untilMs: number; readonly isHopeless: boolean }
  | { readonly kind: 'closed' };

interface Running {
  readonly process: ServerProcess;
  readonly port: number;
  readonly engine: Engine;
}

/**
 * Keeps the process of one server: starts it when it is asked for and has its turn, follows its health and its output, starts it again
 * when it has died, after 0.2 s at first and up to a minute when it dies repeatedly, and lets it go when it is idle or others wait.
 *
 * A server that ends twice in a row before it was ready has failed: who waits for it is refused, and it is tried again after the pause.
 */
export class ManagedServer implements Occupant {
  readonly #options: ManagedServerOptions;
  readonly #claim: RoomClaim;
  readonly #backoff = new RestartBackoff({ firstMs: 200, mostMs: 60_000, provenMs: 60_000, provenCounts: 0 });
  readonly #demands = new Set<Demand>();
  /** Set when lines of batches had it started, not requests. */
  #lines: Demand | undefined;
  /** Starts since the service began, those that failed, and how long the last one took. */
  readonly counts = { starts: 0, failures: 0, loadMs: 0 };
  #state: State = { kind: 'stopped' };
  #admits = false;
  #running = 0;
  #timer: NodeJS.Timeout | undefined;
  usedMs = performance.now();

  constructor(options: ManagedServerOptions) {
    this.#options = options;
    this.#claim = options.rooms.register(options.needs, this);
    if (options.startsAtOnce) this.#claim.request();
  }

  get state(): State['kind'] | 'waiting' {
    return this.#state.kind === 'stopped' && this.#claim.isWaiting ? 'waiting' : this.#state.kind;
  }

  /** The engine of a server that takes requests now. */
  get engine(): Engine | undefined {
    return this.#state.kind === 'ready' && this.#admits ? this.#state.engine : undefined;
  }

  get pid(): number | undefined {
    return 'process' in this.#state ? this.#state.process?.pid : undefined;
  }

  /** How it has failed, with the last lines that it wrote; `undefined`: it has not. */
  get problem(): string | undefined {
    return 'problem' in this.#state ? this.#state.problem : undefined;
  }

  /** When it may be started again. */
  get pauseLeftMs(): number {
    return this.#state.kind === 'failed' ? Math.max(0, this.#state.untilMs - performance.now()) : 0;
  }

  /** Returns whether requests may wait for it. */
  summon(demand: Demand): boolean {
    const { kind } = this.#state;
    if (kind === 'closed' || this.engine !== undefined) return false;
    if (this.#state.kind === 'failed' && this.#state.isHopeless) return false;
    this.#demands.add(demand);
    if (kind === 'stopped' || kind === 'sleeping') this.#lines = undefined;
    if (kind !== 'failed') this.#claim.request();
    return true;
  }

  /** Whether it may be started for lines of batches. */
  get isSpare(): boolean {
    return (this.#is('stopped') || this.#is('sleeping')) && this.#claim.isSpare;
  }

  /** The same for a line of a batch: it starts only where that takes the room from nobody, and waits for no pause. */
  summonForLine(demand: Demand): boolean {
    if ((this.#is('stopped') || this.#is('sleeping')) && this.#claim.requestIfSpare()) this.#lines = demand;
    const comes = this.#claim.isWaiting || (this.#admits && this.#is('starting'));
    if (comes) this.#demands.add(demand);
    return comes;
  }

  began(): void {
    this.#running++;
    clearTimeout(this.#timer);
  }

  over(): void {
    this.usedMs = performance.now();
    if (--this.#running > 0) return;
    this.#waitIdle();
    this.#claim.idle();
  }

  async close(): Promise<void> {
    const { process, engine } = { process: undefined, engine: undefined, ...this.#state };
    this.#state = { kind: 'closed' };
    clearTimeout(this.#timer);
    this.#offer();
    await engine?.close();
    await process?.stop(stopGraceMs);
    this.#claim.release();
  }

  // How the room sees it.

  get isPinned(): boolean {
    return false;
  }

  /** Requests that wait while it starts count as its work: otherwise two servers would push each other out forever. */
  get isIdle(): boolean {
    return this.#running === 0 && !(this.#admits && this.isWanted);
  }

  get isWanted(): boolean {
    if (this.#state.kind === 'failed' || this.#state.kind === 'closed') return false;
    for (const demand of this.#demands) if (demand.waiting > 0) return true;
    return false;
  }

  get isUnused(): boolean {
    return !this.#options.startsAtOnce && this.isIdle && performance.now() - this.usedMs >= unusedMs;
  }

  /** Two thirds of the time at least it works, and a third it loads; for lines of batches alone nobody waits longer than they run. */
  get turnMs(): number {
    if (this.#lines?.isRecent === false) return 0;
    return Math.min(turnMsMax, Math.max(turnMsMin, 2 * this.counts.loadMs));
  }

  enter(): void {
    this.#admits = true;
    if (this.#state.kind === 'stopped') void this.#begin();
    else if (this.#state.kind === 'sleeping') void this.#wake(this.#state);
    else if (this.#state.kind === 'ready') this.#offer();
  }

  hold(): void {
    this.#admits = false;
  }

  async leave(reason: LeaveReason): Promise<void> {
    this.#admits = false;
    const state = this.#state;
    if (state.kind !== 'ready' && state.kind !== 'starting') return;
    clearTimeout(this.#timer);
    const { process } = state;
    const pid = process?.pid;
    if (state.kind === 'ready' && this.#options.sleeps && (await this.#posts(state.port, '/sleep?level=1'))) {
      if (this.#state !== state) return;
      this.#state = { ...state, kind: 'sleeping' };
      this.#options.onEvent({ event: 'asleep', pid, reason });
      return;
    }
    if (this.#state !== state) return;
    this.#state = { kind: 'stopping', process };
    await Promise.all([state.kind === 'ready' ? state.engine.close() : undefined, process?.stop(stopGraceMs)]);
    this.#options.onEvent({ event: 'stopped', pid, reason });
    if (this.#is('stopping')) this.#state = { kind: 'stopped' };
  }

  #is(kind: State['kind']): boolean {
    return this.#state.kind === kind;
  }

  /** Without a port, a file or a process it fails like a server that ends. */
  async #begin(): Promise<void> {
    try {
      await this.#start();
    } catch (error) {
      const { process } = { process: undefined, ...this.#state };
      if (!this.#is('starting')) return;
      this.#fail(process, `it cannot be started (${(error as NodeJS.ErrnoException).code ?? (error as Error).name})`);
      process?.kill();
    }
  }

  async #start(): Promise<void> {
    const { command, healthPath, open, owned, startTimeoutMs, onEvent, keepsOutput } = this.#options;
    let state: State = { kind: 'starting', process: undefined };
    this.#state = state;
    // One that an earlier service or configuration has left behind has the memory that this one needs.
    await owned.gone(startTimeoutMs);
    const port = await freePort();
    if (this.#state !== state) return;
    const sinceMs = performance.now();
    const process = new ServerProcess(command(port));
    this.#state = state = { kind: 'starting', process };
    this.counts.starts++;
    onEvent({ event: 'starting', pid: process.pid, port });
    owned.started(process.pid, process.ended);
    void process.ended.then((how) => {
      owned.ended(process.pid);
      this.#ended(process, how);
    });
    const isThere = async (): Promise<boolean> =>
      (await answersOk(`http://127.0.0.1:${port}${healthPath}`, healthTimeoutMs)) &&
      !(await isForeign(port, process.pid));
    while (!(await isThere())) {
      if (this.#state !== state || process.hasEnded) return;
      if (performance.now() - sinceMs > startTimeoutMs) return this.#isLate(process);
      await delay(startLookMs);
    }
    if (this.#state !== state || process.hasEnded) return;
    this.counts.loadMs = Math.round(performance.now() - sinceMs);
    process.wasReady = true;
    if (!keepsOutput) process.keepNoOutput();
    onEvent({ event: 'ready', pid: process.pid, port, loadMs: this.counts.loadMs });
    this.#isReady({ process, port, engine: open(port) });
  }

  #isReady({ process, port, engine }: Running): void {
    const state: State = { kind: 'ready', sinceMs: performance.now(), process, port, engine };
    this.#state = state;
    this.#claim.loaded();
    void this.#watch(state);
    this.#offer();
    this.#waitIdle();
  }

  #isLate(process: ServerProcess): void {
    const seconds = Math.round(this.#options.startTimeoutMs / 1_000);
    this.#fail(process, `it was not ready within ${seconds} s (start_timeout_seconds)`);
    process.kill();
  }

  async #wake(state: Extract<State, { readonly kind: 'sleeping' }>): Promise<void> {
    const sinceMs = performance.now();
    this.#state = { kind: 'starting', process: state.process };
    const wakes = this.#state;
    const isAwake = await this.#posts(state.port, '/wake_up');
    if (this.#state !== wakes) return;
    if (isAwake) {
      this.counts.loadMs = Math.round(performance.now() - sinceMs);
      return this.#isReady(state);
    }
    this.#fail(state.process, 'it did not wake up');
    state.process.kill();
  }

  async #posts(port: number, path: string): Promise<boolean> {
    try {
      const signal = AbortSignal.timeout(this.#options.startTimeoutMs);
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', signal });
      await answer.body?.cancel();
      return answer.ok;
    } catch {
      return false;
    }
  }

  /** A server that does not answer several times in a row is stopped by force: its requests end like those of any server that dies. */
  async #watch(state: Extract<State, { readonly kind: 'ready' }>): Promise<void> {
    const { lookMs = 2_000, silentLooksMax = 4 } = this.#options;
    for (let silent = 0; silent < silentLooksMax;) {
      await delay(lookMs, undefined, { ref: false });
      if (this.#state !== state) return;
      silent = (await state.engine.look?.(true)) === 'silent' ? silent + 1 : 0;
      if (this.#state !== state) return;
    }
    this.#stopSilent(state, 'it did not answer any more, and was stopped');
  }

  /** The server of this engine was found to write nothing any more. */
  hangs(engine: Engine): void {
    const state = this.#state;
    if (state.kind === 'ready' && state.engine === engine)
      this.#stopSilent(state, 'it answered, but wrote nothing any more, and was stopped');
  }

  #stopSilent({ process }: Extract<State, { readonly kind: 'ready' }>, how: string): void {
    this.#options.onEvent({ event: 'silent', pid: process.pid });
    this.#fail(process, how);
    process.kill();
  }

  #ended(process: ServerProcess, how: string): void {
    if (this.#is('stopping') || !('process' in this.#state) || this.#state.process !== process) return;
    this.#fail(process, how);
  }

  #fail(process: ServerProcess | undefined, how: string): void {
    const state = this.#state;
    const wasReady = state.kind === 'ready';
    const pauseMs = this.#backoff.died(wasReady ? performance.now() - state.sinceMs : 0);
    const lines = process?.lastLines ?? [];
    const problem = [how, ...lines].join('\n');
    this.counts.failures++;
    const isHopeless = !wasReady && this.#backoff.deathsInRow >= hopelessAfter;
    this.#state = { kind: 'failed', problem, untilMs: performance.now() + pauseMs, isHopeless };
    // One that has had requests, also before it slept, may have written of them.
    const output = process?.wasReady === true ? '' : lines.join('\n');
    this.#options.onEvent({ event: 'failed', pid: process?.pid, reason: how, output, pauseMs: Math.round(pauseMs) });
    // Its requests end by themselves, by what they read of a server that is gone.
    if ('engine' in state) setTimeout(() => void state.engine.close(), closeMs).unref();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#retry(problem), pauseMs);
    this.#claim.leave();
    this.#offer();
  }

  #retry(problem: string): void {
    if (!this.#is('failed')) return;
    this.#state = { kind: 'stopped', problem };
    if (this.#options.startsAtOnce || this.isWanted) this.#claim.request();
  }

  /** Lets those who wait try again: the server is there, or will not be. */
  #offer(): void {
    const demands = [...this.#demands];
    this.#demands.clear();
    for (const demand of demands) demand.offer();
  }

  #waitIdle(): void {
    const { idleMs } = this.#options;
    if (idleMs === undefined || this.#running > 0 || !this.#is('ready')) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (this.isIdle) this.#claim.leave();
    }, idleMs);
    this.#timer.unref();
  }
}

const turnMsMax = 120_000;
/** As long as arrivals are remembered for the reserve of slots that batches leave. */
const unusedMs = 60_000;
const hopelessAfter = 2;
const stopGraceMs = 10_000;
const startLookMs = 100;
const healthTimeoutMs = 2_000;
/** For what a dead server has written before it died. */
const closeMs = 5_000;

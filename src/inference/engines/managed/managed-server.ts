import { setTimeout as delay } from 'node:timers/promises';
import { RestartBackoff } from '../../../platform/rpc/restart-backoff.ts';
import type { Demand, Engine, ServerMemory } from '../engine.ts';
import type { LeaveReason, Occupant, RoomClaim } from '../shared-room.ts';
import { answersOk, type FreePorts } from './free-port.ts';
import { turnMsMin, type GpuRooms } from './gpu-rooms.ts';
import { heldMemory, type HeldMemory } from './held-memory.ts';
import type { Owned } from './owned-processes.ts';
import { ownerOf } from './port-owner.ts';
import { ServerProcess, type ServerCommand } from './server-process.ts';
import type { ServerShare } from './server-share.ts';
import { WritingCheck } from './writing-check.ts';

export interface ManagedServerOptions {
  /** What to run at this port. */
  readonly command: (port: number) => ServerCommand;
  /** The path of a page that answers 200 when the model is loaded. */
  readonly healthPath: string;
  readonly ports: FreePorts;
  readonly rooms: GpuRooms;
  readonly share: ServerShare;
  /** What the process group of a server holds. */
  readonly measure?: (pid: number) => Promise<HeldMemory | undefined>;
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
  /** Called when no model uses it any more, before it ends. */
  readonly onClosed?: () => void;
  /** How long a server that may hang is given for a few tokens. */
  readonly writingPatienceMs?: number;
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
  /** It holds more of its group than the configuration says. */
  | {
      readonly event: 'exceeds_share';
      readonly pid: number | undefined;
      readonly group: string;
      readonly share: number;
      readonly holds: number;
    }
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
  readonly engines: Map<Open, Engine>;
}

/** The engine of a model for the server at this port. */
export type Open = (port: number) => Engine;

/**
 * Keeps the process of one server: starts it when it is asked for and has its turn, follows its health and its output, starts it again
 * when it has died, after 0.2 s at first and up to a minute when it dies repeatedly, and lets it go when it is idle or others wait.
 *
 * A server that ends twice in a row before it was ready has failed: who waits for it is refused, and it is tried again after the pause.
 */
export class ManagedServer implements Occupant {
  readonly #options: ManagedServerOptions;
  readonly #claim: RoomClaim;
  /** The models that it serves: one, or a base and its adapters. */
  readonly #models = new Set<Open>();
  readonly check: WritingCheck;
  readonly #backoff = new RestartBackoff({ firstMs: 200, mostMs: 60_000, provenMs: 60_000, provenCounts: 0 });
  readonly #demands = new Set<Demand>();
  /** Set when lines of batches had it started, not requests. */
  #lines: Demand | undefined;
  /** Starts since the service began, those that failed, and how long the last one took. */
  readonly counts = { starts: 0, failures: 0, loadMs: 0 };
  #state: State = { kind: 'stopped' };
  #admits = false;
  #running = 0;
  /** Until what it holds was looked at it does not make room: otherwise servers that are asked for in turns would never be seen. */
  #isSeen = true;
  #timer: NodeJS.Timeout | undefined;
  usedMs = performance.now();

  constructor(options: ManagedServerOptions) {
    this.#options = options;
    this.#claim = options.rooms.register(options.share, this);
    this.check = new WritingCheck(options.writingPatienceMs);
    if (options.startsAtOnce) this.#claim.request();
  }

  get state(): State['kind'] | 'waiting' {
    return this.#state.kind === 'stopped' && this.#claim.isWaiting ? 'waiting' : this.#state.kind;
  }

  /** A model is served by it from now on. */
  join(open: Open): void {
    this.#models.add(open);
    if (this.#state.kind === 'ready') this.#state.engines.set(open, open(this.#state.port));
  }

  /** The server of no model ends. */
  async leaveBy(open: Open): Promise<void> {
    this.#models.delete(open);
    if (this.#models.size === 0) return this.close();
    const engines = 'engines' in this.#state ? this.#state.engines : undefined;
    const engine = engines?.get(open);
    engines?.delete(open);
    await engine?.close();
  }

  /** The engine of a model, of a server that takes requests now. */
  engineFor(open: Open): Engine | undefined {
    return this.#state.kind === 'ready' && this.#admits ? this.#state.engines.get(open) : undefined;
  }

  get isServing(): boolean {
    return this.#state.kind === 'ready' && this.#admits;
  }

  get memory(): ServerMemory | undefined {
    return this.#options.share.reading;
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
    if (kind === 'closed' || this.isServing) return false;
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
    this.#claim.settle();
  }

  async close(): Promise<void> {
    const { process, engines } = { process: undefined, engines: undefined, ...this.#state };
    this.#state = { kind: 'closed' };
    clearTimeout(this.#timer);
    this.#options.onClosed?.();
    this.#offer();
    await closeAll(engines);
    await process?.stop(stopGraceMs);
    this.#claim.release();
  }

  // How the room sees it.

  get isPinned(): boolean {
    return false;
  }

  /** Requests that wait while it starts count as its work: otherwise two servers would push each other out forever. */
  get isIdle(): boolean {
    return this.#running === 0 && !(this.#admits && this.isWanted) && this.#isSeen;
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
    await Promise.all([state.kind === 'ready' ? closeAll(state.engines) : undefined, process?.stop(stopGraceMs)]);
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
    const { owned, ports, startTimeoutMs, command } = this.#options;
    const state: State = { kind: 'starting', process: undefined };
    this.#state = state;
    // One that an earlier service or configuration has left behind has the memory that this one needs.
    await owned.gone(startTimeoutMs);
    const port = await ports.take();
    if (this.#state !== state) return ports.release(port);
    const process = new ServerProcess(command(port));
    this.counts.starts++;
    this.#options.onEvent({ event: 'starting', pid: process.pid, port });
    void process.ended.then((how) => {
      ports.release(port);
      owned.ended(process.pid);
      this.#ended(process, how);
    });
    await this.#load(process, port);
  }

  async #load(process: ServerProcess, port: number): Promise<void> {
    const { healthPath, owned, startTimeoutMs, onEvent, keepsOutput } = this.#options;
    const sinceMs = performance.now();
    const state: State = { kind: 'starting', process };
    this.#state = state;
    owned.started(process.pid, process.ended);
    const isThere = async (): Promise<boolean> =>
      (await answersOk(`http://127.0.0.1:${port}${healthPath}`, healthTimeoutMs)) &&
      (await ownerOf(port, process.pid)) !== 'another';
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
    const engines = new Map([...this.#models].map((open) => [open, open(port)]));
    // That of an adapter asks the server first whether it has it.
    const isAsking = (engine: Engine): boolean => engine.status().state === 'starting';
    for (let look = 0; look < askingLooksMax && [...engines.values()].some(isAsking); look++) await delay(startLookMs);
    if (this.#state !== state) return void closeAll(engines);
    this.#isReady({ process, port, engines });
  }

  #isReady({ process, port, engines }: Running): void {
    const state: State = { kind: 'ready', sinceMs: performance.now(), process, port, engines };
    this.#state = state;
    this.#claim.loaded();
    this.#isSeen = this.#options.share.group === undefined;
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
    let silent = 0;
    for (let looks = 0; silent < silentLooksMax; looks++) {
      if (looks % looksPerMeasure === 0 && (await this.#learns(state))) this.#claim.settle();
      await delay(lookMs, undefined, { ref: false });
      if (this.#state !== state) return;
      const [engine] = state.engines.values();
      silent = (await engine?.look?.(true)) === 'silent' ? silent + 1 : 0;
      if (this.#state !== state) return;
    }
    this.#stopSilent(state, 'it did not answer any more, and was stopped');
  }

  /** Returns whether those that wait may fit beside it now, or those that are there not any more. */
  async #learns(state: Running): Promise<boolean> {
    const wasSeen = this.#isSeen;
    const isNew = await this.#measure(state);
    if (this.#state === state) this.#isSeen = true;
    return isNew || !wasSeen;
  }

  async #measure({ process, port }: Running): Promise<boolean> {
    const { share, measure = heldMemory, onEvent } = this.#options;
    const { pid } = process;
    // What listens outside of the group, as a container's proxy does, holds nothing that can be seen here.
    if (share.group === undefined || pid === undefined || (await ownerOf(port, pid)) !== 'server') return false;
    const held = await measure(pid);
    if (held === undefined || process.hasEnded || !share.saw(held)) return false;
    const { declared = 1, exceeds } = share.reading!;
    const holds = Math.round((1_000 * held.bytes) / held.ofBytes) / 1_000;
    if (exceeds) onEvent({ event: 'exceeds_share', pid, group: share.group, share: declared, holds });
    return true;
  }

  /** The server of this engine was found to write nothing any more. */
  hangs(engine: Engine): void {
    const state = this.#state;
    if (state.kind === 'ready' && [...state.engines.values()].includes(engine))
      this.#stopSilent(state, 'it answered, but wrote nothing any more, and was stopped');
  }

  #stopSilent({ process }: Extract<State, { readonly kind: 'ready' }>, how: string): void {
    this.#options.onEvent({ event: 'silent', pid: process.pid });
    this.#fail(process, how);
    process.kill();
  }

  #ended(process: ServerProcess, how: string): void {
    if (this.#is('stopping') || !('process' in this.#state) || this.#state.process !== process) return;
    if ((!process.wasReady || process.wasKilled) && !this.#claim.isAlone) this.#options.share.failedBesideOthers();
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
    if ('engines' in state) setTimeout(() => void closeAll(state.engines), closeMs).unref();
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

const closeAll = (engines: Running['engines'] | undefined): Promise<unknown> =>
  Promise.all([...(engines?.values() ?? [])].map((engine) => engine.close()));

const turnMsMax = 120_000;
/** Every 30 s: nvidia-smi takes up to a second. */
const looksPerMeasure = 15;
/** As long as arrivals are remembered for the reserve of slots that batches leave. */
const unusedMs = 60_000;
const hopelessAfter = 2;
const stopGraceMs = 10_000;
const startLookMs = 100;
const askingLooksMax = 50;
const healthTimeoutMs = 2_000;
/** For what a dead server has written before it died. */
const closeMs = 5_000;

import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { deferred } from '../../../platform/deferred.ts';
import { entryUrl } from '../../../platform/entries.ts';
import { RpcError } from '../../../platform/rpc/failure.ts';
import { RestartBackoff } from '../../../platform/rpc/restart-backoff.ts';
import { Rpc, type Handlers } from '../../../platform/rpc/rpc.ts';
import { ProcessTransport } from '../../../platform/rpc/transport.ts';
import type { LeaveReason } from '../shared-room.ts';
import type { GpuKind } from './compute.ts';
import { engineEnvironment } from './gpu-search.ts';
import type { ChildCalls, ChildMeasure, HostCalls, LoadOptions, ModelFacts } from './protocol.ts';

export type ChildConnection = Rpc<ChildCalls, HostCalls>;

export type ChildState =
  | { readonly state: 'starting'; readonly detail: string }
  /** With a detail: the model is unloaded, and loaded again for the next request. */
  | { readonly state: 'ready'; readonly detail?: string }
  | { readonly state: 'down'; readonly detail: string };

/** Events of a child; no field holds content. */
export type ChildEvent =
  | {
      readonly event: 'ready';
      readonly pid: number | undefined;
      readonly loadMs: number;
      readonly slots: number;
      readonly contextLength: number;
      readonly removesDefaultSystem: boolean;
      readonly gpu: GpuKind | 'none';
      readonly gpuLayers: number;
    }
  | { readonly event: 'lost'; readonly pid: number | undefined; readonly reason: string; readonly restartMs: number }
  | { readonly event: 'unresponsive'; readonly pid: number | undefined; readonly silentMs: number }
  | {
      readonly event: 'unloaded';
      readonly pid: number | undefined;
      readonly reason: LeaveReason;
      readonly idleMs: number;
    }
  | { readonly event: 'recycled'; readonly pid: number | undefined; readonly rssBytes: number }
  | { readonly event: 'failed'; readonly reason: string };

export interface SupervisorOptions {
  /** Returns the options for the next child. */
  readonly load: () => LoadOptions;
  /** The service's environment variables that are passed on (`gpuVariablesIn`). */
  readonly variables: Readonly<Record<string, string>>;
  /** A ready child that has been silent for this long is killed. */
  readonly silenceMs: number;
  readonly loadTimeoutMs: number;
  /** An idle child that has worked and uses more memory than this is replaced. */
  readonly rssBytesMax: number;
  /** A child that has been idle for this long is reported (`onIdle`). */
  readonly idleUnloadMs: number | undefined;
  readonly isIdle: () => boolean;
  readonly handlers: Handlers<HostCalls>;
  readonly onReady: (facts: ModelFacts) => void;
  /** Called when a child died. `true`: the next one will be loaded differently, so that this death says nothing about it. */
  readonly retreat: (how: Pick<Loss, 'loaded'> & { readonly reason: string }) => boolean;
  /** The child and all its work are gone. Called before any event of the next child. */
  readonly onLost: (how: Loss) => void;
  /** The child has been idle for the maximum time. */
  readonly onIdle: () => void;
  /** Reports the memory of a child that responds. */
  readonly onMeasured: (measure: ChildMeasure) => void;
  readonly onEvent: (event: ChildEvent) => void;
}

export interface Loss {
  /** Whether it was ready for work. */
  readonly loaded: boolean;
  /** Whether the next one would probably fail too, so that nothing should wait for it. */
  readonly isHopeless: boolean;
}

/**
 * Keeps one engine child alive (reliability E1, E2): starts it, loads the model, checks every second whether it still responds, and
 * restarts it when it dies, after 0.2 s at first and up to 30 s when it dies repeatedly.
 *
 * Before `start` there is no child. A child may be let go (`unload`), because it is not needed or has to make room, or be replaced because
 * it has grown too large. That does not count as a death.
 *
 * A child that reports before it was ever ready that it cannot use the model has failed for good: retrying cannot fix a bad file. So has
 * one that dies five times before it was ever ready.
 */
export class Supervisor {
  readonly #options: SupervisorOptions;
  /** The current child, or the last one until its successor starts; `undefined` while the model is unloaded. */
  #child: Child | undefined;
  /** Children that were let go and have not exited yet. */
  readonly #leaving = new Set<ChildProcess>();
  /** The connection to the current child, or the last one: then it is closed. */
  #rpc!: ChildConnection;
  #state: ChildState = { state: 'starting', detail: 'The engine is loading the model.' };
  /** `proven`: a child was ready once, so the model is usable. */
  #life: 'unproven' | 'proven' | 'closed' = 'unproven';
  readonly #backoff = new RestartBackoff(restarts);
  #restart: NodeJS.Timeout | undefined;
  readonly #firstReady = deferred();

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /** Settles with the first ready child, or rejects if there will be none. */
  get ready(): Promise<void> {
    return this.#firstReady.promise;
  }

  get state(): ChildState {
    return this.#state;
  }

  get pid(): number | undefined {
    return this.#child?.process.pid;
  }

  /** Whether a child is ready for work. */
  get isLoaded(): boolean {
    return this.#child?.phase.kind === 'ready';
  }

  /** Loads the model, unless it is already loaded or loading. */
  start(): void {
    if (this.#life === 'closed' || this.#child !== undefined) return;
    if (this.#life === 'proven')
      this.#state = { state: 'ready', detail: 'The model was unloaded and is being reloaded.' };
    this.#start();
  }

  /** Resolves when the model has left memory. */
  async unload(reason: LeaveReason): Promise<void> {
    clearTimeout(this.#restart);
    if (this.#child !== undefined) {
      const { process, usedMs } = this.#child;
      const idleMs = Math.round(performance.now() - usedMs);
      this.#options.onEvent({ event: 'unloaded', pid: process.pid, reason, idleMs });
      this.#letGo(this.#child, 'The model is unloaded; the next request reloads it.');
    }
    await Promise.all([...this.#leaving].map(ended));
  }

  /** Returns the connection to the child, for work. A child that has just died drops the work; `onLost` reports that. */
  forWork(): ChildConnection {
    if (this.#child !== undefined) {
      this.#child.usedMs = performance.now();
      this.#child.worked = true;
    }
    return this.#rpc;
  }

  /** Asks the child for a report; an unloaded child is not asked, and a lost one does not answer. */
  async measure(): Promise<ChildMeasure> {
    const nothing = { rssBytes: 0, working: 0 };
    if (this.#child?.phase.kind !== 'ready') return nothing;
    return await this.#rpc.call('ping', null).catch(() => nothing);
  }

  async close(): Promise<void> {
    if (this.#life !== 'closed') {
      this.#life = 'closed';
      this.#state = { state: 'down', detail: 'The engine is closed.' };
      clearTimeout(this.#restart);
      clearInterval(this.#child?.heartbeat);
      this.#firstReady.reject(new Error('The engine was closed before it was ready.'));
    }
    const children = this.#child === undefined ? [...this.#leaving] : [this.#child.process, ...this.#leaving];
    await Promise.all(children.map(ended));
  }

  /** Ends a child without reporting a loss. */
  #letGo({ process, heartbeat }: Child, detail: string): void {
    clearInterval(heartbeat);
    this.#child = undefined;
    this.#state = { state: 'ready', detail };
    this.#rpc.close();
    this.#leaving.add(process);
    void ended(process).then(() => this.#leaving.delete(process));
  }

  #start(): void {
    // No flags of this process (the package forks a self-test that inherits them), only the environment variables that GPU drivers need
    // (the rest holds secrets), and no output (libraries print prompts).
    const process = fork(fileURLToPath(entryUrl('llama-child')), [], {
      execArgv: [],
      env: engineEnvironment(this.#options.variables),
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const nowMs = performance.now();
    const child: Child = {
      process,
      phase: { kind: 'loading' },
      startedMs: nowMs,
      silentSinceMs: nowMs,
      tickMs: nowMs,
      usedMs: nowMs,
      worked: false,
      heartbeat: setInterval(() => this.#checkHeartbeat(child), heartbeatMs),
    };
    this.#child = child;
    const onLost = (reason: string) => {
      // A child that was let go is not a loss.
      if (child === this.#child && child.phase.kind !== 'lost') this.#lost(child, reason);
    };
    process.on('error', (error) => {
      // The spawn failed: there will be no exit event.
      if (process.pid === undefined) onLost(error.message);
    });
    process.on('exit', (code, signal) =>
      onLost(signal === null ? `it exited with code ${code}` : `it ended by ${signal}`),
    );
    // When the child is killed from outside, the channel may close first: its work is lost already.
    process.on('disconnect', () => process.kill('SIGKILL'));
    const rpc = new Rpc<ChildCalls, HostCalls>(new ProcessTransport(process), {
      handlers: this.#options.handlers,
      onBroken: () => process.kill('SIGKILL'),
    });
    this.#rpc = rpc;
    const load = this.#options.load();
    rpc.call('load', load).then(
      (facts) => this.#isReady(child, facts, load),
      (error: Error) => {
        // The child died, which its exit reports.
        if (error instanceof RpcError || !this.#isCurrent(child)) return;
        child.phase = { kind: 'unusable', reason: error.message };
        process.kill('SIGKILL');
      },
    );
  }

  #isCurrent(child: Child): boolean {
    return child === this.#child && this.#life !== 'closed';
  }

  #isReady(child: Child, facts: ModelFacts, { gpu }: LoadOptions): void {
    if (!this.#isCurrent(child)) return;
    const nowMs = performance.now();
    child.usedMs = nowMs;
    child.phase = { kind: 'ready', sinceMs: nowMs };
    this.#life = 'proven';
    this.#state = { state: 'ready' };
    const { slots, contextLength, removesDefaultSystem } = facts;
    const { pid } = child.process;
    const loadMs = Math.round(nowMs - child.startedMs);
    const computed = gpu === false ? { gpu: 'none' as const, gpuLayers: 0 } : { gpu: gpu.kind, gpuLayers: gpu.layers };
    this.#options.onEvent({ event: 'ready', pid, loadMs, slots, contextLength, removesDefaultSystem, ...computed });
    this.#firstReady.resolve();
    this.#options.onReady(facts);
  }

  #checkHeartbeat(child: Child): void {
    const { silenceMs, loadTimeoutMs, idleUnloadMs = Infinity, isIdle, onEvent } = this.#options;
    const { pid } = child.process;
    const nowMs = performance.now();
    // If this process itself was suspended, its silence is not the child's fault.
    if (nowMs - child.tickMs > heartbeatMs * 3) child.silentSinceMs = nowMs;
    child.tickMs = nowMs;
    if (!isIdle()) child.usedMs = nowMs;
    const loaded = child.phase.kind === 'ready';
    const silentMs = nowMs - Math.max(child.silentSinceMs, this.#rpc.heardMs);
    const allowedMs = loaded ? silenceMs : Math.max(silenceMs, loadingSilenceMs);
    if (silentMs > allowedMs || (!loaded && nowMs - child.startedMs > loadTimeoutMs)) {
      onEvent({ event: 'unresponsive', pid, silentMs: Math.round(silentMs) });
      child.process.kill('SIGKILL');
    } else if (loaded && nowMs - child.usedMs >= idleUnloadMs) {
      this.#options.onIdle();
    } else
      this.#rpc.call('ping', null).then(
        (measure) => {
          if (this.#isCurrent(child)) this.#options.onMeasured(measure);
          this.#recycleWhenLarge(child, measure.rssBytes);
        },
        () => {}, // the child died
      );
  }

  #recycleWhenLarge(child: Child, rssBytes: number): void {
    const { rssBytesMax, isIdle, onEvent } = this.#options;
    // A child that is large before it has worked would be just as large next time.
    if (
      !this.#isCurrent(child) ||
      child.phase.kind !== 'ready' ||
      !child.worked ||
      rssBytes <= rssBytesMax ||
      !isIdle()
    )
      return;
    onEvent({ event: 'recycled', pid: child.process.pid, rssBytes });
    this.#letGo(child, 'The engine is restarted because its memory has grown.');
    this.#start();
  }

  #lost(child: Child, how: string): void {
    clearInterval(child.heartbeat);
    const { phase, process } = child;
    child.phase = { kind: 'lost' };
    const reason = phase.kind === 'unusable' ? phase.reason : how;
    const loaded = phase.kind === 'ready';
    this.#rpc.close();
    if (process.connected) process.disconnect();
    if (this.#life === 'closed') {
      this.#options.onLost({ loaded, isHopeless: true });
      return;
    }
    const pauseMs = this.#backoff.died(phase.kind === 'ready' ? performance.now() - phase.sinceMs : 0);
    const proven = this.#life === 'proven';
    const isChanged = this.#options.retreat({ loaded, reason });
    if (!isChanged && !proven && (phase.kind === 'unusable' || this.#backoff.deathsInRow >= firstDeathsMax)) {
      this.#failForGood(reason);
      this.#options.onLost({ loaded, isHopeless: true });
      return;
    }
    const restartMs = Math.round(pauseMs * (0.8 + Math.random() * 0.4));
    this.#state = proven
      ? { state: 'down', detail: `The engine stopped (${reason}) and is restarting.` }
      : { state: 'starting', detail: `The engine stopped while it loaded the model (${reason}) and is restarting.` };
    this.#options.onEvent({ event: 'lost', pid: process.pid, reason, restartMs });
    this.#restart = setTimeout(() => this.#start(), restartMs);
    const isHopeless = phase.kind === 'unusable' || this.#backoff.deathsInRow >= firstDeathsMax;
    this.#options.onLost({ loaded, isHopeless: isHopeless && !isChanged });
  }

  #failForGood(reason: string): void {
    this.#state = { state: 'down', detail: `The model cannot be used: ${reason}` };
    this.#options.onEvent({ event: 'failed', reason });
    this.#firstReady.reject(new Error(reason));
  }
}

/** One process, from its start until it is lost or let go. */
interface Child {
  readonly process: ChildProcess;
  phase:
    | { readonly kind: 'loading' }
    /** The child can work. */
    | { readonly kind: 'ready'; readonly sinceMs: number }
    /** The child has reported that it cannot use the model, and is killed. */
    | { readonly kind: 'unusable'; readonly reason: string }
    | { readonly kind: 'lost' };
  readonly startedMs: number;
  /** Silence is measured from here, or from when the child was last heard. */
  silentSinceMs: number;
  tickMs: number;
  /** When it last had something to do. */
  usedMs: number;
  worked: boolean;
  readonly heartbeat: NodeJS.Timeout;
}

const heartbeatMs = 1000;
/** Importing the package and reading the vocabulary block the child for moments, which are long on a busy machine. */
const loadingSilenceMs = 30_000;
/** A child that was ready for a minute has proved itself: its next death counts as the first. */
const restarts = { firstMs: 200, mostMs: 30_000, provenMs: 60_000, provenCounts: 1 } as const;
const firstDeathsMax = 5;

/** Kills a child and waits for its exit. It holds nothing that a kill could lose. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await gone;
}

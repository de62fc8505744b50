import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { deferred } from '../../../platform/deferred.ts';
import { entryUrl } from '../../../platform/entries.ts';
import { RpcError } from '../../../platform/rpc/failure.ts';
import { RestartPace } from '../../../platform/rpc/restart-pace.ts';
import { Rpc, type Handlers } from '../../../platform/rpc/rpc.ts';
import { ProcessTransport } from '../../../platform/rpc/transport.ts';
import type { ChildCalls, ChildMeasure, HostCalls, LoadOptions, ModelFacts } from './protocol.ts';

export type ChildConnection = Rpc<ChildCalls, HostCalls>;

export type ChildState =
  | { readonly state: 'starting'; readonly detail: string }
  /** With a detail: unloaded, and loaded again for the next request. */
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
    }
  | { readonly event: 'lost'; readonly pid: number | undefined; readonly reason: string; readonly restartMs: number }
  | { readonly event: 'unresponsive'; readonly pid: number | undefined; readonly silentMs: number }
  | { readonly event: 'unloaded'; readonly pid: number | undefined; readonly idleMs: number }
  | { readonly event: 'recycled'; readonly pid: number | undefined; readonly rssBytes: number }
  | { readonly event: 'failed'; readonly reason: string };

export interface SupervisorOptions {
  readonly load: LoadOptions;
  /** A ready child that has been silent for this long is killed. */
  readonly silenceMs: number;
  readonly loadTimeoutMs: number;
  /** An idle child that has worked and has grown beyond this is replaced. */
  readonly rssBytesMax: number;
  /** A child that has been idle for this long is ended, and started again for the next message. */
  readonly idleUnloadMs: number | undefined;
  readonly isIdle: () => boolean;
  readonly handlers: Handlers<HostCalls>;
  readonly onReady: (facts: ModelFacts) => void;
  /** The child is gone, with all its work; `loaded` when it could work. Called before any event of the next child. */
  readonly onLost: (how: { readonly loaded: boolean }) => void;
  readonly onEvent: (event: ChildEvent) => void;
}

/**
 * Keeps one engine child alive (reliability E1, E2): starts it, loads the model, asks every second whether it still answers,
 * and starts it again when it dies, after 0.2 s at first and up to 30 s when it dies again and again.
 *
 * An idle child may be let go, because it is not needed or has grown too large. That does not count as a death: the engine stays
 * ready, and messages go to the next child, whose channel keeps them until the model is loaded.
 *
 * A child that reports before it was ever ready that it cannot use the model has failed for good: a file does not heal. So has
 * one that dies five times before it was ever ready.
 */
export class Supervisor {
  readonly #options: SupervisorOptions;
  /** `undefined` while it is unloaded. */
  #process: ChildProcess | undefined;
  /** Children that were let go and have not exited yet. */
  readonly #leaving = new Set<ChildProcess>();
  /** To the present child, or the last one: then it is closed. */
  #rpc!: ChildConnection;
  #state: ChildState = { state: 'starting', detail: 'The engine is loading the model.' };
  /** Whether the present child can work. */
  #loaded = false;
  #everReady = false;
  readonly #pace = new RestartPace(restarts);
  #startedMs = 0;
  #readyMs = 0;
  /** Silence counts from here, or from when the child was last heard. */
  #silentSinceMs = 0;
  #tickMs = 0;
  /** When it last had something to do. */
  #usedMs = 0;
  #worked = false;
  #unusable: string | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #restart: NodeJS.Timeout | undefined;
  #closed = false;
  readonly #firstReady = deferred();

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#start();
  }

  /** Settles with the first ready child, or rejects when there will be none. */
  get ready(): Promise<void> {
    return this.#firstReady.promise;
  }

  get state(): ChildState {
    return this.#state;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /**
   * The connection to the child, for work: starts one when the model is unloaded. A child that just died drops it; `onLost` reports
   * that.
   */
  forWork(): ChildConnection {
    if (this.#closed) return this.#rpc;
    this.#usedMs = performance.now();
    this.#worked = true;
    if (this.#process === undefined) {
      this.#state = { state: 'ready', detail: 'The model was unloaded and is being reloaded.' };
      this.#start();
    }
    return this.#rpc;
  }

  /** Asks the child now; an unloaded child is not asked, and a lost one has no answer. */
  async measure(): Promise<ChildMeasure> {
    const nothing = { rssBytes: 0, working: 0 };
    if (!this.#loaded) return nothing;
    return await this.#rpc.call('ping', null).catch(() => nothing);
  }

  async close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true;
      this.#state = { state: 'down', detail: 'The engine is closed.' };
      clearTimeout(this.#restart);
      this.#firstReady.reject(new Error('The engine was closed before it was ready.'));
    }
    const children = this.#process === undefined ? [...this.#leaving] : [this.#process, ...this.#leaving];
    await Promise.all(children.map(ended));
  }

  /** Ends an idle child without anyone noticing. */
  #letGo(child: ChildProcess, detail: string): void {
    clearInterval(this.#heartbeat);
    this.#process = undefined;
    this.#loaded = false;
    this.#state = { state: 'ready', detail };
    this.#rpc.close();
    this.#leaving.add(child);
    void ended(child).then(() => this.#leaving.delete(child));
  }

  #start(): void {
    this.#startedMs = this.#silentSinceMs = this.#tickMs = this.#usedMs = performance.now();
    this.#unusable = undefined;
    this.#loaded = false;
    this.#worked = false;
    // No flags of ours (the package forks a self-test that inherits them), no environment (it holds secrets), no output
    // (libraries print prompts).
    const child = fork(fileURLToPath(entryUrl('llama-child')), [], {
      execArgv: [],
      env: {},
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    this.#process = child;
    let lost = false;
    const onLost = (reason: string) => {
      if (lost) return;
      lost = true;
      // A child that was let go is not a loss.
      if (child === this.#process) this.#lost(child, reason);
    };
    child.on('error', (error) => {
      // The spawn failed: there will be no exit event.
      if (child.pid === undefined) onLost(error.message);
    });
    child.on('exit', (code, signal) =>
      onLost(signal === null ? `it exited with code ${code}` : `it ended by ${signal}`),
    );
    // When someone kills it, the channel may close first: its work is lost already.
    child.on('disconnect', () => child.kill('SIGKILL'));
    const rpc = new Rpc<ChildCalls, HostCalls>(new ProcessTransport(child), {
      handlers: this.#options.handlers,
      onBroken: () => child.kill('SIGKILL'),
    });
    this.#rpc = rpc;
    rpc.call('load', this.#options.load).then(
      (facts) => this.#isReady(child, facts),
      (error: Error) => {
        // It has died, which is reported as its end.
        if (error instanceof RpcError || child !== this.#process || this.#closed) return;
        this.#unusable = error.message;
        child.kill('SIGKILL');
      },
    );
    this.#heartbeat = setInterval(() => this.#checkHeartbeat(child), heartbeatMs);
  }

  #isReady(child: ChildProcess, facts: ModelFacts): void {
    if (child !== this.#process || this.#closed) return;
    this.#readyMs = this.#usedMs = performance.now();
    this.#everReady = true;
    this.#loaded = true;
    this.#state = { state: 'ready' };
    const { slots, contextLength, removesDefaultSystem } = facts;
    const loadMs = Math.round(this.#readyMs - this.#startedMs);
    this.#options.onEvent({ event: 'ready', pid: child.pid, loadMs, slots, contextLength, removesDefaultSystem });
    this.#firstReady.resolve();
    this.#options.onReady(facts);
  }

  #checkHeartbeat(child: ChildProcess): void {
    const nowMs = performance.now();
    // If this process itself was suspended, its silence is not the child's fault.
    if (nowMs - this.#tickMs > heartbeatMs * 3) this.#silentSinceMs = nowMs;
    this.#tickMs = nowMs;
    if (!this.#options.isIdle()) this.#usedMs = nowMs;
    const silentMs = nowMs - Math.max(this.#silentSinceMs, this.#rpc.heardMs);
    const allowedMs = this.#loaded ? this.#options.silenceMs : Math.max(this.#options.silenceMs, loadingSilenceMs);
    if (silentMs > allowedMs || (!this.#loaded && nowMs - this.#startedMs > this.#options.loadTimeoutMs)) {
      this.#options.onEvent({ event: 'unresponsive', pid: child.pid, silentMs: Math.round(silentMs) });
      child.kill('SIGKILL');
    } else if (this.#loaded && nowMs - this.#usedMs >= (this.#options.idleUnloadMs ?? Infinity)) {
      this.#options.onEvent({ event: 'unloaded', pid: child.pid, idleMs: Math.round(nowMs - this.#usedMs) });
      this.#letGo(child, 'The model is unloaded; the next request reloads it.');
    } else
      this.#rpc.call('ping', null).then(
        ({ rssBytes }) => this.#recycleWhenLarge(child, rssBytes),
        () => {}, // it has died
      );
  }

  #recycleWhenLarge(child: ChildProcess, rssBytes: number): void {
    // A child that is large before it has worked would not be smaller the next time.
    if (
      child !== this.#process ||
      !this.#loaded ||
      !this.#worked ||
      rssBytes <= this.#options.rssBytesMax ||
      !this.#options.isIdle()
    )
      return;
    this.#options.onEvent({ event: 'recycled', pid: child.pid, rssBytes });
    this.#letGo(child, 'The engine is restarted because its memory has grown.');
    this.#start();
  }

  #lost(child: ChildProcess, how: string): void {
    clearInterval(this.#heartbeat);
    const reason = this.#unusable ?? how;
    const loaded = this.#loaded;
    this.#loaded = false;
    this.#rpc.close();
    if (child.connected) child.disconnect();
    if (this.#closed) {
      this.#options.onLost({ loaded });
      return;
    }
    const pauseMs = this.#pace.died(loaded ? performance.now() - this.#readyMs : 0);
    if (!this.#everReady && (this.#unusable !== undefined || this.#pace.deathsInRow >= firstDeathsMax)) {
      this.#failForGood(reason);
      this.#options.onLost({ loaded });
      return;
    }
    const restartMs = Math.round(pauseMs * (0.8 + Math.random() * 0.4));
    this.#state = this.#everReady
      ? { state: 'down', detail: `The engine stopped (${reason}) and is restarting.` }
      : { state: 'starting', detail: `The engine stopped while it loaded the model (${reason}) and is restarting.` };
    this.#options.onEvent({ event: 'lost', pid: child.pid, reason, restartMs });
    this.#restart = setTimeout(() => this.#start(), restartMs);
    this.#options.onLost({ loaded });
  }

  #failForGood(reason: string): void {
    this.#state = { state: 'down', detail: `The model cannot be used: ${reason}` };
    this.#options.onEvent({ event: 'failed', reason });
    this.#firstReady.reject(new Error(reason));
  }
}

const heartbeatMs = 1000;
/** Importing the package and reading the vocabulary block the child for moments; a busy machine makes them long. */
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

import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { entryUrl } from '../../../platform/entries.ts';
import type { ChildMessage, HostMessage, LoadOptions } from './protocol.ts';

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
  readonly onMessage: (message: ChildMessage) => void;
  /** The child is gone, with all its work; `loaded` when it could work. Called before any event of the next child. */
  readonly onLost: (how: { readonly loaded: boolean }) => void;
  readonly onEvent: (event: ChildEvent) => void;
}

/** A child's report about itself. */
export interface ChildMeasure {
  readonly rssBytes: number;
  /** Answers that it is making or that wait in it. */
  readonly working: number;
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
  #measuring: ((measure: ChildMeasure) => void)[] = [];
  #state: ChildState = { state: 'starting', detail: 'The engine is loading the model.' };
  /** Whether the present child can work. */
  #loaded = false;
  #everReady = false;
  #deathsInRow = 0;
  #startedMs = 0;
  #readyMs = 0;
  #heardMs = 0;
  #tickMs = 0;
  /** When it last had something to do. */
  #usedMs = 0;
  #worked = false;
  #unusable: string | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #restart: NodeJS.Timeout | undefined;
  #closed = false;
  /** Settles with the first ready child, or rejects when there will be none. */
  readonly ready: Promise<void>;
  #settleReady: { readonly resolve: () => void; readonly reject: (error: Error) => void };

  constructor(options: SupervisorOptions) {
    this.#options = options;
    const { promise, resolve, reject } = deferred();
    this.ready = promise;
    this.#settleReady = { resolve, reject };
    this.#start();
  }

  get state(): ChildState {
    return this.#state;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /**
   * Sends work to the child, and starts one when the model is unloaded. A child that just died drops it: `onLost` reports that.
   */
  send(message: HostMessage): void {
    if (this.#closed) return;
    this.#usedMs = performance.now();
    this.#worked = true;
    if (this.#process === undefined) {
      this.#state = { state: 'ready', detail: 'The model was unloaded and is being reloaded.' };
      this.#start();
    }
    this.#report(message);
  }

  /** Asks the child now; an unloaded child is not asked, and a lost one has no answer. */
  measure(): Promise<ChildMeasure> {
    if (!this.#loaded) return Promise.resolve({ rssBytes: 0, working: 0 });
    return new Promise((resolve) => {
      this.#measuring.push(resolve);
      this.#report({ type: 'ping' });
    });
  }

  #report(message: HostMessage): void {
    // Without a callback, a channel that closes meanwhile would be an 'error' event.
    if (this.#process?.connected === true) this.#process.send(message, () => {});
  }

  async close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true;
      this.#state = { state: 'down', detail: 'The engine is closed.' };
      clearTimeout(this.#restart);
      this.#settleReady.reject(new Error('The engine was closed before it was ready.'));
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
    this.#measured({ rssBytes: 0, working: 0 });
    this.#leaving.add(child);
    void ended(child).then(() => this.#leaving.delete(child));
  }

  #measured(measure: ChildMeasure): void {
    for (const resolve of this.#measuring.splice(0)) resolve(measure);
  }

  #start(): void {
    this.#startedMs = this.#heardMs = this.#tickMs = this.#usedMs = performance.now();
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
    child.on('message', (message: ChildMessage) => this.#hear(child, message));
    child.on('error', (error) => {
      // The spawn failed: there will be no exit event.
      if (child.pid === undefined) onLost(error.message);
    });
    child.on('exit', (code, signal) =>
      onLost(signal === null ? `it exited with code ${code}` : `it ended by ${signal}`),
    );
    // When someone kills it, the channel may close first: its work is lost already.
    child.on('disconnect', () => child.kill('SIGKILL'));
    this.#report({ type: 'load', options: this.#options.load });
    this.#heartbeat = setInterval(() => this.#checkHeartbeat(child), heartbeatMs);
  }

  #hear(child: ChildProcess, message: ChildMessage): void {
    if (child !== this.#process || this.#closed) return;
    this.#heardMs = performance.now();
    switch (message.type) {
      case 'ready': {
        this.#readyMs = this.#heardMs;
        this.#everReady = true;
        this.#loaded = true;
        this.#usedMs = this.#heardMs;
        this.#state = { state: 'ready' };
        const { slots, contextLength, removesDefaultSystem } = message;
        this.#options.onEvent({
          event: 'ready',
          pid: child.pid,
          loadMs: Math.round(this.#readyMs - this.#startedMs),
          slots,
          contextLength,
          removesDefaultSystem,
        });
        this.#settleReady.resolve();
        this.#options.onMessage(message);
        return;
      }
      case 'unusable':
        this.#unusable = message.detail;
        child.kill('SIGKILL');
        return;
      case 'pong':
        this.#measured(message);
        this.#recycleWhenLarge(child, message.rssBytes);
        return;
      case 'events':
      case 'refused':
      case 'counted':
        this.#options.onMessage(message);
    }
  }

  #checkHeartbeat(child: ChildProcess): void {
    const nowMs = performance.now();
    // If this process itself was suspended, its silence is not the child's fault.
    if (nowMs - this.#tickMs > heartbeatMs * 3) this.#heardMs = nowMs;
    this.#tickMs = nowMs;
    if (!this.#options.isIdle()) this.#usedMs = nowMs;
    const silentMs = nowMs - this.#heardMs;
    const allowedMs = this.#loaded ? this.#options.silenceMs : Math.max(this.#options.silenceMs, loadingSilenceMs);
    if (silentMs > allowedMs || (!this.#loaded && nowMs - this.#startedMs > this.#options.loadTimeoutMs)) {
      this.#options.onEvent({ event: 'unresponsive', pid: child.pid, silentMs: Math.round(silentMs) });
      child.kill('SIGKILL');
    } else if (this.#loaded && nowMs - this.#usedMs >= (this.#options.idleUnloadMs ?? Infinity)) {
      this.#options.onEvent({ event: 'unloaded', pid: child.pid, idleMs: Math.round(nowMs - this.#usedMs) });
      this.#letGo(child, 'The model is unloaded; the next request reloads it.');
    } else this.#report({ type: 'ping' });
  }

  #recycleWhenLarge(child: ChildProcess, rssBytes: number): void {
    // A child that is large before it has worked would not be smaller the next time.
    if (!this.#loaded || !this.#worked || rssBytes <= this.#options.rssBytesMax || !this.#options.isIdle()) return;
    this.#options.onEvent({ event: 'recycled', pid: child.pid, rssBytes });
    this.#letGo(child, 'The engine is restarted because its memory has grown.');
    this.#start();
  }

  #lost(child: ChildProcess, how: string): void {
    clearInterval(this.#heartbeat);
    const reason = this.#unusable ?? how;
    const loaded = this.#loaded;
    this.#loaded = false;
    this.#measured({ rssBytes: 0, working: 0 });
    if (child.connected) child.disconnect();
    if (this.#closed) {
      this.#options.onLost({ loaded });
      return;
    }
    const provedItself = loaded && performance.now() - this.#readyMs > settledMs;
    this.#deathsInRow = provedItself ? 1 : this.#deathsInRow + 1;
    if (!this.#everReady && (this.#unusable !== undefined || this.#deathsInRow >= firstDeathsMax)) {
      this.#failForGood(reason);
      this.#options.onLost({ loaded });
      return;
    }
    const restartMs = Math.round(
      Math.min(restartMostMs, restartFirstMs * 2 ** (this.#deathsInRow - 1)) * (0.8 + Math.random() * 0.4),
    );
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
    this.#settleReady.reject(new Error(reason));
  }
}

const heartbeatMs = 1000;
/** Importing the package and reading the vocabulary block the child for moments; a busy machine makes them long. */
const loadingSilenceMs = 30_000;
const restartFirstMs = 200;
const restartMostMs = 30_000;
/** A child that was ready for this long has proved itself: its next death counts as the first. */
const settledMs = 60_000;
const firstDeathsMax = 5;

/** Kills a child and waits for its exit. It holds nothing that a kill could lose. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await gone;
}

function deferred() {
  let resolve: () => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  // A rejection must not end a caller that does not await it.
  promise.catch(() => {});
  return { promise, resolve, reject };
}

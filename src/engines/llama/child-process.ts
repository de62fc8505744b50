import { fork, type ChildProcess } from 'node:child_process';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ChildMessage, HostMessage, LoadOptions } from './protocol.ts';

export type ChildState =
  | { readonly state: 'starting'; readonly detail: string }
  | { readonly state: 'ready' }
  | { readonly state: 'down'; readonly detail: string };

/** What happens to a child; no field holds content. */
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
  | { readonly event: 'recycled'; readonly pid: number | undefined; readonly rssBytes: number }
  | { readonly event: 'failed'; readonly reason: string };

export interface SupervisorOptions {
  readonly load: LoadOptions;
  /** A ready child that has been silent for so long is killed. */
  readonly silenceMs: number;
  readonly loadTimeoutMs: number;
  /** An idle child that has grown beyond this is replaced; `undefined` = twice what it had when it was ready, and 1 GiB. */
  readonly rssBytesMax: number | undefined;
  readonly isIdle: () => boolean;
  readonly onMessage: (message: ChildMessage) => void;
  /** The child is gone, and with it all it worked on. Comes before anything of the next child. */
  readonly onLost: () => void;
  readonly onEvent: (event: ChildEvent) => void;
}

/**
 * Keeps one engine child alive (reliability E1, E2): starts it, loads the model, asks every second whether it still answers,
 * and starts it again when it dies, after 0.2 s at first and up to 30 s when it dies again and again.
 *
 * A child that says that it cannot use the model before it was ever ready has failed for good: a file does not heal. So has
 * one that dies five times before it was ever ready.
 */
export class Supervisor {
  readonly #options: SupervisorOptions;
  #process: ChildProcess | undefined;
  #state: ChildState = { state: 'starting', detail: 'The engine is loading the model.' };
  #everReady = false;
  #deathsInRow = 0;
  #startedMs = 0;
  #readyMs = 0;
  #heardMs = 0;
  #tickMs = 0;
  #rssBytesMax = Infinity;
  #unusable: string | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #restart: NodeJS.Timeout | undefined;
  #closed = false;
  /** Settles with the first child that is ready, or rejects when there will be none. */
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

  /** Whether the message left; a child that just died takes none, and its loss is told by `onLost`. */
  send(message: HostMessage): boolean {
    if (this.#process?.connected !== true) return false;
    // Without a callback, a channel that closes meanwhile would be an 'error' event.
    this.#process.send(message, () => {});
    return true;
  }

  async close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true;
      this.#state = { state: 'down', detail: 'The engine is closed.' };
      clearTimeout(this.#restart);
      this.#settleReady.reject(new Error('The engine was closed before it was ready.'));
    }
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // It keeps nothing that a kill could lose.
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill('SIGKILL');
    await gone;
  }

  #start(): void {
    this.#startedMs = this.#heardMs = this.#tickMs = performance.now();
    this.#unusable = undefined;
    // No flags of ours (the package forks a self-test that inherits them), no environment (it holds secrets), no output
    // (libraries print prompts).
    const child = fork(fileURLToPath(new URL(`./child${extname(import.meta.url)}`, import.meta.url)), [], {
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
      this.#lost(child, reason);
    };
    child.on('message', (message: ChildMessage) => this.#hear(child, message));
    child.on('error', (error) => {
      // Not spawned: there will be no exit.
      if (child.pid === undefined) onLost(error.message);
    });
    child.on('exit', (code, signal) =>
      onLost(signal === null ? `it exited with code ${code}` : `it ended by ${signal}`),
    );
    // Killed by someone, the channel may go first: what it had is lost already.
    child.on('disconnect', () => child.kill('SIGKILL'));
    this.send({ type: 'load', options: this.#options.load });
    this.#heartbeat = setInterval(() => this.#checkHeartbeat(child), heartbeatMs);
  }

  #hear(child: ChildProcess, message: ChildMessage): void {
    if (child !== this.#process || this.#closed) return;
    this.#heardMs = performance.now();
    switch (message.type) {
      case 'ready': {
        this.#readyMs = this.#heardMs;
        this.#everReady = true;
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
    // When this process itself was stopped, its silence is not the child's.
    if (nowMs - this.#tickMs > heartbeatMs * 3) this.#heardMs = nowMs;
    this.#tickMs = nowMs;
    const isReady = this.#state.state === 'ready';
    const silentMs = nowMs - this.#heardMs;
    const allowedMs = isReady ? this.#options.silenceMs : Math.max(this.#options.silenceMs, loadingSilenceMs);
    if (silentMs > allowedMs || (!isReady && nowMs - this.#startedMs > this.#options.loadTimeoutMs)) {
      this.#options.onEvent({ event: 'unresponsive', pid: child.pid, silentMs: Math.round(silentMs) });
      child.kill('SIGKILL');
    } else this.send({ type: 'ping' });
  }

  #recycleWhenLarge(child: ChildProcess, rssBytes: number): void {
    if (this.#state.state !== 'ready') return;
    if (this.#rssBytesMax === Infinity) this.#rssBytesMax = this.#options.rssBytesMax ?? rssBytes * 2 + 2 ** 30;
    if (rssBytes <= this.#rssBytesMax || !this.#options.isIdle()) return;
    this.#options.onEvent({ event: 'recycled', pid: child.pid, rssBytes });
    child.kill('SIGKILL');
  }

  #lost(child: ChildProcess, how: string): void {
    clearInterval(this.#heartbeat);
    this.#rssBytesMax = Infinity;
    const reason = this.#unusable ?? how;
    if (child.connected) child.disconnect();
    if (this.#closed) {
      this.#options.onLost();
      return;
    }
    const provedItself = this.#state.state === 'ready' && performance.now() - this.#readyMs > settledMs;
    this.#deathsInRow = provedItself ? 1 : this.#deathsInRow + 1;
    if (!this.#everReady && (this.#unusable !== undefined || this.#deathsInRow >= firstDeathsMax)) {
      this.#failForGood(reason);
      this.#options.onLost();
      return;
    }
    const restartMs = Math.round(
      Math.min(restartMostMs, restartFirstMs * 2 ** (this.#deathsInRow - 1)) * (0.8 + Math.random() * 0.4),
    );
    this.#state = this.#everReady
      ? { state: 'down', detail: `The engine stopped (${reason}) and is started again.` }
      : { state: 'starting', detail: `The engine stopped while it loaded the model (${reason}) and is started again.` };
    this.#options.onEvent({ event: 'lost', pid: child.pid, reason, restartMs });
    this.#restart = setTimeout(() => this.#start(), restartMs);
    this.#options.onLost();
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
/** A child that was ready for so long has proved itself: its death counts as the first. */
const settledMs = 60_000;
const firstDeathsMax = 5;

function deferred() {
  let resolve: () => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  // Whoever does not wait for it must not be ended by it.
  promise.catch(() => {});
  return { promise, resolve, reject };
}

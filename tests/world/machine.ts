/**
 * One process of the program inside this one: the built program is run from nothing as a script whose `require`, clock, timers, random
 * numbers, threads, sockets and files are the world's. Nothing that it made is used by the next process but what is on its disk.
 */
import crypto from 'node:crypto';
import { EventEmitter } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import { basename, join } from 'node:path';
import perfHooks from 'node:perf_hooks';
import { Readable } from 'node:stream';
import v8 from 'node:v8';
import { Script } from 'node:vm';
import type { Server } from 'node:http';

import { Lane, Scheduler, type Owner, type Task } from './scheduler.ts';
import type { Disk } from './disk.ts';
import { WireEnd, type OnRead } from './wire.ts';

type Require = (name: string) => unknown;

const realRequire = createRequire(import.meta.url);

/** What a script runs in now: which of its threads or processes is the one that lives. */
interface Slot {
  scheduler: Scheduler;
  owner: Owner;
  machine: Machine | undefined;
  port: EventEmitter | undefined;
}

/**
 * The built scripts. Their top level is run once, because that takes longer than a schedule; what it makes is the same in every process of
 * every world. A thread has its work in a function (tests/world/build.ts), which each start calls.
 */
export class Scripts {
  readonly #slots = new Map<string, { readonly slot: Slot; readonly exports: Record<string, unknown> }>();

  constructor(folder: string, names: readonly string[], fault: (name: string) => boolean) {
    for (const name of names) {
      const slot: Slot = {
        scheduler: new Scheduler(0, 0),
        owner: { isDead: true },
        machine: undefined,
        port: undefined,
      };
      const module = { exports: {} as Record<string, unknown> };
      const given = { ...globalsOf(slot), worldFault: fault, module, exports: module.exports };
      const file = join(folder, `${name}.js`);
      const text = `(function (${Object.keys(given).join(', ')}) {${fs.readFileSync(file, 'utf8')}\n})`;
      const run = new Script(text, { filename: file }).runInThisContext() as (...values: unknown[]) => void;
      run(...Object.values(given));
      this.#slots.set(name, { slot, exports: module.exports });
    }
  }

  /** What a script exports; its functions run in the process that lives. */
  exportsOf(name: string): Record<string, unknown> {
    return this.#slots.get(name)!.exports;
  }

  enter(name: string, now: Slot): Record<string, unknown> {
    const { slot, exports } = this.#slots.get(name)!;
    Object.assign(slot, now);
    return exports;
  }
}

export interface MachineOptions {
  readonly scheduler: Scheduler;
  readonly scripts: Scripts;
  readonly disk: Disk;
  /** Opens a connection to a server of the world; false: nobody listens there. */
  readonly dial: (host: string, port: number, end: WireEnd) => boolean;
}

/** One process: what listens, what is connected, and whether it lives. */
export class Machine implements Owner {
  isDead = false;
  readonly options: MachineOptions;
  /** What listens, by port. */
  readonly #listening = new Map<number | string, EventEmitter>();
  readonly #wires = new Set<WireEnd>();
  #ports = 20_000;

  constructor(options: MachineOptions) {
    this.options = options;
  }

  /** The program's exports. */
  start(): Record<string, unknown> {
    const { scheduler, scripts, disk } = this.options;
    disk.owner = this;
    return scripts.enter('program', { scheduler, owner: this, machine: this, port: undefined });
  }

  /** As `kill -9`: nothing of it runs again, and its connections are reset. */
  die(): void {
    if (this.isDead) return;
    this.isDead = true;
    for (const wire of this.#wires) wire.die();
    this.#wires.clear();
    for (const server of this.#listening.values()) stopChecks(server);
    this.#listening.clear();
  }

  /** The client's end of a connection to this process; undefined: nobody listens. */
  connect(port: number | string): WireEnd | undefined {
    const { scheduler } = this.options;
    const server = this.isDead ? undefined : this.#listening.get(port);
    if (server === undefined) return undefined;
    const [ours, theirs] = WireEnd.pair(scheduler, scheduler.world, this);
    this.#keep(theirs);
    scheduler.after(0.1, this, () => server.emit('connection', theirs));
    return ours;
  }

  /** A server that listens only here. */
  listening(server: Server): Server {
    let at: number | string = 0;
    const listen = (place: { readonly port: number } | string, done: () => void): Server => {
      at = typeof place === 'string' ? place : ++this.#ports;
      if (typeof at === 'string') fs.writeFileSync(at, '');
      this.#listening.set(at, server);
      server.emit('listening');
      process.nextTick(done);
      return server;
    };
    const close = (done?: () => void): Server => {
      stopChecks(server);
      if (this.#listening.get(at) === server) this.#listening.delete(at);
      if (done !== undefined) process.nextTick(done);
      return server;
    };
    return Object.assign(server, { listen, close, address: () => ({ port: at, address: '127.0.0.1' }) });
  }

  dial(host: string, port: number, onread: OnRead | undefined): WireEnd {
    const { scheduler, dial } = this.options;
    const [ours, theirs] = WireEnd.pair(scheduler, this, scheduler.world, onread);
    this.#keep(ours);
    scheduler.after(0.1, this, () => {
      if (ours.destroyed) return;
      if (dial(host, port, theirs)) ours.emit('connect');
      else ours.destroy(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }));
    });
    return ours;
  }

  #keep(wire: WireEnd): void {
    this.#wires.add(wire);
    wire.once('close', () => this.#wires.delete(wire));
  }
}

/** Threads are scripts too; their messages are copied, and arrive later. */
class Thread extends EventEmitter implements Owner {
  isDead = false;
  readonly of: Machine;
  readonly #port = new EventEmitter();
  readonly #there = new Lane();
  readonly #back = new Lane();

  constructor(machine: Machine, program: URL) {
    super();
    this.of = machine;
    const { scheduler, scripts, disk } = machine.options;
    const name = basename(program.pathname, '.js');
    const postMessage = (message: unknown, transfer?: never): void => {
      const copy = structuredClone(message, { transfer: transfer ?? [] });
      scheduler.after(disk.delayMs(name), machine, () => void this.emit('message', copy), this.#back);
    };
    const port = Object.assign(this.#port, { postMessage, close: () => this.#exit(0) });
    const begin = (): void => {
      const { beginThread } = scripts.enter(name, { scheduler, owner: this, machine, port });
      (beginThread as () => void)();
    };
    scheduler.after(0.1, this, () => this.#try(begin), this.#there);
  }

  postMessage(message: unknown, transfer?: never): void {
    const { scheduler } = this.of.options;
    const copy = structuredClone(message, { transfer: transfer ?? [] });
    const deliver = (): void => this.#try(() => this.#port.emit('message', copy));
    scheduler.after(0.1 * scheduler.random(), this, deliver, this.#there);
  }

  ref(): void {}
  unref(): void {}
  terminate(): Promise<number> {
    this.#exit(1);
    return Promise.resolve(1);
  }

  #try(work: () => unknown): void {
    try {
      work();
    } catch (error) {
      if (this.of.isDead) return;
      this.isDead = true;
      this.of.options.scheduler.after(0.1, this.of, () => void this.emit('error', error), this.#back);
    }
  }

  #exit(code: number): void {
    if (this.isDead) return;
    this.isDead = true;
    this.of.options.scheduler.after(0.1, this.of, () => void this.emit('exit', code), this.#back);
  }
}

function globalsOf(slot: Slot): Record<string, unknown> {
  const timers = timersOf(slot);
  const random = (): number => slot.scheduler.random();
  const performance = performanceOf(slot);
  const modules: Readonly<Record<string, unknown>> = {
    ...filesOf(slot),
    crypto: cryptoOf(random),
    timers,
    'timers/promises': promisesOf(timers),
    perf_hooks: { ...perfHooks, performance },
    // The machine's own memory would decide what is refused.
    os: { ...os, totalmem: () => 16e9, freemem: () => 8e9 },
    v8: { ...v8, getHeapStatistics: () => ({ heap_size_limit: 4e9, used_heap_size: 1e8 }) },
    worker_threads: {
      // A class whose instances are of another.
      Worker: function worker(program: URL) {
        return new Thread(slot.machine!, program);
      },
      get parentPort() {
        return slot.port;
      },
    },
    http: {
      ...http,
      createServer: (options: object, handle: () => void) =>
        slot.machine!.listening(http.createServer({ ...options, connectionsCheckingInterval: 2 ** 31 - 1 }, handle)),
    },
    net: {
      ...net,
      connect: ({ host, port, onread }: { host: string; port: number; onread?: OnRead }) =>
        slot.machine!.dial(host, port, onread),
      createServer: (handle: () => void) => slot.machine!.listening(net.createServer(handle) as Server),
    },
    '@photostructure/sqlite': {
      DatabaseSync: function database(file: string, options: object) {
        return slot.machine!.options.disk.open(slot.machine!, file, options);
      },
    },
  };
  const require: Require = (name) => modules[name.replace(/^node:/, '')] ?? realRequire(name);
  return {
    require,
    ...timers,
    performance,
    Date: dateOf(slot),
    Math: Object.create(Math, { random: { value: random } }) as object,
    process: processOf(),
    AbortSignal: abortSignalOf(timers),
  };
}

/** Node looks after the sockets of a server with a timer of its own. */
function stopChecks(server: EventEmitter): void {
  for (const symbol of Object.getOwnPropertySymbols(server))
    if (symbol.description === 'http.server.connectionsCheckingInterval')
      clearInterval((server as unknown as Record<symbol, NodeJS.Timeout>)[symbol]);
}

type Timers = ReturnType<typeof timersOf>;

class Timer {
  task: Task;
  readonly #begin: () => Task;

  constructor(begin: () => Task) {
    this.#begin = begin;
    this.task = begin();
  }

  ref = (): this => this;
  unref = (): this => this;
  hasRef = (): boolean => true;
  refresh(): this {
    this.task.isCancelled = true;
    this.task = this.#begin();
    return this;
  }
}

/** Timers of the same length keep their order, and so do those for the next turn (0). */
const lanes = new WeakMap<Owner, Map<number, Lane>>();

function laneOf(owner: Owner, ms: number): Lane {
  let ofOwner = lanes.get(owner);
  if (ofOwner === undefined) lanes.set(owner, (ofOwner = new Map()));
  let lane = ofOwner.get(ms);
  if (lane === undefined) ofOwner.set(ms, (lane = new Lane()));
  return lane;
}

function timersOf(slot: Slot) {
  type Run = (...given: unknown[]) => void;
  const within = (ms: number | undefined): number => Math.min(2 ** 31 - 1, Math.max(1, Math.trunc(ms ?? 1)));
  const begin = (run: Run, ms: number | undefined, given: unknown[]): Timer =>
    new Timer(() => slot.scheduler.after(within(ms), slot.owner, () => run(...given), laneOf(slot.owner, within(ms))));
  const clear = (timer: Timer | undefined): void => {
    if (timer !== undefined && timer !== null) timer.task.isCancelled = true;
  };
  return {
    setTimeout: (run: Run, ms?: number, ...given: unknown[]) => begin(run, ms, given),
    setInterval: (run: Run, ms?: number, ...given: unknown[]) => {
      const timer: Timer = begin(
        () => {
          timer.refresh();
          run(...given);
        },
        ms,
        [],
      );
      return timer;
    },
    setImmediate: (run: Run, ...given: unknown[]) =>
      new Timer(() => slot.scheduler.after(0, slot.owner, () => run(...given), laneOf(slot.owner, 0))),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  };
}

function promisesOf({ setTimeout: begin, setImmediate: next, clearTimeout: clear }: Timers) {
  interface Options {
    readonly signal?: AbortSignal;
  }
  return {
    setTimeout: (ms: number, value?: unknown, { signal }: Options = {}) =>
      new Promise((resolve, reject) => {
        const aborted = (): void => {
          clear(timer);
          reject(new DOMException('The operation was aborted', 'AbortError'));
        };
        const timer = begin(() => {
          signal?.removeEventListener('abort', aborted);
          resolve(value);
        }, ms);
        if (signal?.aborted === true) aborted();
        else signal?.addEventListener('abort', aborted, { once: true });
      }),
    setImmediate: (value?: unknown) => new Promise((resolve) => void next(resolve as never, value)),
  };
}

const performanceOf = (slot: Slot) => ({
  now: () => slot.scheduler.nowMs,
  timeOrigin: 0,
  eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: 0 }),
});

const dateOf = (slot: Slot) =>
  class extends Date {
    constructor(...given: never[]) {
      if (given.length === 0) super(slot.scheduler.wallMs);
      else super(...(given as unknown as [number]));
    }
    static override now(): number {
      return slot.scheduler.wallMs;
    }
    static override [Symbol.hasInstance](value: unknown): boolean {
      return Object.prototype.toString.call(value) === '[object Date]';
    }
  };

function processOf(): object {
  const memory = { rss: 1e8, heapTotal: 1e8, heapUsed: 1e8, external: 0, arrayBuffers: 0 };
  const itself = (): object => process;
  const own: Readonly<Record<string, unknown>> = {
    memoryUsage: Object.assign(() => memory, { rss: () => memory.rss }),
    constrainedMemory: () => 0,
    ...{ on: itself, once: itself, off: itself, emitWarning: () => {}, pid: 1, uptime: () => 1 },
  };
  return new Proxy(process, {
    get: (target, name) => own[name as string] ?? (Reflect.get(target, name) as unknown),
  });
}

function abortSignalOf({ setTimeout: begin }: Timers): object {
  const timeout = (ms: number): AbortSignal => {
    const controller = new AbortController();
    begin(() => controller.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')), ms);
    return controller.signal;
  };
  return new Proxy(AbortSignal, {
    get: (target, name) => (name === 'timeout' ? timeout : (Reflect.get(target, name) as unknown)),
  });
}

function cryptoOf(random: () => number): object {
  const fill = (bytes: Uint8Array): Uint8Array => {
    for (let at = 0; at < bytes.length; at++) bytes[at] = Math.floor(random() * 256);
    return bytes;
  };
  const randomBytes = (length: number): Buffer => fill(Buffer.alloc(length)) as Buffer;
  return {
    ...crypto,
    randomBytes,
    randomFillSync: (bytes: ArrayBufferView) => {
      fill(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
      return bytes;
    },
    getRandomValues: fill,
    randomUUID: () => {
      const hex = randomBytes(16).toString('hex');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
    randomInt: (from: number, to?: number) =>
      to === undefined ? Math.floor(random() * from) : from + Math.floor(random() * (to - from)),
  };
}

/** Files are real and are read and written at once, but the program learns of it later. Changes of files are not watched. */
function filesOf(slot: Slot): Readonly<Record<string, unknown>> {
  const later = <Value>(work: () => Value): Promise<Value> =>
    new Promise((resolve, reject) => {
      slot.scheduler.after(0.2 * slot.scheduler.random(), slot.owner, () => {
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
      });
    });
  const open = (path: string, flags: string, mode?: number): Promise<object> =>
    later(() => {
      const fd = fs.openSync(path, flags, mode);
      const isFolder = fs.fstatSync(fd).isDirectory();
      return {
        fd,
        write: (bytes: Uint8Array, from = 0) => later(() => ({ bytesWritten: fs.writeSync(fd, bytes, from) })),
        sync: () => later(() => (isFolder ? undefined : fs.fdatasyncSync(fd))),
        close: () => later(() => fs.closeSync(fd)),
      };
    });
  const promises = {
    ...Object.fromEntries(
      (['mkdir', 'rename', 'rm', 'stat', 'statfs', 'readFile', 'writeFile', 'readdir', 'access'] as const).map(
        (name) => [
          name,
          (...given: unknown[]) => later(() => (fs[`${name}Sync`] as (...all: unknown[]) => unknown)(...given)),
        ],
      ),
    ),
    open,
  };
  const called = (name: 'stat' | 'readdir') => (path: string, done: (error: unknown, value?: unknown) => void) =>
    void later(() => (fs[`${name}Sync`] as (path: string) => unknown)(path)).then((value) => done(null, value), done);
  const createReadStream = (_: string, { fd, start = 0, end }: ReadOptions): Readable => {
    const all = fs.readFileSync(fd.fd);
    fs.closeSync(fd.fd);
    return Readable.from([all.subarray(start, end === undefined ? undefined : end + 1)]);
  };
  const watch = (): object => Object.assign(new EventEmitter(), { close: () => {} });
  return {
    fs: { ...fs, ...{ stat: called('stat'), readdir: called('readdir'), createReadStream, watch, promises } },
    'fs/promises': promises,
  };
}

interface ReadOptions {
  readonly fd: { readonly fd: number };
  readonly start?: number;
  readonly end?: number;
}

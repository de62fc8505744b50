/** The service in a world: it is started, killed and started again on its disk, and asked as clients and operators ask it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Service } from '../../src/app/service.ts';

import type { Disk } from './disk.ts';
import { Machine, type MachineOptions } from './machine.ts';
import type * as Program from './program.ts';
import { Moment, type Scheduler } from './scheduler.ts';
import type { WireEnd } from './wire.ts';

/** Reading a configuration takes longer than a start. */
let context: { readonly text: string; readonly read: ReturnType<typeof Program.readContext> } | undefined;

function contextOf(program: typeof Program, folder: string, text: string): ReturnType<typeof Program.readContext> {
  if (context?.text !== text) context = { text, read: program.readContext(undefined, folder, {}) };
  const { config, environment } = context.read;
  const directory = join(folder, 'data');
  const storage = { ...config.storage, directory, path: join(directory, 'tokenhouse.db') };
  return { config: { ...config, storage: storage as typeof config.storage }, environment };
}

/** One of them: it is done, was refused, or something failed. */
export interface Reply {
  readonly answer?: unknown;
  readonly refused?: string;
  readonly failed?: string;
}

export class Host {
  readonly #options: MachineOptions;
  readonly #scheduler: Scheduler;
  readonly #disk: Disk;
  readonly #config: string;
  #machine: Machine | undefined;
  #service: Service | undefined;
  /** The next time that it runs, or that its start has come to an end. */
  #up = new Moment();
  #begun = new Moment();
  inferencePort = 0;
  accountPort = 0;
  firstAccount = '';
  /** When its processes died. */
  readonly deathsMs: number[] = [];
  lines = '';
  /** Called when a process has died. */
  died: () => void = () => {};

  constructor(options: MachineOptions, config: string) {
    this.#options = options;
    this.#scheduler = options.scheduler;
    this.#disk = options.disk;
    this.#config = config;
    this.#disk.died = () => this.#die('at a statement');
  }

  get isUp(): boolean {
    return this.#service !== undefined;
  }

  async comesUp(): Promise<void> {
    if (!this.isUp) await this.#up.within(this.#scheduler, 60_000);
  }

  /** Resolves with whether it runs: it may be killed, or fail, while it starts. */
  async start(): Promise<boolean> {
    const { folder } = this.#disk;
    mkdirSync(join(folder, 'data'), { recursive: true });
    writeFileSync(join(folder, 'tokenhouse.yaml'), this.#config);
    const machine = new Machine(this.#options);
    this.#machine = machine;
    this.#scheduler.note('start');
    const program = machine.start() as unknown as typeof Program;
    const { config, environment } = contextOf(program, folder, this.#config);
    const starting = program.startService({
      config,
      environment,
      version: '0',
      log: program.createLog({ write: (lines: string) => ((this.lines += lines), true), once: () => {} } as never),
      readConfig: (running, text) =>
        program.loadConfig({
          environment,
          path: undefined,
          directory: folder,
          scriptSchema: program.scriptSchema,
          running,
          text,
        }),
      workerEntry: new URL('file:///none'),
      configFile: join(folder, 'tokenhouse.yaml'),
      onFatal: (error) => this.#die(`of itself: ${error.message}`),
      onDownload: () => {},
    });
    let service: Service | undefined;
    let failure: unknown;
    const begun = (this.#begun = new Moment());
    starting
      .then(
        (started) => (service = started),
        (error: unknown) => (failure = error),
      )
      .finally(() => begun.come());
    await begun.within(this.#scheduler, 60_000);
    if (machine.isDead) return false;
    if (service === undefined) {
      this.#die(`it cannot start: ${(failure as Error | undefined)?.message ?? 'it hangs'}`);
      return false;
    }
    this.#service = service;
    this.inferencePort = Number(new URL(service.inferenceUrl).port);
    this.accountPort = Number(new URL(service.accountUrl).port);
    this.firstAccount = service.firstAccount?.accountId ?? this.firstAccount;
    this.#scheduler.note('ready');
    this.#up.come();
    return true;
  }

  kill(): void {
    this.#die('killed');
  }

  #die(how: string): void {
    const machine = this.#machine;
    if (machine === undefined || machine.isDead) return;
    this.#scheduler.note(`the process ends: ${how}`);
    machine.die();
    this.deathsMs.push(this.#scheduler.nowMs);
    if (this.isUp) this.#up = new Moment();
    this.#service = undefined;
    this.#disk.crash();
    this.#begun.come();
    this.died();
  }

  /** As SIGTERM does. */
  async stop(): Promise<void> {
    await this.#service?.stop();
    this.#service = undefined;
    this.#machine?.die();
    this.#disk.rest();
  }

  connect(host: 'inference' | 'account'): WireEnd | undefined {
    return this.#machine?.connect(host === 'inference' ? this.inferencePort : this.accountPort);
  }

  /** What an operator asks on the control socket; undefined: the process ended meanwhile. */
  async operate(request: object): Promise<Reply | undefined> {
    const wire = this.#machine?.connect(join(this.#disk.folder, 'data', 'control.sock'));
    if (wire === undefined) return undefined;
    let text = '';
    const over = new Moment();
    wire.on('data', (bytes: Buffer) => (text += bytes.toString()));
    for (const name of ['end', 'close', 'error']) wire.on(name, () => over.come());
    wire.write(`${JSON.stringify(request)}\n`);
    await over.within(this.#scheduler, 30_000);
    wire.destroy();
    if (text === '') return undefined;
    return JSON.parse(text) as Reply;
  }
}

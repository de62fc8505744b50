import { changesBetween } from '../config/changes.ts';
import type { Config } from '../config/config.ts';
import { identityOf } from '../config/identity.ts';
import { ConfigError } from '../config/problem.ts';
import type { Problem } from '../config/problem.ts';
import type { ReloadOutcome } from '../config/reload-outcome.ts';
import type { Log } from '../platform/log.ts';
import type { Discovery } from './discovery/discovery.ts';
import { lookAtBackends } from './look.ts';
import type { Prepared } from './config-rollout.ts';

export interface ReloadServices {
  /** Reads the file with the checks of the start. Throws `ConfigError`. */
  read(running: Config): Config;
  readonly log: Log;
  /** Prepares everything for a configuration. Rejects, with nothing left open, when it cannot come into force. */
  prepare(next: Config, signal: AbortSignal): Promise<Prepared>;
  /** The sources of backends that are not in the file. */
  readonly discovery: Pick<Discovery, 'prepare' | 'expanded'>;
}

/**
 * Reads the configuration again while the service runs, all or nothing (reliability S8). The backends that its sources list come
 * into force the same way.
 */
export class Reloader {
  readonly #services: ReloadServices;
  #current: {
    /** The configuration as read from the file. */
    readonly file: Config;
    readonly identity: string;
    /** The same with the backends of its sources, which is the configuration in force. */
    readonly config: Config;
  };
  #version = 1;
  #failures = 0;
  #lastSuccess = true;
  #underWay:
    | { readonly identity: string; readonly abort: AbortController; readonly outcome: Promise<ReloadOutcome> }
    | undefined;
  /** Set while backends of the sources come into force; `isStale`: they have changed since. */
  #refreshing: { isStale: boolean; readonly done: Promise<void> } | undefined;
  readonly #stopping = new AbortController();

  constructor(config: Config, services: ReloadServices) {
    this.#services = services;
    this.#current = { file: config, identity: identityOf(withoutFile(config)), config };
  }

  /** The configuration in force. */
  get config(): Config {
    return this.#current.config;
  }

  /** 1 at the start, incremented with each configuration that comes into force. */
  get version(): number {
    return this.#version;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Whether the configuration last read is in force. */
  get lastSuccess(): boolean {
    return this.#lastSuccess;
  }

  /** Never rejects: a fault of the file is an outcome, and is logged. */
  async reload(): Promise<ReloadOutcome> {
    let next: Config;
    try {
      next = this.#services.read(this.#current.file);
    } catch (error) {
      return this.#refuse(problemsOf(error, this.#current.file));
    }
    const identity = identityOf(withoutFile(next));
    while (this.#underWay !== undefined || this.#refreshing !== undefined) {
      if (this.#underWay?.identity === identity) return this.#underWay.outcome;
      // A newer file replaces one whose engines are still loading.
      this.#underWay?.abort.abort(new Error('another configuration was read while its engines were being started'));
      await (this.#underWay?.outcome ?? this.#refreshing?.done);
    }
    if (identity === this.#current.identity) {
      this.#lastSuccess = true;
      return { kind: 'unchanged', version: this.#version };
    }
    const abort = new AbortController();
    const outcome = this.#take(next, identity, abort.signal);
    const underWay = { identity, abort, outcome };
    this.#underWay = underWay;
    try {
      return await outcome;
    } finally {
      if (this.#underWay === underWay) this.#underWay = undefined;
    }
  }

  /** Opens the sources of the first configuration, and takes over the backends that they have. */
  async begin(): Promise<void> {
    const sources = await this.#services.discovery.prepare(this.#current.file, this.#stopping.signal);
    sources.commit();
    await this.refresh();
  }

  /** Takes over the backends that the sources have now, one change at a time. Never rejects. */
  async refresh(): Promise<void> {
    if (this.#refreshing === undefined) {
      // Runs after the assignment.
      const done = Promise.resolve()
        .then(() => this.#refresh())
        .finally(() => (this.#refreshing = undefined));
      this.#refreshing = { isStale: true, done };
    }
    this.#refreshing.isStale = true;
    await this.#refreshing.done;
  }

  /** Ends waiting for engines; the service is being stopped. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the service is being stopped'));
    this.#underWay?.abort.abort(new Error('the service is being stopped'));
    await this.#underWay?.outcome;
    await this.#refreshing?.done;
  }

  async #refresh(): Promise<void> {
    const { discovery, prepare, log } = this.#services;
    while (this.#refreshing?.isStale === true && !this.#stopping.signal.aborted) {
      // A file that is coming into force already includes the newest lists.
      await this.#underWay?.outcome;
      this.#refreshing.isStale = false;
      const next = discovery.expanded(this.#current.file);
      const changes = changesBetween(this.#current.config, next);
      if (changes.length === 0) continue;
      try {
        const prepared = await prepare.call(this.#services, next, this.#stopping.signal);
        await prepared.commit();
      } catch (error) {
        const [problem] = problemsOf(error, next);
        log.service({ level: 'error', event: 'backends_refused', detail: { what: problem?.what ?? '' } });
        continue;
      }
      this.#current = { ...this.#current, config: next };
      log.service({ level: 'info', event: 'backends_changed', detail: { changes: changes.slice(0, 100).join('; ') } });
    }
  }

  async #take(file: Config, identity: string, signal: AbortSignal): Promise<ReloadOutcome> {
    let next: Config;
    let changes: readonly string[];
    try {
      const sources = await this.#services.discovery.prepare(file, signal, this.#current.config);
      next = sources.config;
      changes = changesBetween(this.#current.config, next);
      try {
        const prepared = await this.#services.prepare(next, signal);
        await prepared.commit();
      } catch (error) {
        sources.abandon();
        throw error;
      }
      sources.commit();
    } catch (error) {
      return this.#refuse(problemsOf(error, file));
    }
    this.#current = { file, identity, config: next };
    this.#version++;
    this.#lastSuccess = true;
    this.#services.log.service({
      level: 'info',
      event: 'config_reloaded',
      detail: { version: this.#version, changes: changes.join('; ') },
    });
    // Picks up what a source has listed since it was prepared.
    void this.refresh();
    const backends = await lookAtBackends(next, this.#services.log, signal);
    return { kind: 'reloaded', version: this.#version, changes, backends };
  }

  #refuse(problems: readonly Problem[]): ReloadOutcome {
    this.#failures++;
    this.#lastSuccess = false;
    const [first] = problems;
    this.#services.log.service({
      level: 'error',
      event: 'config_refused',
      detail: {
        where: first?.where ?? '',
        what: first?.what ?? '',
        problems: problems.length,
        version: this.#version,
      },
    });
    return { kind: 'refused', version: this.#version, problems };
  }
}

/** The file's location does not matter once it is read: a file with the defaults is equal to no file. */
const withoutFile = ({ file: _, ...rest }: Config) => rest;

function problemsOf(error: unknown, { file }: Config): readonly Problem[] {
  if (error instanceof ConfigError) return error.problems;
  return [{ where: file ?? 'tokenhouse.yaml', what: error instanceof Error ? error.message : String(error) }];
}

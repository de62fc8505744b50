import cluster from 'node:cluster';
import type { Worker as ClusterWorker } from 'node:cluster';
import { fileURLToPath } from 'node:url';

import type { Config } from '../../config/config.ts';
import { portableConfig } from '../../config/portable.ts';
import { withDeadline } from '../../platform/deadline.ts';
import type { LogOutput } from '../../platform/log.ts';
import { countsOf, mergedFigures } from '../../platform/metrics/figures.ts';
import type { FamilyFigures } from '../../platform/metrics/figures.ts';
import { RestartBackoff } from '../../platform/rpc/restart-backoff.ts';
import { Rpc } from '../../platform/rpc/rpc.ts';
import { ProcessTransport } from '../../platform/rpc/transport.ts';
import type { AnswerCounts } from '../../config/backend-state.ts';
import type { BackendStatus } from '../control/status.ts';
import type { Recorders } from '../recorded-traffic.ts';
import type { DrainTimes } from '../listening.ts';
import type { Prepared } from '../config-rollout.ts';
import { workerErrors } from './messages.ts';
import type { ParentCalls, WorkerBackends, WorkerCalls, WorkerConnection, WorkerFigures } from './messages.ts';

export interface PoolOptions {
  /** The program of a worker. */
  readonly entry: URL;
  readonly count: number;
  readonly config: Config;
  readonly version: string;
  readonly accountUrl: () => string;
  readonly log: LogOutput;
  /** Called once when workers keep dying: end the service. */
  readonly onFatal: (error: Error) => void;
}

/** A worker that does not answer in this time is ignored, for example in a page of metrics or a wait for a change. */
const answerTimeoutMs = 1_000;
/** A page of recorded traffic is a megabyte. */
const pageTimeoutMs = 10_000;
const inTime = { timeoutMs: answerTimeoutMs } as const;
const beginTimeoutMs = 120_000;
const prepareTimeoutMs = 30_000;
/** In addition to the time for running requests: for last bytes, and closing. */
const stopGraceMs = 12_000;
/** A worker that ends earlier than this did not survive its start; after this many in a row the service ends. */
const youngMs = 10_000;
const youngEndsMax = 5;
const restarts = { firstMs: 100, mostMs: Infinity, provenMs: youngMs, provenCounts: 0 } as const;

/** One worker process, from start to end. */
interface Member {
  readonly place: Place;
  readonly child: ClusterWorker;
  readonly rpc: WorkerConnection;
  readonly bornMs: number;
  state: 'starting' | 'serving' | 'ended';
  /** Resolves when the process has ended and all its messages were read. */
  readonly gone: Promise<HowEnded>;
  /** Its last report, used when it does not answer or has ended. */
  figures: WorkerFigures;
  isAsked: boolean;
}

/** A worker's place, which outlives it. */
interface Place {
  readonly index: number;
  member: Member | undefined;
  readonly backoff: RestartBackoff;
  restart: NodeJS.Timeout | undefined;
}

/**
 * The worker processes: starts them, replaces those that end, and queries all of them. They share one listening socket, from
 * which the system hands out connections: an idle worker takes the next one (docs/decisions/012-workers.md).
 */
export class Pool {
  readonly #options: PoolOptions;
  readonly #places: readonly Place[];
  readonly #starting = new Set<Promise<unknown>>();
  /** The counts of workers that have ended. */
  #counted: readonly FamilyFigures[] = [];
  #config: Config;
  /** Port of the inference host, as soon as it is known. */
  #port: number | undefined;
  /**
   * The port that workers request from the system: 0 for any free port. Live workers have to request the same port, to share one
   * socket; when none is left the socket is gone, and the next one requests the port that clients know.
   */
  #askedPort: number;
  #ended = 0;
  /** Whether each is ready, while the answers are pending. */
  #asking: Promise<readonly boolean[]> | undefined;
  /** Set while a configuration is coming into force: no worker is started with the previous one. */
  #changing: Promise<void> | undefined;
  /** `failed`: workers keep dying, and the service is about to end. */
  #state: 'running' | 'stopping' | 'failed' = 'running';

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#askedPort = options.config.server.inference.port;
    this.#places = Array.from({ length: options.count }, (_, index) => ({
      index,
      member: undefined,
      backoff: new RestartBackoff(restarts),
      restart: undefined,
    }));
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({ exec: fileURLToPath(options.entry), args: [], serialization: 'advanced' });
  }

  /** Resolves with the port when all listen. Rejects with the reason why one of them cannot. */
  async start(): Promise<number> {
    const outcomes = await Promise.allSettled(this.#places.map((place) => this.#spawn(place)));
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return this.#port!;
  }

  /** The number of workers that answer requests now. */
  get serving(): number {
    return this.#members().length;
  }

  /** Whether a worker accepts new work; concurrent callers wait for the same answers. */
  async isReady(): Promise<boolean> {
    if (this.#state !== 'running') return false;
    this.#asking ??= this.#askAll((rpc) => rpc.call('is_ready', null, inTime)).finally(
      () => (this.#asking = undefined),
    );
    return (await this.#asking).includes(true);
  }

  /** The number of workers that ended without being stopped. */
  get ended(): number {
    return this.#ended;
  }

  /** Prepares a configuration at all workers, and puts it into force at all of them or at none (reliability S8). */
  async prepare(next: Config, signal: AbortSignal): Promise<Prepared> {
    let changed = (): void => {};
    this.#changing = new Promise((resolve) => (changed = resolve));
    const done = (): void => {
      this.#changing = undefined;
      changed();
    };
    await Promise.allSettled(this.#starting);
    const members = this.#members();
    const report = async (name: 'commit' | 'abandon'): Promise<void> => {
      await Promise.all(members.map(({ rpc }) => rpc.call(name, null, inTime).catch(() => undefined)));
    };
    const portable = portableConfig(next);
    const answers = await Promise.all(
      members.map(async (member) => {
        try {
          await withDeadline(member.rpc.call('prepare', portable), prepareTimeoutMs, () => {
            throw new Error(`worker ${member.place.index + 1} does not answer`);
          });
          return undefined;
        } catch (error) {
          // A worker that has ended meanwhile restarts with the configuration that is then in force.
          return member.state === 'serving' ? error : undefined;
        }
      }),
    );
    const abandon = async (): Promise<void> => {
      await report('abandon');
      done();
    };
    const refusal = signal.aborted ? (signal.reason as Error) : answers.find((answer) => answer !== undefined);
    if (refusal !== undefined) {
      await abandon();
      throw refusal;
    }
    const commit = async (): Promise<void> => {
      this.#config = next;
      await report('commit');
      done();
    };
    return { commit, abandon };
  }

  /** Resolves when changes by others in the database are in force at all workers, or one does not answer. */
  async catchUp(): Promise<void> {
    await this.#askAll((rpc) => rpc.call('catch_up', null, inTime));
  }

  /** The sums over all workers, past and present. */
  async figures(own: readonly FamilyFigures[]): Promise<readonly FamilyFigures[]> {
    const members = this.#members();
    await Promise.all(members.map((member) => this.#look(member)));
    return mergedFigures([
      { process: 'parent', families: own },
      ...members.map(({ place, figures }) => ({ process: String(place.index + 1), families: figures })),
      { process: 'ended', families: this.#counted },
    ]);
  }

  /** The workers' backends, each in the worst state that a worker reports. */
  async backends(): Promise<WorkerBackends> {
    const seen = new Map<string, BackendStatus>();
    for (const backend of (await this.#askAll((rpc) => rpc.call('backends', null, inTime))).flat()) {
      const name = `${backend.modelId} ${backend.label}`;
      const known = seen.get(name);
      seen.set(name, known === undefined ? backend : together(known, backend));
    }
    return [...seen.values()];
  }

  /** The recorders of the workers that run now. */
  recorders(): Recorders {
    const members = this.#members();
    return {
      processes: members.length,
      record: (recording) => this.#askAll((rpc) => rpc.call('record_traffic', recording, inTime)),
      forget: () => this.#askAll((rpc) => rpc.call('forget_traffic', null, inTime)),
      page: async (index, from) =>
        await members[index]?.rpc.call('recorded_traffic', from, { timeoutMs: pageTimeoutMs }),
    };
  }

  cut(): void {
    for (const { rpc } of this.#members()) rpc.note('cut', null);
  }

  /** Lets running requests end, within these times, and ends all workers. */
  async stop({ drainDelayMs, drainTimeoutMs }: DrainTimes): Promise<void> {
    this.#state = 'stopping';
    await Promise.all(
      this.#places.map(async (place) => {
        clearTimeout(place.restart);
        const { member } = place;
        if (member === undefined) return;
        const kill = (): void => void member.child.process.kill('SIGKILL');
        if (member.state !== 'serving') kill();
        const timer = setTimeout(kill, drainDelayMs + drainTimeoutMs + stopGraceMs);
        member.rpc.call('stop', { drainDelayMs, drainTimeoutMs }).catch(() => {});
        await member.gone;
        clearTimeout(timer);
      }),
    );
  }

  #members(): readonly Member[] {
    return this.#places.flatMap(({ member }) => (member?.state === 'serving' ? [member] : []));
  }

  /** Resolves when it listens; rejects and cleans up if that fails. */
  async #spawn(place: Place): Promise<void> {
    const { log } = this.#options;
    if (this.#port !== undefined && this.#places.every(({ member: other }) => other === undefined))
      this.#askedPort = this.#port;
    const child = cluster.fork();
    const kill = (): void => void child.process.kill('SIGKILL');
    const rpc = new Rpc<WorkerCalls, ParentCalls>(new ProcessTransport(child.process), {
      errors: workerErrors,
      onBroken: (why) => {
        log.service({ level: 'error', event: 'worker_not_understood', detail: { worker: place.index + 1, why } });
        kill();
      },
    });
    // A message to a process that does not listen yet may be lost.
    const awake = new Promise<void>((resolve) =>
      rpc.handle({ log: (lines: unknown) => log.pass(String(lines)), awake: () => resolve() }),
    );
    const gone = endOf(child).then((how) => {
      rpc.close('the other process is gone');
      this.#hasGone(member, how);
      return how;
    });
    const bornMs = performance.now();
    const member: Member = { place, child, rpc, gone, bornMs, state: 'starting', figures: [], isAsked: false };
    place.member = member;
    try {
      await withDeadline(Promise.race([awake, gone]), beginTimeoutMs, () => {});
      await this.#begin(member);
    } catch (error) {
      const hasEnded = child.isDead();
      kill();
      const { code, signal } = await gone;
      if (!hasEnded) throw error;
      throw new Error(`Worker ${place.index + 1} ended while it started (${signal ?? `exit code ${code}`}).`);
    }
  }

  async #begin(member: Member): Promise<void> {
    const { count, version, accountUrl } = this.#options;
    const { index } = member.place;
    const given = {
      index,
      count,
      config: portableConfig(this.#config),
      version,
      accountUrl: accountUrl(),
      port: this.#askedPort,
    };
    const began = await withDeadline(member.rpc.call('begin', given), beginTimeoutMs, () => {
      throw new Error(`worker ${index + 1} did not begin within ${beginTimeoutMs} ms`);
    });
    this.#port ??= began.port;
    if (began.port !== this.#port) throw new Error(`worker ${index + 1} listens on another port`);
    member.state = 'serving';
  }

  #hasGone(member: Member, how: HowEnded): void {
    const { place } = member;
    if (place.member === member) place.member = undefined;
    this.#counted = mergedFigures([
      { process: 'ended', families: this.#counted },
      { process: 'ended', families: countsOf(member.figures) },
    ]);
    const wasServing = member.state === 'serving';
    member.state = 'ended';
    if (wasServing && this.#state !== 'stopping') this.#hasEnded(member, how);
  }

  #hasEnded({ place, child, bornMs }: Member, { code, signal }: HowEnded): void {
    this.#ended++;
    const { log } = this.#options;
    const detail = { worker: place.index + 1, pid: child.process.pid ?? 0, code, signal };
    log.service({ level: 'error', event: 'worker_ended', detail });
    this.#again(place, performance.now() - bornMs);
  }

  #again(place: Place, livedMs: number): void {
    if (this.#state === 'failed') return;
    const pauseMs = place.backoff.died(livedMs);
    if (place.backoff.deathsInRow >= youngEndsMax) {
      this.#state = 'failed';
      const words = `Worker ${place.index + 1} ended ${youngEndsMax} times in a row soon after its start; see the log (worker_ended, crash).`;
      this.#options.onFatal(new Error(words));
      return;
    }
    place.restart = setTimeout(() => void this.#restart(place), pauseMs);
  }

  async #restart(place: Place): Promise<void> {
    while (this.#changing !== undefined) await this.#changing;
    if (this.#state !== 'running') return;
    const starting = this.#spawn(place);
    this.#starting.add(starting);
    try {
      await starting;
      const { log } = this.#options;
      log.service({ level: 'info', event: 'worker_started', detail: { worker: place.index + 1 } });
    } catch (error) {
      if (this.#isStopping()) return;
      const reason = error instanceof Error ? error.message : String(error);
      this.#options.log.service({
        level: 'error',
        event: 'worker_not_started',
        detail: { worker: place.index + 1, reason },
      });
      this.#again(place, 0);
    } finally {
      this.#starting.delete(starting);
    }
  }

  #isStopping(): boolean {
    return this.#state === 'stopping';
  }

  /** Polls a worker, but not again before it has answered, however long that takes. */
  async #look(member: Member): Promise<void> {
    if (member.isAsked) return;
    member.isAsked = true;
    const answer = member.rpc
      .call('figures', null)
      .then((figures) => void (member.figures = figures))
      .catch(() => {})
      .finally(() => (member.isAsked = false));
    await withDeadline(answer, answerTimeoutMs, () => {});
  }

  /** Returns the answers that arrive in time. */
  async #askAll<Answer>(ask: (rpc: WorkerConnection) => Promise<Answer>): Promise<readonly Answer[]> {
    const answers = await Promise.allSettled(this.#members().map(({ rpc }) => ask(rpc)));
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  }
}

const states = ['ready', 'starting', 'sleeping', 'stopped', 'failed'] as const;

/** Merges two workers' reports on a backend. Each worker has a share of its capacity. */
function together(one: BackendStatus, other: BackendStatus): BackendStatus {
  const worse = states.indexOf(other.state) > states.indexOf(one.state) ? other : one;
  const most = (a: number | null, b: number | null): number | null =>
    a === null ? b : b === null ? a : Math.max(a, b);
  return {
    ...worse,
    runningMax: one.runningMax === null || other.runningMax === null ? null : one.runningMax + other.runningMax,
    failures: Math.max(one.failures, other.failures),
    ejectedForMs: most(one.ejectedForMs, other.ejectedForMs),
    promptTokensPerSecond: most(one.promptTokensPerSecond, other.promptTokensPerSecond),
    quality: summed(one.quality, other.quality),
    worse: one.worse ?? other.worse,
  };
}

function summed(one: BackendStatus['quality'], other: BackendStatus['quality']): BackendStatus['quality'] {
  if (!one || !other) return one ?? other;
  const sum = (a: AnswerCounts, b: AnswerCounts): AnswerCounts =>
    Object.fromEntries(
      Object.entries(a).map(([name, count]) => [name, count + b[name as keyof AnswerCounts]]),
    ) as AnswerCounts;
  return { fiveMinutes: sum(one.fiveMinutes, other.fiveMinutes), hour: sum(one.hour, other.hour) };
}

interface HowEnded {
  readonly code: number | null;
  readonly signal: string | null;
}

/** The process is gone, and everything it wrote to the connection has been read: in either order. */
async function endOf(child: ClusterWorker): Promise<HowEnded> {
  const [how] = await Promise.all([
    new Promise<HowEnded>((resolve) => {
      child.process.once('exit', (code, signal) => resolve({ code, signal }));
      child.process.once('error', () => resolve({ code: null, signal: null }));
    }),
    new Promise<void>((resolve) => void child.process.once('disconnect', () => resolve())),
  ]);
  return how;
}

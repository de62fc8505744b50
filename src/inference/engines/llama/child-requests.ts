import { ApiError, atCap } from '../../../platform/errors.ts';
import { deferred } from '../../../platform/deferred.ts';
import { RpcError } from '../../../platform/rpc/failure.ts';
import type { Handlers } from '../../../platform/rpc/rpc.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import type { GenerationEvent, TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { Channel } from './channel.ts';
import type { Loss, Supervisor } from './child-process.ts';
import { CrashQuarantine } from './crash-quarantine.ts';
import { FirstTokenTime, type FirstTokenOptions } from './first-token-time.ts';
import { unreadTokensMax, type HostCalls, type Refusal, type Work } from './protocol.ts';
import type { Purpose } from './purpose.ts';
import type { Residence, Waiting } from './residence.ts';
import { SpeedMeter } from './speed-meter.ts';
import { constraintParam, jobsOf } from './unfit.ts';

export interface ChildRequestsOptions {
  readonly purpose: Purpose;
  readonly queueLimit: number | undefined;
  readonly firstToken: FirstTokenOptions;
  readonly idleTimeoutMs: number | undefined;
  readonly residence: Residence;
  /** `undefined`: the model file is not there yet, or cannot be used. */
  readonly supervisor: () => Supervisor | undefined;
  /** The answers that the child makes at once. */
  readonly slots: () => number;
  /** Called when the child failed at a request; `detail` is for the log. */
  readonly onFailed: (code: string, detail: string) => void;
}

/** A model's requests: those that its child works on, and those that wait until the model is loaded. */
export class ChildRequests {
  readonly #options: ChildRequestsOptions;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #quarantine = new CrashQuarantine();
  readonly #speed = new SpeedMeter();
  #counting = 0;
  #countsBegun = 0;
  #jobs = 0;
  #lastRequest = 0;
  #isClosed = false;
  /** What the child says of requests. */
  readonly handlers: Handlers<HostCalls> = {
    events: ({ request, events, tokens, last }) => this.#put(request, events, tokens, last),
    refused: ({ request, refusal }) => {
      const error = this.#refused(refusal);
      this.#release(request)?.channel.fail(error);
    },
    reading: (request) => this.#exchanges.get(request)?.firstToken.hasRead(performance.now()),
  };

  constructor(options: ChildRequestsOptions) {
    this.#options = options;
  }

  /** Whether there are none. */
  get isEmpty(): boolean {
    return this.#exchanges.size === 0 && this.#counting === 0;
  }

  /** Whether none that has begun is still running. */
  get isIdle(): boolean {
    return this.#countsBegun === 0 && [...this.#exchanges.values()].every(({ begunMs }) => begunMs === 0);
  }

  get waiting(): number {
    return Math.max(0, this.#jobs - this.#options.slots());
  }

  get tokensPerSecond(): number | undefined {
    return this.#speed.tokensPerSecond;
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch): Promise<void> {
    const content = request.retain
      ? [request.prompt, request.logitBias, request.constraint?.gbnf, request.tools, request.task]
      : undefined;
    if (content !== undefined && this.#quarantine.isQuarantined(content))
      throw failed('This request crashed the engine of the model twice and is not tried again.');
    const channel = new Channel();
    const { id, exchange } = this.#open({ channel, jobs: jobsOf(request), content }, workOf(request));
    const abandon = () => {
      channel.fail(signal.reason);
      this.#cancel(id);
    };
    signal.addEventListener('abort', abandon, { once: true });
    try {
      this.#options.residence.run(exchange.work);
      let answered = false;
      let unreported = 0;
      for (;;) {
        const idleAtMs = performance.now() + (this.#options.idleTimeoutMs ?? 60_000);
        const lateAtMs = (): number => (answered ? idleAtMs : exchange.firstToken.lateAtMs);
        const taken = await channel.take(lateAtMs, () => this.#tooLate(exchange));
        unreported += taken.tokens;
        if (unreported >= reportTokens && !taken.last) {
          this.#options.supervisor()?.forWork().note('taken', { request: id, tokens: unreported });
          unreported = 0;
        }
        answered ||= taken.tokens > 0;
        const goesOn = take(taken.events);
        if (goesOn !== true && !(await goesOn)) return;
        if (taken.last) return;
      }
    } finally {
      signal.removeEventListener('abort', abandon);
      this.#cancel(id);
    }
  }

  async count(request: EngineRequest, signal: StopSignal): Promise<number> {
    if (this.#counting >= countsMax) throw atCapacity(countsMax);
    this.#counting++;
    try {
      return await this.#whenLoaded(signal, () => this.#askForCount(workOf(request), signal));
    } finally {
      this.#counting--;
    }
  }

  /** Ends the requests that a dead child worked on, and no others (reliability E1). */
  lose({ loaded, isHopeless }: Loss, wasOnGpu: boolean): void {
    const begun = [...this.#exchanges].filter(([, { begunMs }]) => begunMs > 0);
    // A child that dies with its GPU says nothing about its requests: after two such deaths the processor answers.
    if (loaded && !wasOnGpu) {
      const contents = begun.map(([, { content }]) => content);
      this.#quarantine.record(contents.filter((content) => content !== undefined));
    }
    for (const [id, exchange] of begun) {
      // Requests without any output yet, many of which only waited in the child for their turn, go to the next child.
      if (wasOnGpu && !isHopeless && !exchange.isAnswered && exchange.repeats < repeatsMax) {
        exchange.repeats++;
        exchange.begunMs = 0;
        this.#options.residence.run(exchange.work);
      } else this.#release(id)?.channel.fail(stopped());
    }
    // Requests that wait for the model wait for the next child.
    if (isHopeless) this.#options.residence.failAll(stopped);
  }

  close(): void {
    this.#isClosed = true;
    this.#failAll(closed);
    this.#options.residence.failAll(closed);
  }

  /** Waits until the model is in memory, where it stays until the work is done. */
  async #whenLoaded<Value>(signal: StopSignal, act: () => Promise<Value>): Promise<Value> {
    const { promise: begun, resolve, reject } = deferred();
    const work: Waiting = {
      begin: () => {
        hasBegun = true;
        this.#countsBegun++;
        resolve();
      },
      fail: reject,
    };
    let hasBegun = false;
    const abandon = (): void => reject(signal.reason);
    const timer = setTimeout(() => reject(timedOut()), countTimeoutMs);
    signal.addEventListener('abort', abandon, { once: true });
    try {
      this.#options.residence.run(work);
      await begun;
      return await act();
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abandon);
      if (hasBegun) this.#countsBegun--;
      this.#options.residence.drop(work);
    }
  }

  async #askForCount(work: Work, signal: StopSignal): Promise<number> {
    const id = ++this.#lastRequest;
    const child = this.#options.supervisor()?.forWork();
    if (child === undefined) throw closed();
    try {
      const counted = await child.call('count', { request: id, work }, { timeoutMs: countTimeoutMs, signal });
      if ('refusal' in counted) throw this.#refused(counted.refusal);
      return counted.tokens;
    } catch (error) {
      if (signal.aborted || (error instanceof RpcError && error.code === 'timeout')) child.note('cancel', id);
      throw error instanceof RpcError ? this.#lostCount(error) : error;
    }
  }

  #open(
    { jobs, ...others }: Pick<Exchange, 'channel' | 'jobs' | 'content'>,
    work: Work,
  ): { readonly id: number; readonly exchange: Exchange } {
    const jobsMax = this.#options.slots() + (this.#options.queueLimit ?? 64);
    if (this.#jobs >= jobsMax) throw atCapacity(jobsMax);
    const id = ++this.#lastRequest;
    const exchange: Exchange = {
      ...others,
      jobs,
      firstToken: new FirstTokenTime(this.#options.firstToken, performance.now()),
      work: {
        begin: () => {
          exchange.begunMs = performance.now();
          this.#options.supervisor()?.forWork().note('generate', { request: id, work });
        },
        fail: (error) => this.#release(id)?.channel.fail(error),
      },
      begunMs: 0,
      firstMs: 0,
      tokens: 0,
      isAnswered: false,
      repeats: 0,
    };
    this.#exchanges.set(id, exchange);
    this.#jobs += jobs;
    return { id, exchange };
  }

  /** Frees the slot; returns the exchange if it was still open. */
  #release(id: number): Exchange | undefined {
    const exchange = this.#exchanges.get(id);
    if (exchange !== undefined) {
      this.#exchanges.delete(id);
      this.#jobs -= exchange.jobs;
      this.#options.residence.drop(exchange.work);
    }
    return exchange;
  }

  #cancel(id: number): void {
    const exchange = this.#release(id);
    if (exchange !== undefined && exchange.begunMs > 0) this.#options.supervisor()?.forWork().note('cancel', id);
  }

  #put(request: number, events: readonly GenerationEvent[], tokens: number, last: boolean): void {
    // Messages for a cancelled request may still be on their way.
    const exchange = this.#exchanges.get(request);
    if (exchange === undefined) return;
    exchange.isAnswered = true;
    exchange.channel.put(events, tokens, last);
    this.#time(exchange, events, tokens, last);
    if (!last) return;
    this.#release(request);
    if (exchange.content !== undefined) this.#quarantine.clear(exchange.content);
  }

  #time(exchange: Exchange, events: readonly GenerationEvent[], tokens: number, last: boolean): void {
    const nowMs = performance.now();
    if (this.#options.purpose !== 'write') {
      // Tasks only read their inputs; nothing is written.
      for (const event of events) if (event.type === 'start') exchange.tokens = event.promptTokens ?? 0;
      if (last) this.#speed.observe(exchange.tokens, nowMs - exchange.begunMs);
      return;
    }
    if (exchange.firstMs > 0) exchange.tokens += tokens;
    else if (tokens > 0) exchange.firstMs = nowMs;
    if (last && exchange.firstMs > 0) this.#speed.observe(exchange.tokens, nowMs - exchange.firstMs);
  }

  /** Returns the error for a late first token; if the model was not loaded in time, the client is told so. */
  #tooLate({ begunMs }: Exchange): ApiError {
    return begunMs > 0 ? timedOut() : notLoadedInTime();
  }

  #refused(refusal: Refusal): ApiError {
    const { code, message, param, extra, detail } = refusal;
    if (detail !== undefined) this.#options.onFailed(code, detail);
    return new ApiError(code, message, { param, extra });
  }

  #lostCount(error: RpcError): ApiError {
    if (error.code === 'timeout') return timedOut();
    return this.#isClosed ? closed() : stopped();
  }

  #failAll(error: () => ApiError): void {
    for (const id of [...this.#exchanges.keys()]) this.#release(id)?.channel.fail(error());
  }
}

/** A request that the child works on, or that waits until the model is loaded. */
interface Exchange {
  readonly channel: Channel;
  readonly jobs: number;
  /** Identifies the request if the child dies of it; `undefined` if nothing about it may be remembered. */
  readonly content: unknown;
  /** Sends it to the child. */
  readonly work: Waiting;
  /** The deadline for its first token. */
  readonly firstToken: FirstTokenTime;
  /** When it was sent to the child, and when its first token came; 0: not yet. */
  begunMs: number;
  firstMs: number;
  /** Tokens after the first. */
  tokens: number;
  /** Whether any of its answer has come. */
  isAnswered: boolean;
  /** How often it was sent to another child, because one lost its GPU. */
  repeats: number;
}

/** The GPU is tried twice, and then the processor. */
const repeatsMax = 2;
/** The child is notified of reads in batches, far smaller than it may run ahead. */
const reportTokens = unreadTokensMax / 4;
const countsMax = 256;
const countTimeoutMs = 30_000;

function workOf(request: EngineRequest): Work {
  const { prompt, choices, maxTokens, sampling, stop, logprobs, logitBias, cacheScope, retain, constraint } = request;
  const { tools, toolChoice, parallelToolCalls, effort, reasoningForm, reasoningRoomTokens, tokens, task } = request;
  return {
    ...{ prompt, choices, maxTokens, sampling, stop, logprobs, logitBias, cacheScope, retain },
    ...{ tools, toolChoice, parallelToolCalls, effort, reasoningForm, reasoningRoomTokens },
    ...(tokens === undefined ? {} : { tokens }),
    ...(task === undefined ? {} : { task }),
    gbnf: constraint?.gbnf,
    constraintParam: constraint && constraintParam(constraint.source),
  };
}

function failed(message: string): ApiError {
  return new ApiError('backend_http_error', message);
}

const closed = (): ApiError => new ApiError('no_healthy_backends', 'The engine of this model is closed.');

const stopped = (): ApiError => failed('The engine of this model stopped while it worked on this request.');

function timedOut(): ApiError {
  return new ApiError('backend_timeout', 'The engine of this model did not answer in time.');
}

function notLoadedInTime(): ApiError {
  return new ApiError(
    'backend_timeout',
    'The model could not be loaded in time; other models may be using the memory.',
  );
}

function atCapacity(jobsMax: number): ApiError {
  return new ApiError('backend_at_capacity', 'All slots of this model are in use.', atCap(jobsMax, 1));
}

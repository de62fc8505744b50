import { Pool } from 'undici';
import type { TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { orAborted } from '../../../platform/deadline.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import type { TraceHeaders } from '../../../platform/telemetry/trace-context.ts';
import type { Engine, EngineStatus, Look } from '../engine.ts';
import type { JoinedLoader, LoadingServer } from './adapter-loader.ts';
import { connectError, unavailable } from './failures.ts';
import { createOpenAiEngine, type OpenAiEngineOptions } from './openai-engine.ts';
import { hostOf } from './server-name.ts';
import { askAdapters, changeAdapter } from './server-pages.ts';

/** The engine of an adapter that its server loads when a request comes. */
export function createOnDemandEngine(options: OpenAiEngineOptions, adapter: string, joined: JoinedLoader): Engine {
  return new OnDemandEngine(options, adapter, joined);
}

/**
 * An ordinary engine whose requests wait until the server has the adapter. One whose adapter was unloaded on its way, by another process of the
 * service or because the server was started again, is sent once more.
 */
class OnDemandEngine implements Engine {
  readonly #name: string;
  readonly #engine: Engine;
  readonly #adapter: string;
  readonly #joined: JoinedLoader;
  readonly #pool: Pool;
  readonly #server: LoadingServer;
  readonly #closing = new AbortController();
  readonly report: Engine['report'];

  constructor(options: OpenAiEngineOptions, adapter: string, joined: JoinedLoader) {
    const { url, serverName, apiKey, onIncident } = options;
    this.#name = options.name;
    this.#adapter = adapter;
    this.#joined = joined;
    this.#engine = createOpenAiEngine({
      ...options,
      // A name that the server does not know is loaded again, and the loader says if that fails.
      onIncident: (incident) => void (incident.incident === 'not_found' || onIncident?.(incident)),
    });
    this.report = this.#engine.report;
    const { origin, pathname } = new URL(url);
    this.#pool = new Pool(origin, {
      connections: 1,
      pipelining: 1,
      connect: { timeout: 2_000, ...(serverName === undefined ? {} : { servername: serverName }) },
      maxHeaderSize: 16 * 1024,
    });
    const address = {
      pool: this.#pool,
      basePath: pathname.replace(/\/+$/, ''),
      headers: [
        ...(serverName === undefined ? [] : ['host', hostOf(url, serverName)]),
        ...['content-type', 'application/json', 'accept', 'application/json', 'accept-encoding', 'identity'],
        ...(apiKey === undefined ? [] : ['authorization', `Bearer ${apiKey}`]),
      ],
      signal: this.#closing.signal,
    };
    this.#server = {
      post: (route, body) => changeAdapter(address, route, body),
      list: () => askAdapters(address),
    };
  }

  get imageTokens(): Engine['imageTokens'] {
    return this.#engine.imageTokens;
  }

  get isCold(): boolean {
    return !this.#joined.loader.has(this.#adapter);
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch, trace?: TraceHeaders): Promise<void> {
    const { loader } = this.#joined;
    let hasBegun = false;
    const taking: TakeBatch = (batch) => {
      hasBegun = true;
      return take(batch);
    };
    for (let sent = 1; ; sent++) {
      await orAborted(this.#begin(), signal);
      try {
        return await this.#engine.generate(request, signal, taking, trace);
      } catch (error) {
        const isUnknown = error instanceof ApiError && error.code === 'no_healthy_backends';
        if (!isUnknown || hasBegun || signal.aborted || this.#isClosed || sent === sentMax) throw error;
        loader.lost(this.#adapter);
      } finally {
        loader.end(this.#adapter);
      }
    }
  }

  countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined> {
    return this.#engine.countTokens(request, signal);
  }

  refusal(request: EngineRequest): ApiError | undefined {
    return this.#engine.refusal?.(request);
  }

  async look(isIdle?: boolean): Promise<Look> {
    return (await this.#engine.look?.(isIdle)) ?? 'closed';
  }

  status(): EngineStatus {
    const status = this.#engine.status();
    if (status.state !== 'ready' || !this.isCold) return status;
    const problem = this.#joined.loader.problem(this.#adapter);
    return problem === undefined ? status : { state: 'down', detail: `no adapter: ${problem}`, retryAfterSeconds: 5 };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#closing.abort(unavailable(this.#name));
    this.#joined.leave();
    await Promise.all([this.#engine.close(), this.#pool.destroy()]);
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  async #begin(): Promise<void> {
    const { loader } = this.#joined;
    for (let turn = 1; !loader.begin(this.#adapter); turn++) {
      const paused = turn === 1 ? loader.problem(this.#adapter) : undefined;
      const problem = paused ?? (await loader.load(this.#adapter, this.#server));
      const isSilent = problem === 'the server does not answer';
      // It may have been asked by an engine that was closed meanwhile.
      if (isSilent && paused === undefined && turn === 1 && !this.#isClosed) continue;
      if (isSilent) throw connectError(this.#name);
      if (problem !== undefined || turn === turnsMax) throw unavailable(this.#name);
    }
  }
}

/** Where several processes of the service share a server with less room than adapters, each may unload what another one has just loaded. */
const sentMax = 4;
const turnsMax = 4;

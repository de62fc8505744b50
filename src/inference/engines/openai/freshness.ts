import type { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import { isLoading } from './failures.ts';
import type { Flavor } from './flavors/flavor.ts';
import { causeCode } from './incidents.ts';

export interface FreshnessBackend {
  readonly pool: Pool;
  readonly flavor: Flavor;
  /** The base path without the API's version: `/slots` is next to it. */
  readonly rootPath: string;
  readonly headers: readonly string[];
  /** Aborted when the engine is closed. */
  readonly signal: AbortSignal;
  readonly timeoutMs?: number;
}

const bodyBytesMax = 4 * 1024 * 1024;

/** No server was there to process anything, and nothing was sent, so it can be asked again. */
const nobodyThere: ReadonlySet<string | null> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'],
]);

/**
 * Determines whether a server without salts had processed nothing when this engine first used it. A server that kept running through a
 * restart of the service may hold the prompts of any account, so its cache may be used only if it is known to be fresh (reliability §3.5).
 * It is asked before the first request, and the answer is final; only a server that is not up yet is asked again.
 */
export class Freshness {
  readonly #backend: FreshnessBackend;
  #answer: boolean | undefined;
  #asking: Promise<void> | undefined;

  constructor(backend: FreshnessBackend) {
    this.#backend = backend;
  }

  get isKnownFresh(): boolean {
    return this.#answer === true;
  }

  /**
   * Asks if necessary. `undefined`: already settled. Otherwise a promise, shared by all callers meanwhile, that resolves within the time
   * limit and never rejects. It belongs to no request, so none can abort it.
   */
  settle(): Promise<void> | undefined {
    if (this.#answer !== undefined) return undefined;
    this.#asking ??= this.#ask().then((answer) => {
      this.#answer = answer;
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** Asks the server; `undefined`: not known yet. */
  async #ask(): Promise<boolean | undefined> {
    const { pool, flavor, rootPath, headers, signal, timeoutMs = 2_000 } = this.#backend;
    try {
      const answer = await pool.request({
        method: 'GET',
        path: `${rootPath}/slots`,
        headers: headers as string[],
        signal: combineSignals([signal, AbortSignal.timeout(timeoutMs)]),
      });
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of answer.body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes > bodyBytesMax) return false;
        chunks.push(chunk);
      }
      const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
      if (isLoading({ status: answer.statusCode, retryAfter: undefined, body }, flavor)) return undefined;
      return answer.statusCode === 200 && areUnused(body);
    } catch (error) {
      return nobodyThere.has(causeCode(error)) ? undefined : false;
    }
  }
}

/** Returns whether this is the `/slots` page of a server none of whose slots has ever had a task. Anything else means no. */
export function areUnused(slots: unknown): boolean {
  return Array.isArray(slots) && slots.length > 0 && slots.every(isUnused);
}

function isUnused(slot: unknown): boolean {
  if (typeof slot !== 'object' || slot === null) return false;
  const fields = slot as Readonly<Record<string, unknown>>;
  if (fields['is_processing'] !== false) return false;
  // llama-server still shows a slot's last task after it ended; a slot that never had one has none of these fields.
  const hasTask = ['id_task', 'prompt', 'params', 'next_token'].some((name) => fields[name] !== undefined);
  // Older versions always show them.
  return !hasTask || (fields['id_task'] === -1 && (fields['prompt'] ?? '') === '');
}

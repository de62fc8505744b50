import type { Client } from 'undici';
import { combineSignals } from '../combine-signals.ts';
import { beginningOf } from '../outbound/beginning-of.ts';
import { clientTo, judgedAddresses } from '../outbound/dial.ts';
import type { FetchTarget } from '../outbound/check-url.ts';
import { createNameResolver } from '../outbound/resolver.ts';

export interface CollectorOptions {
  /** The collector's URL, without the path of a signal and without a trailing slash. */
  readonly url: string;
  /** May hold a secret. */
  readonly headers: Readonly<Record<string, string>>;
  readonly version: string;
}

/** How a post ended; `again`: the same may be sent again after this time. */
export type Exported =
  | { readonly type: 'accepted'; readonly rejected: number }
  | { readonly type: 'refused'; readonly reason: string }
  | { readonly type: 'again'; readonly reason: string; readonly afterMs: number };

/** From the look-up of the name to the end of the answer. */
const postTimeoutMs = 10_000;
const answerBytesMax = 65_536;
const retryAfterMsMax = 60_000;

/** With these, the collector may accept it later (OTLP, "Failures"). */
const retryableStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * A collector that speaks OTLP over HTTP, with messages in Protocol Buffers. The operator has named it, so it may have any address;
 * beyond that it is reached like every other host outside: no redirects, certificates checked, the name resolved here.
 */
export class Collector {
  readonly #options: CollectorOptions;
  readonly #target: FetchTarget;
  readonly #resolver = createNameResolver([]);
  readonly #stop = new AbortController();
  #client: Client | undefined;

  constructor(options: CollectorOptions) {
    const url = new URL(options.url);
    this.#options = options;
    this.#target = { url, host: url.hostname.replace(/^\[|\]$/g, ''), isAllowed: true };
  }

  /** Never rejects. One at a time. */
  async post(path: '/v1/traces' | '/v1/metrics', body: Uint8Array): Promise<Exported> {
    const signal = combineSignals([this.#stop.signal, AbortSignal.timeout(postTimeoutMs)]);
    try {
      this.#client ??= await this.#connect(signal);
      const response = await this.#client.request({
        method: 'POST',
        path: `${this.#target.url.pathname.replace(/\/$/, '')}${path}`,
        headers: {
          'user-agent': `Tokenhouse/${this.#options.version}`,
          ...this.#options.headers,
          'content-type': 'application/x-protobuf',
          'accept-encoding': 'identity',
        },
        body,
        signal,
      });
      const answer = await beginningOf(response.body as AsyncIterable<Buffer>, answerBytesMax);
      const { statusCode: status } = response;
      if (status >= 200 && status < 300) return { type: 'accepted', rejected: rejectedOf(answer) };
      const reason = `the collector answered ${status}`;
      if (!retryableStatuses.has(status)) return { type: 'refused', reason };
      return { type: 'again', reason, afterMs: retryAfterMs(response.headers['retry-after']) };
    } catch (error) {
      // The name may now have another address.
      this.#disconnect();
      return { type: 'again', reason: reasonOf(error, signal), afterMs: 0 };
    }
  }

  /** Ends a running post. */
  close(): void {
    this.#stop.abort(new Error('the service is being stopped'));
    this.#disconnect();
  }

  async #connect(signal: AbortSignal): Promise<Client> {
    const addresses = await judgedAddresses(this.#target, this.#resolver, { at: 'url', noun: 'collector' }, signal);
    if (addresses.length === 0) throw new Error('the name of its host cannot be resolved');
    // Its connections also serve later posts.
    return clientTo(this.#target, addresses, { httpsPort: 443, certificates: undefined }, this.#stop.signal);
  }

  #disconnect(): void {
    this.#client?.destroy().catch(() => {});
    this.#client = undefined;
  }
}

/** In our own words, or the system's error code: a message may contain a header. */
function reasonOf(error: unknown, signal: AbortSignal): string {
  if (signal.aborted) return `no answer within ${postTimeoutMs / 1_000} seconds`;
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === 'string' && /^[A-Z0-9_]{1,40}$/.test(code) ? code : 'the connection failed';
}

function retryAfterMs(header: string | string[] | undefined): number {
  const seconds = typeof header === 'string' && /^\d{1,6}$/.test(header) ? Number(header) : 0;
  return Math.min(1_000 * seconds, retryAfterMsMax);
}

/** How many records it rejected: `Export…ServiceResponse { partial_success { rejected_… } }`. 0 where it cannot be read. */
export function rejectedOf(answer: Uint8Array): number {
  const inside = fieldOf(answer, 1);
  const rejected = inside instanceof Uint8Array ? fieldOf(inside, 1) : 0;
  return typeof rejected === 'number' ? rejected : 0;
}

/** A field of a message: a number, or bytes; undefined if it is missing or the message is malformed. */
function fieldOf(message: Uint8Array, wanted: number): number | Uint8Array | undefined {
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; at < message.length; scale *= 128) {
      const byte = message[at++]!;
      value += (byte % 128) * scale;
      if (byte < 128) break;
    }
    return value;
  };
  while (at < message.length) {
    const tag = varint();
    const wire = tag % 8;
    if (wire !== 0 && wire !== 2) return undefined;
    const value = varint();
    const read = wire === 0 ? value : message.subarray(at, at + value);
    if (wire === 2) at += value;
    if (Math.floor(tag / 8) === wanted) return read;
  }
  return undefined;
}

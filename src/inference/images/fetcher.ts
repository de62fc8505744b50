import type { Dispatcher } from 'undici';
import { ApiError, atCap } from '../../platform/errors.ts';
import { clientTo, judgedAddresses } from '../../platform/outbound/dial.ts';
import type { DialOptions } from '../../platform/outbound/dial.ts';
import { FairPlaces, FairPlacesOf } from '../../platform/fair-places.ts';
import { checkUrl, fetchedImage } from '../../platform/outbound/check-url.ts';
import type { Fetched, FetchTarget, ImageRules } from '../../platform/outbound/check-url.ts';
import type { NameResolver } from '../../platform/outbound/resolver.ts';

export interface FetchLimits {
  /** Largest size of one image. */
  readonly bytesMax: number;
  readonly redirectsMax: number;
  /** Concurrent fetches, in total and per account. */
  readonly parallelMax: number;
  readonly parallelPerAccountMax: number;
  /** Concurrent fetches from one host, in total and per account. */
  readonly parallelPerHostMax: number;
  readonly parallelPerHostAndAccountMax: number;
  /** Fetches that may wait, per host and in total. */
  readonly waitingMax: number;
  readonly waitMsMax: number;
}

export const defaultFetchLimits: FetchLimits = {
  bytesMax: 20_971_520,
  redirectsMax: 3,
  parallelMax: 32,
  parallelPerAccountMax: 8,
  parallelPerHostMax: 4,
  parallelPerHostAndAccountMax: 2,
  waitingMax: 1_024,
  waitMsMax: 10_000,
};

export interface ImageFetcherOptions {
  readonly limits?: Partial<FetchLimits>;
  /** The port for URLs without one. */
  readonly httpsPort?: number;
  /** Certificate authorities, as PEM, instead of those that Node trusts. */
  readonly certificates?: string;
}

export interface FetchSettings {
  readonly rules: ImageRules;
  readonly resolver: NameResolver;
}

/** The settings, and the account that fetches: accounts take turns. */
export interface FetchFor extends FetchSettings {
  readonly accountId: string;
}

/** Called with the number of bytes as they arrive; throws to refuse them. */
export type CountBytes = (bytes: number) => void;

/** What errors refer to: the field, what its URL should return, and the account. */
interface Subject {
  readonly at: string;
  readonly what: Fetched;
  readonly accountId: string;
}

/**
 * Fetches images and documents from the public internet, and from nowhere else (reliability §3.2): names are resolved here, once per
 * connection, every resolved address has to be public, and one of these addresses is dialled. Each redirect is checked like the first URL.
 * TLS is verified. Nothing of the service is sent: no cookies, no credentials; proxy variables are not read; connections are not reused.
 */
export class ImageFetcher {
  readonly #limits: FetchLimits;
  readonly #dial: DialOptions;
  readonly places: FairPlaces;
  readonly #placesOfHosts: FairPlacesOf<string>;

  constructor(options: ImageFetcherOptions = {}) {
    this.#limits = { ...defaultFetchLimits, ...options.limits };
    this.#dial = { httpsPort: options.httpsPort ?? 443, certificates: options.certificates };
    const { waitingMax, waitMsMax, ...places } = this.#limits;
    const common = { waitingMax, waitMsMax, refusal: atCapacity };
    this.places = new FairPlaces({
      placesMax: places.parallelMax,
      perAccountMax: places.parallelPerAccountMax,
      ...common,
    });
    this.#placesOfHosts = new FairPlacesOf({
      placesMax: places.parallelPerHostMax,
      perAccountMax: places.parallelPerHostAndAccountMax,
      ...common,
    });
  }

  /**
   * Fetches the bytes of a URL. Throws `unsupported_value` for an address that is not allowed, including redirects, and
   * `model_request_rejected` for every other failure, both with `param: at`; rejects with the reason of the signal, which is the only bound
   * on its time.
   */
  async fetch(
    text: string,
    { rules, resolver, accountId }: FetchFor,
    at: string,
    count: CountBytes,
    signal: AbortSignal,
    what: Fetched = fetchedImage,
  ): Promise<Buffer> {
    const subject = { at, what, accountId };
    let target = checkUrl(text, rules, at, what);
    for (let redirects = 0; ; redirects++) {
      const answer = await this.#exchange(target, resolver, subject, count, signal);
      if (Buffer.isBuffer(answer)) return answer;
      if (redirects >= this.#limits.redirectsMax) throw rejected('redirects too often', subject);
      if (!URL.canParse(answer.location, target.url.href))
        throw rejected('redirects to something that is not a URL', subject);
      target = checkUrl(new URL(answer.location, target.url).href, rules, at, what);
    }
  }

  async #exchange(
    target: FetchTarget,
    resolver: NameResolver,
    subject: Subject,
    count: CountBytes,
    signal: AbortSignal,
  ): Promise<Buffer | { readonly location: string }> {
    const { at, what, accountId } = subject;
    const inPlace = async (): Promise<Buffer | { readonly location: string }> => {
      const addresses = await judgedAddresses(target, resolver, { at, noun: what.noun }, signal);
      if (addresses.length === 0) throw rejected('could not be fetched: its host name cannot be resolved', subject);
      return await this.#request(target, addresses, subject, count, signal);
    };
    // So that no client can flood a host through this service, or keep others from it.
    return await this.#placesOfHosts.hold(target.host, accountId, signal, () =>
      this.places.hold(accountId, signal, inPlace),
    );
  }

  async #request(
    target: FetchTarget,
    addresses: readonly string[],
    subject: Subject,
    count: CountBytes,
    signal: AbortSignal,
  ): Promise<Buffer | { readonly location: string }> {
    const { url } = target;
    const client = clientTo(target, addresses, this.#dial, signal);
    try {
      const response = await client.request({
        method: 'GET',
        path: url.pathname + url.search,
        headers: { accept: subject.what.accept, ...requestHeaders },
        signal,
      });
      const location = redirectOf(response);
      if (location !== undefined) return { location };
      this.#checkHead(response, subject);
      return await this.#read(response, subject, count);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ApiError) throw error;
      // The exact failure would reveal details of the operator's network.
      throw rejected('could not be fetched: the connection failed', subject, error);
    } finally {
      await client.destroy();
    }
  }

  #checkHead({ statusCode, headers }: Dispatcher.ResponseData, subject: Subject): void {
    if (statusCode !== 200) throw rejected(`could not be fetched: its server answered ${statusCode}`, subject);
    const encoding = single(headers['content-encoding'])?.trim().toLowerCase() ?? 'identity';
    if (encoding !== 'identity') throw rejected('is sent compressed, although that was not requested', subject);
    const type = single(headers['content-type'])?.split(';')[0]?.trim().toLowerCase();
    if (type !== undefined && !subject.what.types.test(type))
      throw rejected(`is not ${subject.what.wanted}, according to its server`, subject);
    const length = Number(single(headers['content-length']) ?? 0);
    if (length > this.#limits.bytesMax) throw this.#tooLarge(subject);
  }

  async #read({ body }: Dispatcher.ResponseData, subject: Subject, count: CountBytes): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > this.#limits.bytesMax) throw this.#tooLarge(subject);
      count(chunk.length);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks, length);
  }

  #tooLarge(subject: Subject): ApiError {
    return rejected(`has more than ${this.#limits.bytesMax} bytes`, subject);
  }
}

const requestHeaders = {
  'accept-encoding': 'identity',
  'user-agent': 'Tokenhouse',
  connection: 'close',
};

function redirectOf({ statusCode, headers }: Dispatcher.ResponseData): string | undefined {
  const isRedirect = [301, 302, 303, 307, 308].includes(statusCode);
  return isRedirect ? single(headers['location']) : undefined;
}

const single = (value: string | string[] | undefined): string | undefined =>
  typeof value === 'string' || value === undefined ? value : value[0];

/** Specification §7.2; the cause is for the log only. */
const rejected = (why: string, { at, what }: Subject, cause?: unknown): ApiError =>
  new ApiError('model_request_rejected', `The ${what.noun} ${why}.`, {
    param: at,
    ...(cause === undefined ? {} : { cause }),
  });

const atCapacity = (max: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Too many images and documents are being fetched at the moment. Try again shortly.',
    atCap(max, 1),
  );

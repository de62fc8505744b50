import { setImmediate } from 'node:timers/promises';
import { ApiError } from '../../platform/errors.ts';
import type { ImagePart, ImageTokens, Message, Part, Prompt } from '../../generation/request.ts';
import type { ImageFetcher } from '../images/fetcher.ts';
import { measure } from '../images/measure.ts';
import { errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import type { Order } from './order.ts';
import type { Backend } from './backend-pool.ts';
import type { Lease } from './runtime-config.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** Maximum images per request, from any source. */
export const imagesMax = 20;

/** Time limit for all fetches of one request together, including waiting: a stream's head waits longer (`primeMs`). */
const fetchTimeoutMs = 10_000;
/** Concurrent fetches of one request. */
const parallelMax = 4;
/** Bytes fetched for one request, as base64: what would fit into a body of the largest size. */
const fetchedBytesMax = 52_428_800;

/** The memory that all requests share. */
export interface ByteBudget {
  /** Throws `backend_at_capacity` when there is no room. */
  take(bytes: number): void;
  give(bytes: number): void;
}

/** The request whose images are fetched. */
interface ImageCall {
  readonly lease: Pick<Lease, 'runtimeConfig' | 'poolOf'>;
  readonly memory: ByteBudget;
  /** Time spent waiting for servers. */
  engineMs: number;
}

export interface WithImages {
  readonly order: Order;
  /** Returns the same request for another model, with the images that were fetched. */
  into(order: Order): Order;
  /** Called once, when the order has ended: its images are no longer needed. */
  release(): void;
}

/** Whether the order has images to fetch. */
export const hasImageUrls = ({ request: { prompt } }: Order): boolean =>
  prompt.type === 'messages' && prompt.messages.some(({ content }) => content.some(({ type }) => type === 'image-url'));

/**
 * Fetches the images that an order still has as URLs, after its limits and credit are secured (decisions 18 and 052), so that backends
 * never fetch anything. Throws `model_request_rejected` or `unsupported_value`, naming the field.
 */
export async function fetchImages(
  order: Order,
  fetcher: ImageFetcher,
  call: ImageCall,
  signal: StopSignal,
): Promise<WithImages> {
  const { lease, memory } = call;
  const { prompt } = order.request;
  const settings = { ...lease.runtimeConfig.images, accountId: order.account.id };
  const urls = [...new Map(imageUrls(prompt).map((part) => [part.url, part])).values()];
  const begunMs = performance.now();
  // Aborted by the first event that ends the fetching: a failure, the time limit, or the end of the request.
  const ending = new AbortController();
  const onAbort = (): void => ending.abort(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  const fetched = new Map<string, ImagePart>();
  const timer = setTimeout(() => {
    const late = urls.find(({ url }) => !fetched.has(url));
    ending.abort(rejected(`could not be fetched within ${fetchTimeoutMs / 1_000} seconds`, late?.at));
  }, fetchTimeoutMs);
  let heldBytes = 0;
  try {
    const waiting = urls.values();
    const work = async (): Promise<void> => {
      for (const { url, at } of waiting) {
        const hold = (bytes: number): void => {
          if (heldBytes + bytes > fetchedBytesMax) throw rejected('is too large together with the others', at);
          memory.take(bytes);
          heldBytes += bytes;
        };
        const bytes = await fetcher.fetch(url, settings, at, hold, ending.signal);
        const image = await imageOf(bytes, at, ending.signal);
        // The bytes are freed, their base64 stays.
        hold(image.base64.length - bytes.length);
        fetched.set(url, image);
      }
    };
    const workers = Array.from({ length: parallelMax }, () => work().catch((error: unknown) => ending.abort(error)));
    await Promise.all(workers);
    ending.signal.throwIfAborted();
    const into = (other: Order): Order => withFetched(other, fetched, lease.poolOf(other.model.id).backends);
    return {
      order: into(order),
      into,
      release: () => memory.give(heldBytes),
    };
  } catch (error) {
    memory.give(heldBytes);
    if (signal.aborted && error === signal.reason) throw errorOfCancel(error as CancelReason, order.model.id);
    throw error;
  } finally {
    call.engineMs += performance.now() - begunMs;
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

/** Returns the memory of the images and texts in a conversation, at up to two bytes per character of text. */
export function promptBytes(prompt: Prompt): number {
  if (prompt.type !== 'messages') return 0;
  let bytes = 0;
  for (const { content } of prompt.messages) {
    for (const part of content) {
      if (part.type === 'image') bytes += part.base64.length;
      else if (part.type === 'text') bytes += 2 * part.text.length;
    }
  }
  return bytes;
}

/** Estimates the tokens of a prompt's images on the model's backends. */
export function imageTokens(prompt: Prompt, backends: readonly Backend[]): ImageTokens {
  const sum = { likely: 0, most: 0 };
  for (const part of parts(prompt)) {
    if (part.type !== 'image' && part.type !== 'image-url') continue;
    const size = part.type === 'image' ? part.size : undefined;
    const each = backends.flatMap(({ engine }) => engine.imageTokens?.(size) ?? []);
    if (each.length === 0) continue;
    sum.likely += Math.min(...each.map(({ likely }) => likely));
    sum.most += Math.max(...each.map(({ most }) => most));
  }
  return sum;
}

/** The prompt for a token count: only the model counts images. */
export function withoutImages(prompt: Prompt): Prompt {
  if (prompt.type !== 'messages' || imageCount(prompt) === 0) return prompt;
  const isNoImage = ({ type }: Part): boolean => type !== 'image' && type !== 'image-url';
  return mapContent(prompt, (content) => content.filter(isNoImage));
}

export const imageCount = (prompt: Prompt): number => images(prompt).length + imageUrls(prompt).length;

function withFetched(order: Order, fetched: ReadonlyMap<string, ImagePart>, backends: readonly Backend[]): Order {
  const { request } = order;
  const resolve = (part: Part): Part => (part.type === 'image-url' ? (fetched.get(part.url) ?? part) : part);
  const prompt =
    request.prompt.type === 'messages' ? mapContent(request.prompt, (content) => content.map(resolve)) : request.prompt;
  const tokens = imageTokens(prompt, backends);
  return {
    ...order,
    request: { ...request, prompt },
    imageTokens: tokens,
    // The sizes are known now.
    promptTokensMax: order.promptTokensMax - order.imageTokens.most + tokens.most,
    promptTokensLikely: order.promptTokensLikely - order.imageTokens.likely + tokens.likely,
    promptTokensPossible: order.promptTokensPossible - order.imageTokens.most + tokens.most,
  };
}

async function imageOf(bytes: Buffer, at: string, signal: StopSignal): Promise<ImagePart> {
  const image = await imageFrom(bytes, at, signal);
  if (typeof image === 'string') throw rejected(image, at);
  return image;
}

/** Returns an image from the bytes of its file, or a message for the client saying why it is not one. Yields to other requests. */
export async function imageFrom(bytes: Buffer, at: string, signal: StopSignal): Promise<ImagePart | string> {
  const found = measure({ length: bytes.length, at: (start, count) => bytes.subarray(start, start + count) });
  if (typeof found === 'string') return found;
  const pieces: string[] = [];
  for (let start = 0; start < bytes.length; start += encodeBytes) {
    if (start > 0) {
      await setImmediate();
      signal.throwIfAborted();
    }
    pieces.push(bytes.subarray(start, start + encodeBytes).toString('base64'));
  }
  return { type: 'image', ...found, base64: pieces.join(''), at };
}

/** Bytes encoded as base64 without yielding; a multiple of 3, and under a millisecond. */
const encodeBytes = 786_432;

/** All parts that are not text. Most prompts have none, and each request calls this several times. */
function parts(prompt: Prompt): readonly Part[] {
  const found: Part[] = [];
  if (prompt.type !== 'messages') return found;
  for (const { content } of prompt.messages) for (const part of content) if (part.type !== 'text') found.push(part);
  return found;
}

const images = (prompt: Prompt): readonly ImagePart[] => parts(prompt).filter((part) => part.type === 'image');

const imageUrls = (prompt: Prompt) => parts(prompt).filter((part) => part.type === 'image-url');

const mapContent = (
  prompt: Extract<Prompt, { type: 'messages' }>,
  change: (content: readonly Part[]) => readonly Part[],
): Prompt => ({
  type: 'messages',
  messages: prompt.messages.map((message): Message => ({ ...message, content: change(message.content) })),
});

/** Specification §7.2. */
const rejected = (why: string, at: string | undefined): ApiError =>
  new ApiError('model_request_rejected', `The image ${why}.`, at === undefined ? {} : { param: at });

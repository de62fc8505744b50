import { ApiError } from '../../platform/errors.ts';
import type { Message, Part, Prompt } from '../../generation/request.ts';
import { isDataUri, readDataUri } from '../images/data-uri.ts';
import { checkUrl } from '../../platform/outbound/check-url.ts';
import type { ImageRules } from '../../platform/outbound/check-url.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { Call, ServeServices } from './call.ts';
import type { FileResolver } from './request-files.ts';
import { imagesMax } from './request-images.ts';
import type { Route } from './route.ts';

/**
 * Turns the parts that a dialect leaves unresolved into content. For a model without vision, images are removed before any check and never
 * fetched (specification §4.2.4(5), contracts decision 18). For other models data URIs are read, and URLs are checked by their text alone;
 * they are fetched once the order has its slot (`request-images.ts`). Files are checked too, as far as the request itself tells their kind;
 * `readFiles` does the rest.
 */
export async function resolveParts(
  prompt: Prompt,
  vision: boolean,
  rules: ImageRules,
  signal: StopSignal,
  files?: FileResolver,
): Promise<Prompt> {
  if (prompt.type !== 'messages' || isPlain(prompt)) return prompt;
  const resolver: Resolver = { vision, rules, signal, files, images: 0 };
  const messages: Message[] = [];
  for (const message of prompt.messages) messages.push(await resolveMessage(message, resolver));
  return { type: 'messages', messages };
}

interface Resolver {
  readonly vision: boolean;
  readonly rules: ImageRules;
  readonly signal: StopSignal;
  /** `undefined`: files are refused. */
  readonly files: FileResolver | undefined;
  /** Number of images found so far. */
  images: number;
}

async function resolveMessage(message: Message, resolver: Resolver): Promise<Message> {
  const content: Part[] = [];
  for (const part of message.content) {
    const resolved = await resolvePart(part, resolver);
    if (resolved !== undefined) content.push(resolved);
  }
  return { ...message, content };
}

/** `undefined`: the part is left out. */
async function resolvePart(part: Part, resolver: Resolver): Promise<Part | undefined> {
  switch (part.type) {
    case 'text':
    case 'image':
      return part;
    case 'image-url': {
      const { url, at } = part;
      if (!resolver.vision) return undefined;
      countImage(resolver, at);
      if (isDataUri(url)) return await readDataUri(url, at, resolver.signal);
      checkUrl(url, resolver.rules, at);
      return part;
    }
    case 'file': {
      if (resolver.files === undefined) {
        throw new ApiError('unsupported_value', 'Files cannot be used here; send their text.', { param: part.at });
      }
      if (resolver.files.check(part) !== 'image') return part;
      if (!resolver.vision) return undefined;
      countImage(resolver, part.at);
      return part;
    }
  }
}

function countImage(counted: { images: number }, at: string): void {
  if (++counted.images <= imagesMax) return;
  throw new ApiError('unsupported_value', `There are more than ${imagesMax} images.`, { param: at });
}

/**
 * Replaces files by their content: the last step before the length of the prompt is decided. Images among them count as images, and are
 * left out for a model without vision.
 */
export async function readFiles(prompt: Prompt, vision: boolean, files: FileResolver): Promise<Prompt> {
  if (prompt.type !== 'messages' || !hasFiles(prompt)) return prompt;
  const counted = { images: prompt.messages.reduce((sum, { content }) => sum + content.filter(isImage).length, 0) };
  const messages: Message[] = [];
  for (const message of prompt.messages) {
    const content: Part[] = [];
    for (const part of message.content) {
      if (part.type !== 'file') {
        content.push(part);
        continue;
      }
      if ((await files.find(part)) === 'image') {
        if (!vision) continue;
        countImage(counted, part.at);
      }
      content.push(await files.read(part));
    }
    messages.push({ ...message, content });
  }
  return { type: 'messages', messages };
}

const isImage = ({ type }: Part): boolean => type === 'image' || type === 'image-url';

/** The prompt without its files. */
export const withoutFiles = (prompt: Prompt): Prompt =>
  prompt.type === 'messages' && hasFiles(prompt)
    ? {
        type: 'messages',
        messages: prompt.messages.map((message) => ({
          ...message,
          content: message.content.filter(({ type }) => type !== 'file'),
        })),
      }
    : prompt;

/** Whether the prompt is only text, with nothing to resolve. */
export const isPlain = (prompt: Prompt): boolean =>
  prompt.type !== 'messages' || prompt.messages.every(({ content }) => content.every(({ type }) => type === 'text'));

export const hasFiles = (prompt: Prompt): boolean =>
  prompt.type === 'messages' && prompt.messages.some(({ content }) => content.some(({ type }) => type === 'file'));

/** Returns the resolver for a prompt's files; `undefined`: the prompt has none. */
export const filesOf = (
  prompt: Prompt,
  call: Call<Route>,
  { fileParts }: Pick<ServeServices, 'fileParts'>,
  signal: StopSignal,
): FileResolver | undefined =>
  hasFiles(prompt)
    ? fileParts.for({
        accountId: call.account.id,
        zdr: call.zdr,
        signal: abortSignalOf(signal),
        fetching: call.lease.runtimeConfig.images,
        waited: (ms) => void (call.engineMs += ms),
        holdBytes: (bytes) => call.holdBytes(bytes),
      })
    : undefined;
